// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "expand/begin_flags.hpp"
#include "rules/expand.hpp"
#include "rules/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int threads = 128;

/// One thread per request, exact grid.
__global__ __launch_bounds__(threads) void begin_flags_kernel(begin_flags_call const p) {
  index_t const b = index_t{blockIdx.x} * threads + threadIdx.x;
  if (b >= p.shape.batch) return;
  std::uint32_t flags = 0;
  if (p.sources > 0 && rules::find_row(p.batch, p.shape.request_rows(), b).active) {
    auto const* const first = reinterpret_cast<unsigned char const*>(p.source + b);
    for (index_t s = 0; s < p.sources; ++s) {
      flags |= *reinterpret_cast<std::uint32_t const*>(first + s * p.source_stride_bytes);
    }
    flags &= rules::contributed_flags;
  }
  p.flags[b] = flags;
}

}  // namespace

status begin_flags(context const& ctx, begin_flags_call const& call) noexcept {
  index_t const blocks = (call.shape.batch + threads - 1) / threads;
  return launch(ctx, begin_flags_kernel, {blocks, threads, 0}, call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
