// SPDX-License-Identifier: Apache-2.0
// The walk over what all ranks found: a block per request merges the rows that it visits.
#include "accept/accept.hpp"
#include "accept/draw.cuh"
#include "accept/walk.cuh"
#include "common/block.cuh"
#include "common/launch.hpp"
#include "common/select_few.cuh"
#include "rules/accept.hpp"
#include "rules/draw.hpp"
#include "rules/dtype_convert.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

using record_in = rules::accept_record<std::uint32_t const>;
using rules::float_from_bits;

struct merge_params {
  support::accept_merge_call call;
  rules::accept_shard_layout layout;
};

template <int Threads>
struct merge_memory {
  path_memory path;
  few_memory<Threads> few;
  list_memory from_list;
};

/// One row of all contributions; for the functions of common/select.cuh, its candidates. They may
/// have been damaged on their way: no id is trusted.
struct gathered_row {
  static constexpr int width = 1;

  merge_params const& params;
  index_t row;

  __device__ record_in record(index_t rank) const {
    shard_in const& all = params.call.all_ranks;
    auto const* const data =
        static_cast<unsigned char const*>(all.data) + rank * all.rank_stride_bytes;
    return {params.layout, reinterpret_cast<std::uint32_t const*>(data), row,
            params.call.how.max_top_k};
  }

  __device__ bool is_token(std::uint32_t id) const { return index_t{id} < params.call.shape.vocab; }

  /// Calls body(rank, record, slot) for every slot of the ranks' lists, a warp per rank.
  template <int Threads, class Body>
  __device__ void for_each_slot(Body body) const {
    constexpr int warps = warps_of<Threads>;
    for (index_t rank = warp_index(); rank < params.call.all_ranks.ranks; rank += warps) {
      record_in const list = record(rank);
      for (index_t slot = lane_index(); slot < list.max_top_k(); slot += 32) {
        body(rank, list, slot);
      }
    }
  }

  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    for_each_slot<Threads>([&](index_t, record_in const& list, index_t slot) {
      std::uint32_t const id = list.top_id(slot);
      if (!is_token(id)) return;
      float x[1] = {rules::sanitize(float_from_bits(list.top_logit(slot)))};
      body(static_cast<std::int32_t>(id), x);
    });
  }
};

/// What a rank found on a row.
struct rank_share {
  std::uint32_t best_key;
  std::uint32_t best_id;
  std::uint32_t flags;
  std::uint32_t max;
  std::uint32_t sum;
  std::uint32_t best_y;
};

__device__ rank_share load_share(record_in const& record, bool with_log_prob) {
  rank_share share{record.best_key(), record.best_id(), record.flags(), 0, 0, 0};
  if (with_log_prob) {
    share.max = record.max();
    share.sum = record.sum();
    share.best_y = record.best_y();
  }
  return share;
}

__device__ rank_share share_of_lane(rank_share const& own, int lane) {
  return {__shfl_sync(all_lanes, own.best_key, lane), __shfl_sync(all_lanes, own.best_id, lane),
          __shfl_sync(all_lanes, own.flags, lane),    __shfl_sync(all_lanes, own.max, lane),
          __shfl_sync(all_lanes, own.sum, lane),      __shfl_sync(all_lanes, own.best_y, lane)};
}

/// What the ranks found on the whole row.
struct merged_row {
  rules::best_token best;
  float best_y = rules::minus_infinity;
  rules::exp_sum sum;
  std::uint32_t flags = 0;

  __device__ token_t token() const { return best.id > 0 ? best.id : 0; }
  __device__ bool can_match() const { return best.key > rules::minus_infinity; }
};

