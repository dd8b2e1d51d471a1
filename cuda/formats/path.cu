// SPDX-License-Identifier: Apache-2.0
#include "formats/path.hpp"
#include "formats/run.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {

template status run_format(context const&, formats::read_path_job const&) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
