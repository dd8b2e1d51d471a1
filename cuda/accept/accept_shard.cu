// SPDX-License-Identifier: Apache-2.0
// What one rank finds in its columns: a block per row of the batch's trees.
#include "accept/accept.hpp"
#include "accept/scan.cuh"
#include "accept/target_row.cuh"
#include "common/launch.hpp"
#include "common/select_few.cuh"
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

/// Threads of a block. A shard's row is short: what a block does before and after it reads takes as
/// long, and more blocks to a multiprocessor hide it.
constexpr int shard_threads = 256;

struct greedy_memory {
  static constexpr bool samples = false;
  static constexpr int blocks_per_multiprocessor = 6;
  scan_memory scan;
  rules::exp_sum sum;
};

struct sampled_memory : greedy_memory {
  static constexpr bool samples = true;
  static constexpr int blocks_per_multiprocessor = 4;
  few_memory<shard_threads> few;
};

constexpr auto no_id = static_cast<std::uint32_t>(-1);

/// What an empty shard gives.
__device__ void clear(record_out const& record, bool with_log_prob) {
  std::uint32_t const nothing = float_bits(rules::minus_infinity);
  for (index_t rank = threadIdx.x; rank < record.max_top_k(); rank += shard_threads) {
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
  for (std::uint32_t rank = threadIdx.x; rank < record.max_top_k(); rank += shard_threads) {
    bool const is_there = rank < count;
    std::uint32_t const id = is_there ? rules::candidate_id(keys[rank]) : no_id;
    record.top_logit(rank) =
        float_bits(is_there ? rules::candidate_logit(keys[rank]) : rules::minus_infinity);
    record.top_id(rank) = id;
    if (kind == rules::log_prob_kind::none) continue;
    record.top_y(rank) = float_bits(is_there ? row.logit_of(id, r, kind) : rules::minus_infinity);
  }
}

/// A row for which a floor is known: packets that do not reach it are not looked at, unless a bias
/// could raise them.
template <class Type>
struct gated_row {
  static constexpr int width = Type::width;

  target_row<Type> const& row;
  floor_gate<Type> gate;

  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    row.template visit<Threads>([](float const(&)[width]) {}, body, gate);
  }
};

/// The best k of a row that has been scanned, in memory.top_k.keys.
template <class Type>
__device__ std::uint32_t find_list(target_row<Type> const& row, row_scan const& found,
                                   std::uint32_t k, few_memory<shard_threads>& memory) {
  if (k <= shard_threads / 2) {
    std::uint64_t const floor = bisect_floor(found.maxima.largest(), k);
    gated_row<Type> const gated{row, {floor, row.bias != nullptr}};
    return select_few<shard_threads>(gated, k, floor, memory);
  }
  std::uint64_t const floor = find_floor<shard_threads>(found.maxima, k, memory.top_k.walk);
  return select_top_k<shard_threads>(row, k, floor, memory.top_k);
}

template <class Type, class Memory>
__device__ void contribute(shard_params const& p, index_t request, index_t position, index_t b,
                           node_t node, Memory& memory, record_out const& record) {
  support::accept_shard_call const& call = p.call;
  target_row<Type> const row =
      find_target_row<Type>(call.shard, p.columns, call.options, request, b, node);
  rules::draw_rule rule;
  if constexpr (Memory::samples) rule = rules::find_rule(call.how, request, call.shape.vocab);
  rules::log_prob_kind const kind = rules::kind_of(call.options, call.options.shard_log_prob);
  // Two ranges: their ids would not ascend by slices.
  row_scan const found = scan_row<Memory::samples, shard_threads>(
      row, {rule, position, kind}, false, memory.scan,
      [&](int, rules::exp_sum const& sum) { memory.sum = sum; });
  if (threadIdx.x == 0) write_best(row, found.best, memory.sum, rule.r, kind, record);
  if constexpr (Memory::samples) {
    std::uint32_t count = 0;
    if (rule.has_filter) {
      auto const k = static_cast<std::uint32_t>(rules::exchanged_top_k(rule, call.how));
      count = find_list(row, found, k, memory.few);
    }
    write_list(row, memory.few.top_k.keys, count, rule.r, kind, record);
  } else {
    write_list(row, nullptr, 0, rule.r, kind, record);
  }
}

/// The grid is exact: at most 65,535 * 2,048 blocks.
template <class Type, class Memory>
__global__ __launch_bounds__(
    shard_threads,
    Memory::blocks_per_multiprocessor) void accept_shard_kernel(shard_params const p) {
  __shared__ Memory memory;
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
  contribute<Type, Memory>(p, request.request, position, b, node, memory, record);
}

}  // namespace

status accept_shard(support::accept_shard_call const& call) noexcept {
  shard_params const params{
      call, rules::accept_layout(call.shape, call.how.max_top_k, call.options.shard_log_prob),
      rules::in_order(call.ranges)};
  bool const samples = call.how.temperature != nullptr;
  return for_logits_type(call.shard.type, [&]<class Type>(Type) {
    return launch(call.ctx,
                  samples ? accept_shard_kernel<Type, sampled_memory>
                          : accept_shard_kernel<Type, greedy_memory>,
                  {call.shape.batch * call.shape.width(), shard_threads, 0}, params);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
