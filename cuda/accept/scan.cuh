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
  rules::exp_sum sums[warps_of<accept_threads>];
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

/// One thread's columns. Returns whether a NaN or +inf was among them.
template <bool Samples, class Type>
__device__ bool scan_columns(target_row<Type> const& row, row_query const& query,
                             best_of_thread& best, group_maxima& maxima, rules::exp_sum& sum) {
  using rules::log_prob_kind;
  constexpr int width = Type::width;
  rules::draw_rule const& rule = query.rule;
  log_prob_kind const kind = query.kind;
  bool const is_greedy = !Samples || rule.is_greedy;
  bool const has_filter = Samples && rule.has_filter;
  bool const has_noise = !is_greedy && !has_filter;
  draw_seed const seed{rule.seed, query.position};
  return row.template visit<accept_threads>(
      [&](float const(&x)[width]) {
        if (kind == log_prob_kind::given) add_to_sum(x, sum);
      },
      [&](std::int32_t first_id, float(&x)[width]) {
        if (is_greedy) offer_largest(x, first_id, best);
        if (has_filter) maxima.add(x);
        if (!has_noise && kind != log_prob_kind::processed) return;
#pragma unroll
        for (int j = 0; j < width; ++j) x[j] = rules::scaled(x[j], rule.r);
        if (kind == log_prob_kind::processed) add_to_sum(x, sum);
        if (has_noise) offer_with_noise(x, first_id, seed, best);
      });
}

}  // namespace scan_impl

/// Reads the row's part once. Without `Samples` the rule is greedy. put_sum(slice, sum) is called
/// in thread 0 with the sum of the logits that log-probs are of, if any: by slices where
/// `by_slice`, else of the whole part as if it were its first slice.
template <bool Samples, class Type, class PutSum>
__device__ row_scan scan_row(target_row<Type> const& row, row_query const& query, bool by_slice,
                             scan_memory& memory, PutSum put_sum) {
  bool const sums = query.kind != rules::log_prob_kind::none;
  int const step = sums && by_slice ? 1 : row.part.last - row.part.first;
  row_scan found;
  best_of_thread best;
  bool met_nan = false;
#pragma unroll 1
  for (int slice = row.part.first; slice < row.part.last; slice += step) {
    rules::exp_sum sum;
    bool const bad = scan_impl::scan_columns<Samples>(row.only({slice, slice + step}), query, best,
                                                      found.maxima, sum);
    met_nan = met_nan | bad;
    if (!sums) continue;
    sum = block_reduce<accept_threads>(sum, merge_exp_sums{}, memory.sums);
    if (threadIdx.x == 0) put_sum(slice, sum);
  }
  found.best = block_reduce<accept_threads>(row_best{best.candidate(), met_nan, 0}, better_row{},
                                            memory.best);
  return found;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
