// SPDX-License-Identifier: Apache-2.0
#include "formats/flashinfer_rows.hpp"
#include "formats/run.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {

template status run_format(context const&, formats::flashinfer::plan_job const&) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
