// SPDX-License-Identifier: Apache-2.0
// Temperature, and the integer weights and thresholds of top-k, top-p and min-p. Sums and cuts are
// decided in integers, so that any order of summation keeps the same tokens.
#pragma once

#include "rules/arith.hpp"
#include "rules/hd.hpp"
#include "rules/math.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// Sampling is greedy at a temperature of 0 or below. NaN and +inf count as 1, which is not.
DDTREE_HD constexpr bool is_greedy(float temperature) noexcept { return temperature <= 0.0f; }

// 1 / temperature rounded once; a temperature not finite or not positive counts as 1. A subnormal
// one would give inf, and 0 * inf = NaN: the largest float stands in.
DDTREE_HD inline float reciprocal_temperature(float temperature) noexcept {
  bool const counts = temperature > 0.0f && temperature <= largest_float;
  float const r = div(1.0f, counts ? temperature : 1.0f);
  return r <= largest_float ? r : largest_float;
}

// x * r kept finite, so that a large logit is never confused with inf; -inf stays -inf.
DDTREE_HD inline float scaled(float x, float r) noexcept {
  float const z = mul(x, r);
  float const below = z > largest_float ? largest_float : z;
  float const bounded = below < -largest_float ? -largest_float : below;
  return x < -largest_float ? x : bounded;
}

DDTREE_HD constexpr bool is_top_k_off(std::int64_t top_k, std::int64_t vocab) noexcept {
  return top_k <= 0 || top_k >= vocab;
}
DDTREE_HD constexpr bool is_top_p_off(float top_p) noexcept { return !(top_p < 1.0f); }
DDTREE_HD constexpr bool is_min_p_off(float min_p) noexcept { return !(min_p > 0.0f); }

// W = softmax numerator relative to the maximum, in units of 2^-40: 2^40 at the maximum, where a
// sum over 2^22 tokens stays below 2^63. 0 for z = -inf.
DDTREE_HD inline std::uint64_t token_weight(float z, float z_max) noexcept {
  constexpr float log2e = 0x1.715476p0f;
  float const p = pexp2(mul(sub(z, z_max), log2e));
  return static_cast<std::uint64_t>(round_to_int64(mul(p, 0x1p40f)));
}

// Top-p keeps values, from the best down, until their inclusive sum reaches this; 1..total (0 for a
// total of 0).
DDTREE_HD inline std::uint64_t top_p_target(float top_p, std::uint64_t total) noexcept {
  std::uint64_t const target =
      ceil_to_uint64(mul(static_cast<double>(top_p), static_cast<double>(total)));
  std::uint64_t const at_least_one = target > 0 ? target : 1;
  return at_least_one < total ? at_least_one : total;
}

// Min-p keeps W >= this. Above 2^40 (min_p > 1) only the maximum stays, which always does.
DDTREE_HD inline std::uint64_t min_p_threshold(float min_p) noexcept {
  return ceil_to_uint64(mul(static_cast<double>(min_p), 0x1p40));
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
