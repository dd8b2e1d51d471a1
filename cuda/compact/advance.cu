// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "compact/compact.hpp"
#include "rules/path.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr unsigned threads = 128;

/// A thread for each row of the batch.
__global__ void __launch_bounds__(threads) advance_kernel(support::advance_call const call) {
  index_t const b = index_t{blockIdx.x} * threads + threadIdx.x;
  if (b >= call.shape.batch) return;
  rules::accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
  if (row.count < 0) return;
  index_t const length = rules::load_id(call.cache_len, row.at.request);
  if (length < 0 || length > rules::max_cache_len) return;
  rules::store_id(call.cache_len, row.at.request, length + row.count + 1);
}

}  // namespace

status advance(support::advance_call const& call) noexcept {
  return launch(call.ctx, advance_kernel, {(call.shape.batch + threads - 1) / threads, threads},
                call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
