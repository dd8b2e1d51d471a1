// SPDX-License-Identifier: Apache-2.0
// What one rank finds in its columns: a block per row of the batch's trees.
#include "accept/accept.hpp"
#include "accept/scan.cuh"
#include "accept/target_row.cuh"
#include "common/launch.hpp"
#include "rules/accept.hpp"
#include "rules/draw.hpp"
#include "rules/walk.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

using record_out = rules::accept_record<std::uint32_t>;
using rules::float_bits;

struct shard_params {
  support::accept_shard_call call;
  rules::accept_shard_layout layout;
  vocab_ranges columns;  // by ascending id
};

struct shard_memory {
  scan_memory scan;
  rules::exp_sum sum;
  top_k_memory<accept_threads> top_k;
};

constexpr auto no_id = static_cast<std::uint32_t>(-1);

/// What an empty shard gives.
__device__ void clear(record_out const& record, bool with_log_prob) {
  std::uint32_t const nothing = float_bits(rules::minus_infinity);
  for (index_t rank = threadIdx.x; rank < record.max_top_k(); rank += accept_threads) {
    record.top_logit(rank) = nothing;
    record.top_id(rank) = no_id;
    if (with_log_prob) record.top_y(rank) = nothing;
  }
  if (threadIdx.x != 0) return;
  record.best_key() = nothing;
  record.best_id() = no_id;
  record.flags() = 0;
  if (!with_log_prob) return;
  record.max() = nothing;
  record.sum() = float_bits(0.0f);
  record.best_y() = nothing;
}

template <class Type>
__device__ void write_best(target_row<Type> const& row, row_best const& best,
                           rules::exp_sum const& sum, float r, rules::log_prob_kind kind,
                           record_out const& record) {
  bool const is_there = best.candidate != 0;
  auto const id =
      is_there ? static_cast<token_t>(rules::candidate_id(best.candidate)) : row.first_id();
  record.best_key() =
      float_bits(is_there ? rules::candidate_logit(best.candidate) : rules::minus_infinity);
  record.best_id() = static_cast<std::uint32_t>(id);
  record.flags() = best.met_nan != 0 ? flag::target_nan : 0;
  if (kind == rules::log_prob_kind::none) return;
  record.max() = float_bits(sum.max);
  record.sum() = float_bits(sum.sum);
  record.best_y() = float_bits(row.logit_of(id, r, kind));
}

/// Writes the `count` best tokens; what follows them is clear.
template <class Type>
__device__ void write_list(target_row<Type> const& row, std::uint64_t const* keys,
                           std::uint32_t count, float r, rules::log_prob_kind kind,
                           record_out const& record) {
  for (std::uint32_t rank = threadIdx.x; rank < record.max_top_k(); rank += accept_threads) {
    bool const is_there = rank < count;
    std::uint32_t const id = is_there ? rules::candidate_id(keys[rank]) : no_id;
    record.top_logit(rank) =
        float_bits(is_there ? rules::candidate_logit(keys[rank]) : rules::minus_infinity);
    record.top_id(rank) = id;
    if (kind == rules::log_prob_kind::none) continue;
    record.top_y(rank) = float_bits(is_there ? row.logit_of(id, r, kind) : rules::minus_infinity);
  }
}

template <class Type>
__device__ void contribute(shard_params const& p, index_t request, index_t position, index_t b,
                           node_t node, shard_memory& memory, record_out const& record) {
  support::accept_shard_call const& call = p.call;
  target_row<Type> const row =
      find_target_row<Type>(call.shard, p.columns, call.options, request, b, node);
  rules::draw_rule const rule = rules::find_rule(call.how, request, call.shape.vocab);
  rules::log_prob_kind const kind = rules::kind_of(call.options, call.options.shard_log_prob);
  // Two ranges: their ids would not ascend by slices.
  row_scan const found = scan_row<true>(row, {rule, position, kind}, false, memory.scan,
                                        [&](int, rules::exp_sum const& sum) { memory.sum = sum; });
  std::uint32_t count = 0;
  if (rule.has_filter) {
    auto const k = static_cast<std::uint32_t>(rules::exchanged_top_k(rule, call.how));
    std::uint64_t const floor = find_floor<accept_threads>(found.maxima, k, memory.top_k.walk);
    count = select_top_k<accept_threads>(row, k, floor, memory.top_k);
  }
  if (threadIdx.x == 0) write_best(row, found.best, memory.sum, rule.r, kind, record);
  write_list(row, memory.top_k.keys, count, rule.r, kind, record);
}

/// The grid is exact: at most 65,535 * 2,048 blocks.
template <class Type>
__global__ __launch_bounds__(accept_threads) void accept_shard_kernel(shard_params const p) {
  __shared__ shard_memory memory;
  support::accept_shard_call const& call = p.call;
  index_t const at = blockIdx.x;
  index_t const b = blockIdx.x / static_cast<std::uint32_t>(call.shape.width());
  auto const node = static_cast<node_t>(at - b * call.shape.width());
  record_out const record(p.layout, static_cast<std::uint32_t*>(call.out.data), at,
                          call.how.max_top_k);
  rules::batch_row const request = rules::find_accept_row(call, b).at;
  if (!request.active || node >= rules::count_nodes(call.tree, call.shape, b)) {
    clear(record, call.options.shard_log_prob);
    return;
  }
  index_t const position = request.cache_len + call.tree.depth[at] + 1;
  contribute<Type>(p, request.request, position, b, node, memory, record);
}

}  // namespace

status accept_shard(support::accept_shard_call const& call) noexcept {
  shard_params const params{
      call, rules::accept_layout(call.shape, call.how.max_top_k, call.options.shard_log_prob),
      rules::in_order(call.ranges)};
  return for_logits_type(call.shard.type, [&]<class Type>(Type) {
    return launch(call.ctx, accept_shard_kernel<Type>,
                  {call.shape.batch * call.shape.width(), accept_threads, 0}, params);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