__device__ void add_share(gathered_row const& row, rank_share const& share, bool with_log_prob,
                          merged_row& merged) {
  merged.flags |= share.flags & flag::target_nan;
  if (with_log_prob) {
    merged.sum = rules::merge(merged.sum, {float_from_bits(share.max), float_from_bits(share.sum)});
  }
  if (!row.is_token(share.best_id)) return;
  auto const id = static_cast<token_t>(share.best_id);
  merged.best.offer(rules::sanitize(float_from_bits(share.best_key)), id);
  if (with_log_prob && merged.best.id == id) merged.best_y = float_from_bits(share.best_y);
}

/// In rank order, in every warp alike.
__device__ merged_row merge_row(gathered_row const& row, bool with_log_prob) {
  merged_row merged;
  index_t const ranks = row.params.call.all_ranks.ranks;
  for (index_t begin = 0; begin < ranks; begin += 32) {
    int const count = ranks - begin < 32 ? static_cast<int>(ranks - begin) : 32;
    rank_share own{};
    if (lane_index() < count) own = load_share(row.record(begin + lane_index()), with_log_prob);
    for (int lane = 0; lane < count; ++lane) {
      add_share(row, share_of_lane(own, lane), with_log_prob, merged);
    }
  }
  return merged;
}

/// y of a candidate; of copies in damaged contributions the last.
template <int Threads>
__device__ float find_y(gathered_row const& row, token_t id, std::uint64_t* partial) {
  std::uint64_t last = 0;
  row.template for_each_slot<Threads>([&](index_t rank, record_in const& list, index_t slot) {
    if (list.top_id(slot) != static_cast<std::uint32_t>(id)) return;
    auto const at = static_cast<std::uint64_t>(rank * list.max_top_k() + slot + 1);
    std::uint64_t const here = at << 32 | list.top_y(slot);
    if (here > last) last = here;
  });
  last = block_reduce<Threads>(last, larger{}, partial);
  return float_from_bits(static_cast<std::uint32_t>(last));
}

/// The best of all lists, in memory.top_k.keys.
template <int Threads>
__device__ std::uint32_t best_of_lists(gathered_row const& row, std::uint32_t top_k,
                                       few_memory<Threads>& memory) {
  if constexpr (Threads == few_threads) {
    float largest = rules::minus_infinity;
    row.template for_each_packet<Threads>(
        [&](std::int32_t, float(&x)[1]) { largest = fmaxf(largest, x[0]); });
    return select_few<Threads>(row, top_k, bisect_floor(largest, top_k), memory);
  } else {
    return select_top_k<Threads>(row, top_k, lowest_finite_key, memory.top_k);
  }
}

/// The target's token at a node.
template <int Threads>
__device__ rules::target_token from_records(gathered_row const& row, rules::draw_rule const& rule,
                                            index_t position, merge_memory<Threads>& memory) {
  support::accept_merge_call const& call = row.params.call;
  bool const with_log_prob = call.out.log_prob != nullptr;
  merged_row const merged = merge_row(row, with_log_prob);
  rules::target_token target;
  target.flags = merged.flags;
  target.token = merged.token();
  target.can_match = merged.can_match();
  float y = merged.best_y;
  if (rule.has_filter) {
    index_t const top_k = rules::exchanged_top_k(rule, call.how);
    if (top_k < rule.top_k) target.flags |= flag::top_k_limited;
    std::uint32_t const count =
        best_of_lists<Threads>(row, static_cast<std::uint32_t>(top_k), memory.few);
    target.can_match = count > 0;
    if (count > 0) {
      target.token =
          draw_from_list<Threads>(memory.few.top_k.keys, count, rule, position, memory.from_list);
      if (with_log_prob) y = find_y<Threads>(row, target.token, memory.from_list.partial);
    }
  }
  if (with_log_prob) target.log_prob = rules::log_prob_of(y, merged.sum);
  return target;
}

