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

struct scan_memory {
  std::uint64_t best[warps_of<accept_threads>];
  rules::exp_sum sums[warps_of<accept_threads>];
};

/// Of the whole row in every thread, but for the maxima.
struct row_scan {
  std::uint64_t best;  // as rules::candidate_key, of a rule without filters; 0 = none
  bool met_nan;
  rules::exp_sum sum;   // of the logits that log-probs are of
  group_maxima maxima;  // of this thread's columns, of a rule with filters
};

template <int Width>
__device__ void add_to_sum(float const (&y)[Width], rules::exp_sum& sum) {
  add_packet(sum, y, fmaxf(sum.max, maximum(y)));
}

/// Reads the row once. Without `Samples` the rule is greedy. `position` is that of the token to be
/// drawn.
template <bool Samples, class Type>
__device__ row_scan scan_row(target_row<Type> const& row, rules::draw_rule const& rule,
                             index_t position, rules::log_prob_kind kind, scan_memory& memory) {
  using rules::log_prob_kind;
  constexpr int width = Type::width;
  bool const is_greedy = !Samples || rule.is_greedy;
  bool const has_filter = Samples && rule.has_filter;
  bool const has_noise = !is_greedy && !has_filter;
  draw_seed const seed{rule.seed, position};
  row_scan found;
  best_of_thread best;
  bool const met_nan = row.template visit<accept_threads>(
      [&](float const(&x)[width]) {
        if (kind == log_prob_kind::given) add_to_sum(x, found.sum);
      },
      [&](std::int32_t first_id, float(&x)[width]) {
        if (is_greedy) offer_largest(x, first_id, best);
        if (has_filter) found.maxima.add(x);
        if (!has_noise && kind != log_prob_kind::processed) return;
#pragma unroll
        for (int j = 0; j < width; ++j) x[j] = rules::scaled(x[j], rule.r);
        if (kind == log_prob_kind::processed) add_to_sum(x, found.sum);
        if (has_noise) offer_with_noise(x, first_id, seed, best);
      });
  found.met_nan = __syncthreads_or(met_nan) != 0;
  found.best = block_reduce<accept_threads>(best.candidate(), larger{}, memory.best);
  if (kind != log_prob_kind::none) {
    found.sum = block_reduce<accept_threads>(found.sum, merge_exp_sums{}, memory.sums);
  }
  return found;
}

/// The best k <= max_top_k of a row that has been scanned: memory.keys, best first.
template <class Type>
__device__ std::uint32_t select_best(target_row<Type> const& row, row_scan const& found, index_t k,
                                     top_k_memory<accept_threads>& memory) {
  auto const count = static_cast<std::uint32_t>(k);
  std::uint64_t const floor = find_floor<accept_threads>(found.maxima, count, memory.walk);
  return select_top_k<accept_threads>(row, count, floor, memory);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
