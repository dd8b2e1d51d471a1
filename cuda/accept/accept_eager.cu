// SPDX-License-Identifier: Apache-2.0
// accept_greedy and accept_sampled, eager: all rows at once, then the walks.
#include "accept/accept.hpp"
#include "accept/logits_params.cuh"
#include "accept/row_target.cuh"
#include "accept/team.cuh"
#include "accept/tuning.hpp"
#include "accept/walk.cuh"
#include "common/cluster.hpp"
#include "common/launch.hpp"
#include "rules/draw.hpp"
#include "support/carve.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

/// What was found at every node, in the workspace: the token with two bits above it, and its
/// log-prob.
struct all_targets {
  static constexpr std::uint32_t can_match_bit = 1u << 30;
  static constexpr std::uint32_t met_nan_bit = 1u << 31;

  std::uint32_t* word;
  float* log_prob;

  static all_targets carve(support::carver& memory, index_t rows) {
    auto* const word = memory.take<std::uint32_t>(rows);
    return {word, memory.take<float>(rows)};
  }

  static __device__ std::uint32_t pack(rules::target_token const& target) {
    return static_cast<std::uint32_t>(target.token) | (target.can_match ? can_match_bit : 0) |
           (target.flags != 0 ? met_nan_bit : 0);
  }
  static __device__ rules::target_token unpack(std::uint32_t word) {
    rules::target_token target;
    target.token = static_cast<token_t>(word & (can_match_bit - 1));
    target.can_match = (word & can_match_bit) != 0;
    target.flags = (word & met_nan_bit) != 0 ? flag::target_nan : 0;
    return target;
  }
};

struct eager_params {
  logits_params logits;
  all_targets targets;
};

/// Depth of a node, which the position of its noise depends on; `parent` is shared memory.
__device__ std::int32_t find_depth(draft_tree const& tree, index_t first, node_t node,
                                   std::int16_t* parent) {
  for (auto i = static_cast<node_t>(threadIdx.x); i <= node; i += accept_threads) {
    node_t const link = tree.parent[first + i];
    parent[i] = static_cast<std::int16_t>(link >= 0 && link < i ? link : -1);
  }
  __syncthreads();
  std::int32_t depth = 0;
  for (std::int32_t at = parent[node]; at >= 0; at = parent[at]) ++depth;
  return depth;
}

template <class Memory>
struct eager_memory {
  std::int16_t parent[Memory::samples ? path_memory::max_width : 1];
  Memory rows;
};

/// A team of blocks per node. The grid is exact.
template <class Type, class Memory>
__global__ __launch_bounds__(accept_threads) void accept_rows_kernel(eager_params const p) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& memory = *reinterpret_cast<eager_memory<Memory>*>(raw);
  release_next_kernel();
  support::accept_logits_call const& call = p.logits.call;
  __shared__ team_memory meeting;
  team blocks(meeting);
  index_t const at = blockIdx.x / static_cast<unsigned>(blocks.blocks());
  auto const width = static_cast<std::uint32_t>(call.shape.width());
  index_t const b = static_cast<std::uint32_t>(at) / width;
  auto const node = static_cast<node_t>(at - b * width);
  // Loaded with what tells whether the request is active, not after it.
  node_t const num_nodes = rules::count_nodes(call.tree, call.shape, b);
  rules::batch_row const request = rules::find_accept_row(call, b).at;
  if (request.active && node < num_nodes) {
    rules::draw_rule rule;
    index_t position = 0;
    if constexpr (Memory::samples) {
      rule = rules::find_rule(call.how, request.request, call.shape.vocab);
      position = request.cache_len + 1;
      if (!rule.is_greedy) position += find_depth(call.tree, b * width, node, memory.parent);
    }
    target_row<Type> const row = find_target_row<Type>(call.target, p.logits.columns, call.options,
                                                       request.request, b, node);
    rules::target_token const target = find_target(call, row, rule, position, blocks, memory.rows);
    if (blocks.rank() == 0 && threadIdx.x == 0) {
      p.targets.word[at] = all_targets::pack(target);
      p.targets.log_prob[at] = target.log_prob;
    }
  }
  blocks.leave();
}

