// SPDX-License-Identifier: Apache-2.0
// Runs a job where its context says.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

#include "formats/run_cpu.hpp"

#if defined(DDTREE_WITH_CUDA)
#include "formats/formats.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace formats {

/// No rows, no work: nothing is written for an empty batch but what follows the last request.
template <class Job>
status run(context const& ctx, Job const& job) noexcept {
  if (ctx.backend == backend_kind::cpu) return run_cpu(ctx, job);
#if defined(DDTREE_WITH_CUDA)
  return cuda::run_format(ctx, job);
#else
  return {errc::unsupported_device, 0, "context.backend: not in this build"};
#endif
}

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
