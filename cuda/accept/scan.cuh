// SPDX-License-Identifier: Apache-2.0
// One pass over a row of target logits.
#pragma once

#include "accept/draw.cuh"
#include "accept/noise.cuh"
#include "accept/target_row.cuh"
#include "common/block.cuh"
#include "common/exp_sum.cuh"
#include "common/select.cuh"
#include "rules/draw.hpp"
#include "rules/log_sum_exp.hpp"
#include "rules/sampling.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What a thread or a block met.
struct row_best {
  std::uint64_t candidate = 0;  // as rules::candidate_key, of a rule without filters; 0 = none
  std::uint32_t met_nan = 0;
  std::uint32_t unused = 0;
};

struct better_row {
  __device__ row_best operator()(row_best const& a, row_best const& b) const {
    return {larger{}(a.candidate, b.candidate), a.met_nan | b.met_nan, 0};
  }
};

struct scan_memory {
  row_best best[warps_of<accept_threads>];
  std::uint32_t max[warps_of<accept_threads>];
  std::uint32_t bar;  // of all threads, as an order_key
  float sums[warps_of<accept_threads>];
};

/// Of all columns of the row in every thread, but for the maxima.
struct row_scan {
  row_best best;
  group_maxima maxima;  // of this thread's columns, of a rule with filters
};

/// What to look for in a row. `position` is that of the token to be drawn.
struct row_query {
  rules::draw_rule const& rule;
  index_t position;
  rules::log_prob_kind kind;
};

namespace scan_impl {

template <int Width>
__device__ void add_to_sum(float const (&y)[Width], rules::exp_sum& sum) {
  add_packet(sum, y, fmaxf(sum.max, maximum(y)));
}

/// The largest of one thread's columns of a plain row. Returns whether a NaN or +inf was among
/// them.
template <int Threads, class Type>
__device__ bool find_largest(target_row<Type> const& row, best_of_thread& best) {
  bool met_nan = false;
  row.for_each_span([&](logits_span<Type> const& span, std::int32_t begin) {
    float x[Type::width];
    largest_packet<Type> packet;
    span.template for_each_packet<Threads>(
        [&](std::int32_t column, float(&y)[Type::width]) {
          met_nan = met_nan | sanitize(y);
          offer_largest(y, begin + column, best);
        },
        packet);
    if (packet.first_column < 0) return;
    span.load_packet(packet.first_column, x);
    offer_largest(x, begin + packet.first_column, best);
  });
  return met_nan;
}

/// One thread's columns. Returns whether a NaN or +inf was among them.
template <bool Samples, int Threads, class Type>
__device__ bool scan_columns(target_row<Type> const& row, row_query const& query,
                             best_of_thread& best, group_maxima& maxima, rules::exp_sum& sum,
                             std::uint32_t* bar_of_block) {
  using rules::log_prob_kind;
  constexpr int width = Type::width;
  rules::draw_rule const& rule = query.rule;
  log_prob_kind const kind = query.kind;
  auto const look = [&](float const(&x)[width]) {
    if (kind == log_prob_kind::given) add_to_sum(x, sum);
  };
  auto const scale = [&](float(&x)[width]) {
#pragma unroll
    for (int j = 0; j < width; ++j) x[j] = rules::scaled(x[j], rule.r);
    if (kind == log_prob_kind::processed) add_to_sum(x, sum);
  };
  if constexpr (Samples) {
    if (rule.has_filter) {
      return row.template visit<Threads>(look, [&](std::int32_t, float(&x)[width]) {
        maxima.add(x);
        if (kind == log_prob_kind::processed) scale(x);
      });
    }
    if (!rule.is_greedy) {
      draw_seed const seed{rule.seed, query.position};
      return row.template visit<Threads, 1>(look, [&](std::int32_t first_id, float(&x)[width]) {
        scale(x);
        offer_with_noise(x, first_id, seed, best, bar_of_block);
      });
    }
  }
  if (kind == log_prob_kind::none && row.is_plain()) {
    return find_largest<Threads>(row, best);
  }
  return row.template visit<Threads, 2>(look, [&](std::int32_t first_id, float(&x)[width]) {
    offer_largest(x, first_id, best);
    if (kind == log_prob_kind::processed) scale(x);
  });
}

/// better_row over a warp.
__device__ inline row_best best_of_warp(row_best const& own) {
  auto const high = static_cast<std::uint32_t>(own.candidate >> 32);
  std::uint32_t const top = __reduce_max_sync(all_lanes, high);
  std::uint32_t const low = high == top ? static_cast<std::uint32_t>(own.candidate) : 0;
  return {std::uint64_t{top} << 32 | __reduce_max_sync(all_lanes, low),
          __reduce_or_sync(all_lanes, own.met_nan), 0};
}

/// better_row over the block. `partial` is free again after the next barrier.
template <int Threads>
__device__ row_best best_of_block(row_best own, row_best* partial) {
  own = best_of_warp(own);
  if (lane_index() == 0) partial[warp_index()] = own;
  __syncthreads();
  return best_of_warp(partial[lane_index() % warps_of<Threads>]);
}

struct add_floats {
  __device__ float operator()(float a, float b) const { return rules::add(a, b); }
};

/// The block's sum: one exponential a thread, then additions in a fixed order.
template <int Threads>
__device__ rules::exp_sum sum_of_block(rules::exp_sum const& own, scan_memory& memory) {
  std::uint32_t const key = block_reduce<Threads>(rules::order_key(own.max), larger{}, memory.max);
  float const max = rules::float_from_order_key(key);
  bool const is_empty = own.max == rules::minus_infinity;
  float const share = is_empty ? 0.0f : rules::mul(own.sum, fast_exp(rules::sub(own.max, max)));
  return {max, block_reduce<Threads>(share, add_floats{}, memory.sums)};
}

}  // namespace scan_impl

/// Reads the row's part once. Without `Samples` the rule is greedy. put_sum(slice, sum) is called
/// in thread 0 with the sum of the logits that log-probs are of, if any: by slices where
/// `by_slice`, else of the whole part as if it were its first slice.
template <bool Samples, int Threads = accept_threads, class Type, class PutSum>
__device__ row_scan scan_row(target_row<Type> const& row, row_query const& query, bool by_slice,
                             scan_memory& memory, PutSum put_sum) {
  bool const sums = query.kind != rules::log_prob_kind::none;
  int const step = sums && by_slice ? 1 : row.part.last - row.part.first;
  row_scan found;
  best_of_thread best;
  bool met_nan = false;
  if constexpr (Samples) {
    if (threadIdx.x == 0) memory.bar = 0;
    __syncthreads();
  }
#pragma unroll 1
  for (int slice = row.part.first; slice < row.part.last; slice += step) {
    rules::exp_sum sum;
    bool const bad = scan_impl::scan_columns<Samples, Threads>(
        row.only({slice, slice + step}), query, best, found.maxima, sum, &memory.bar);
    met_nan = met_nan | bad;
    if (!sums) continue;
    sum = scan_impl::sum_of_block<Threads>(sum, memory);
    if (threadIdx.x == 0) put_sum(slice, sum);
  }
  found.best = scan_impl::best_of_block<Threads>({best.candidate(), met_nan, 0}, memory.best);
  return found;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
