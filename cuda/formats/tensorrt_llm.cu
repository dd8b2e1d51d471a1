// SPDX-License-Identifier: Apache-2.0
#include "formats/run.cuh"
#include "formats/tensorrt_llm_rows.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

template status run_format(context const&, formats::tensorrt_llm::verify_job const&) noexcept;
template status run_format(context const&, formats::tensorrt_llm::accept_job const&) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
