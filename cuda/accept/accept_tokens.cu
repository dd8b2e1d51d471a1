// SPDX-License-Identifier: Apache-2.0
#include "accept/accept.hpp"
#include "accept/walk.cuh"
#include "common/launch.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int threads = 128;

/// One block per request.
__global__ __launch_bounds__(threads) void accept_tokens_kernel(
    support::accept_tokens_call const call) {
  __shared__ path_memory memory;
  accept_request<threads>(call, blockIdx.x, true, memory, [&](rules::batch_row const&) {
    index_t const first = index_t{blockIdx.x} * call.target_token.stride;
    return [&call, first](node_t node, std::int32_t) {
      return rules::target_from_id(rules::load_id(call.target_token, first + node),
                                   call.shape.vocab);
    };
  });
}

}  // namespace

status accept_tokens(support::accept_tokens_call const& call) noexcept {
  return launch(call.ctx, accept_tokens_kernel, {call.shape.batch, threads, 0}, call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