template <int Threads>
__device__ void accept_merge(merge_params const& p, merge_memory<Threads>& memory) {
  support::accept_merge_call const& call = p.call;
  accept_request<Threads>(call, blockIdx.x, true, memory.path, [&](rules::batch_row const& at) {
    rules::draw_rule const rule = rules::find_rule(call.how, at.request, call.shape.vocab);
    index_t const first = blockIdx.x * call.shape.width();
    return [&p, &memory, at, rule, first](node_t node, std::int32_t depth) {
      gathered_row const row{p, first + node};
      return from_records(row, rule, at.cache_len + depth + 1, memory);
    };
  });
}

template <int Threads>
__global__ __launch_bounds__(Threads) void accept_merge_kernel(merge_params const p) {
  __shared__ merge_memory<Threads> memory;
  accept_merge(p, memory);
}

/// Without filters a row is merged in no time, so that all of them are, a thread each, before the
/// walk begins: it would wait for the memory at each step.
constexpr int all_rows_threads = 256;

/// What a walk asks of a row.
struct found_target {
  token_t token;
  bool can_match;
  bool met_nan;

  __device__ rules::target_token target() const {
    return {token, can_match, met_nan ? flag::target_nan : 0u, 0.0f};
  }
};

struct all_rows_memory {
  path_memory path;
  node_t first_child[path_memory::max_width];
  found_target found[path_memory::max_width];
};

/// merge_row by one thread.
__device__ merged_row merge_alone(gathered_row const& row, bool with_log_prob) {
  merged_row merged;
#pragma unroll 8
  for (index_t rank = 0; rank < row.params.call.all_ranks.ranks; ++rank) {
    add_share(row, load_share(row.record(rank), with_log_prob), with_log_prob, merged);
  }
  return merged;
}

__global__ __launch_bounds__(all_rows_threads) void accept_merge_all_rows_kernel(
    merge_params const p) {
  __shared__ all_rows_memory memory;
  support::accept_merge_call const& call = p.call;
  index_t const b = blockIdx.x;
  index_t const first = b * call.shape.width();
  rules::accept_row const row = rules::find_accept_row(call, b);
  walk_end walk;
  if (row.at.active) {
    node_t const num_nodes = rules::count_nodes(call.tree, call.shape, b);
    for (auto i = static_cast<node_t>(threadIdx.x); i < num_nodes; i += all_rows_threads) {
      memory.first_child[i] = call.tree.first_child[first + i];
      merged_row const merged = merge_alone({p, first + i}, false);
      memory.found[i] = {merged.token(), merged.can_match(), merged.flags != 0};
    }
    // follow_target begins with a barrier.
    auto target_at = [&](node_t node, std::int32_t) { return memory.found[node].target(); };
    walk =
        follow_target<all_rows_threads>(call, b, row, memory.first_child, memory.path, target_at);
    __syncthreads();
    auto const i = static_cast<std::int32_t>(threadIdx.x);
    if (call.out.log_prob != nullptr && i <= walk.num_accepted) {
      merged_row const merged = merge_alone({p, first + memory.path.path[i]}, true);
      memory.path.log_prob[i] = rules::log_prob_of(merged.best_y, merged.sum);
    }
  }
  __syncthreads();
  store_walk(call, b, row, walk, memory.path);
}

bool has_filters(sampling const& how) {
  return how.temperature != nullptr &&
         (how.top_k.data != nullptr || how.top_p != nullptr || how.min_p != nullptr);
}

}  // namespace

status accept_merge(support::accept_merge_call const& call) noexcept {
  merge_params const params{
      call, rules::accept_layout(call.shape, call.how.max_top_k, call.options.shard_log_prob)};
  if (has_filters(call.how)) {
    bool const is_few = call.how.max_top_k <= few_threads / 2;
    return launch(call.ctx,
                  is_few ? accept_merge_kernel<few_threads> : accept_merge_kernel<accept_threads>,
                  {call.shape.batch, is_few ? few_threads : unsigned{accept_threads}, 0}, params);
  }
  return launch(call.ctx, accept_merge_all_rows_kernel, {call.shape.batch, all_rows_threads, 0},
                params);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
