// SPDX-License-Identifier: Apache-2.0
// accept_greedy and accept_sampled, lazy: the blocks of a request read the rows that its walk
// visits.
#include "accept/accept.hpp"
#include "accept/logits_params.cuh"
#include "accept/row_target.cuh"
#include "accept/team.cuh"
#include "accept/tuning.hpp"
#include "accept/walk.cuh"
#include "common/cluster.hpp"
#include "common/launch.hpp"
#include "rules/draw.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

template <class Memory>
struct lazy_memory {
  path_memory path;
  Memory rows;
};

template <class Type, class Memory>
__global__ __launch_bounds__(accept_threads) void accept_lazy_kernel(logits_params const p) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& memory = *reinterpret_cast<lazy_memory<Memory>*>(raw);
  support::accept_logits_call const& call = p.call;
  __shared__ team_memory meeting;
  team blocks(meeting);
  index_t const b = blockIdx.x / static_cast<unsigned>(blocks.blocks());
  accept_request<accept_threads>(
      call, b, blocks.rank() == 0, memory.path, [&](rules::batch_row const& at) {
        rules::draw_rule rule;
        if constexpr (Memory::samples) {
          rule = rules::find_rule(call.how, at.request, call.shape.vocab);
        }
        return [&p, &call, &memory, &blocks, b, at, rule](node_t node, std::int32_t depth) {
          target_row<Type> const row =
              find_target_row<Type>(call.target, p.columns, call.options, at.request, b, node);
          return find_target(call, row, rule, at.cache_len + depth + 1, blocks, memory.rows);
        };
      });
  blocks.leave();
}

template <class Memory>
status launch_lazy(support::accept_logits_call const& call, unsigned blocks) noexcept {
  return for_logits_type(call.target.type, [&]<class Type>(Type) {
    launch_shape shape{call.shape.batch * blocks, accept_threads, sizeof(lazy_memory<Memory>)};
    shape.cluster = blocks;
    return launch(call.ctx, accept_lazy_kernel<Type, Memory>, shape, all_columns(call));
  });
}

status launch_lazy(support::accept_logits_call const& call, unsigned blocks) noexcept {
  bool const samples = call.how.temperature != nullptr;
  return samples ? launch_lazy<sampled_memory>(call, blocks)
                 : launch_lazy<greedy_memory>(call, blocks);
}

}  // namespace

status accept_lazy(support::accept_logits_call const& call) noexcept {
  return launch_lazy(call, 1);
}

status accept_lazy_cluster(support::accept_logits_call const& call) noexcept {
  return launch_lazy(call, tuning::lazy_blocks(call.shape.batch, call.shape.vocab));
}

bool can_accept_lazy_cluster(support::accept_logits_call const& call) noexcept {
  return can_run_clusters(call.ctx.device);
}

bool prefers_accept_lazy_cluster(support::accept_logits_call const& call) noexcept {
  return call.shape.batch <= tuning::max_preferred_cluster_batch;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