constexpr int walk_threads = 256;

/// The walk is a chase, which is slow in device memory.
struct walk_memory_of_all {
  path_memory path;
  node_t first_child[path_memory::max_width];
  std::uint32_t target[path_memory::max_width];
};

/// What the kernel before this one did not write is read while that one runs: that kernel itself
/// waited for all others.
__global__ __launch_bounds__(walk_threads) void accept_walk_kernel(eager_params const p) {
  __shared__ walk_memory_of_all memory;
  support::accept_logits_call const& call = p.logits.call;
  index_t const b = blockIdx.x;
  index_t const first = b * call.shape.width();
  node_t const num_nodes = rules::count_nodes(call.tree, call.shape, b);
  rules::accept_row const row = rules::find_accept_row(call, b);
  walk_end walk;
  if (row.at.active) {
    for (auto i = static_cast<node_t>(threadIdx.x); i < num_nodes; i += walk_threads) {
      memory.first_child[i] = call.tree.first_child[first + i];
    }
    auto target_at = [&](node_t node, std::int32_t depth) {
      if (depth == 0) {
        await_previous_kernel();
        for (auto i = static_cast<node_t>(threadIdx.x); i < num_nodes; i += walk_threads) {
          memory.target[i] = p.targets.word[first + i];
        }
        __syncthreads();
      }
      return all_targets::unpack(memory.target[node]);
    };
    // follow_target begins with a barrier.
    walk = follow_target<walk_threads>(call, b, row, memory.first_child, memory.path, target_at);
    __syncthreads();
    auto const i = static_cast<std::int32_t>(threadIdx.x);
    if (call.out.log_prob != nullptr && i <= walk.num_accepted) {
      memory.path.log_prob[i] = p.targets.log_prob[first + memory.path.path[i]];
    }
  }
  await_previous_kernel();
  __syncthreads();
  store_walk(call, b, row, walk, memory.path);
}

index_t count_rows(round_shape const& shape) noexcept { return shape.batch * shape.width(); }

template <class Memory>
status launch_rows(eager_params const& params, unsigned blocks) noexcept {
  support::accept_logits_call const& call = params.logits.call;
  return for_logits_type(call.target.type, [&]<class Type>(Type) {
    launch_shape shape{count_rows(call.shape) * blocks, accept_threads,
                       sizeof(eager_memory<Memory>)};
    shape.cluster = blocks;
    return launch(call.ctx, accept_rows_kernel<Type, Memory>, shape, params);
  });
}

}  // namespace

bool can_accept_eager(support::accept_logits_call const& call) noexcept {
  return count_rows(call.shape) <= tuning::max_eager_rows;
}

bool prefers_accept_eager(support::accept_logits_call const& call) noexcept {
  return count_rows(call.shape) <= tuning::max_preferred_eager_rows;
}

std::size_t accept_eager_workspace(support::accept_logits_call const& call) noexcept {
  index_t const rows = count_rows(call.shape);
  support::carver memory;
  (void)all_targets::carve(memory, rows < tuning::max_eager_rows ? rows : tuning::max_eager_rows);
  return memory.bytes();
}

status accept_eager(support::accept_logits_call const& call) noexcept {
  index_t const rows = count_rows(call.shape);
  unsigned const blocks =
      can_run_clusters(call.ctx.device) ? tuning::eager_blocks(rows, call.shape.vocab) : 1;
  support::carver memory(call.scratch);
  eager_params const params{all_columns(call), all_targets::carve(memory, rows)};
  status const done = call.how.temperature != nullptr ? launch_rows<sampled_memory>(params, blocks)
                                                      : launch_rows<greedy_memory>(params, blocks);
  if (!done) return done;
  launch_shape shape{call.shape.batch, walk_threads};
  shape.overlaps = true;
  return launch(call.ctx, accept_walk_kernel, shape, params);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
