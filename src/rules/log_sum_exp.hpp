// SPDX-License-Identifier: Apache-2.0
// ln of a sum of exponentials, from parts.
#pragma once

#include "arith.hpp"
#include "hd.hpp"
#include "math.hpp"

namespace ddtree {
inline namespace v0 {
namespace rules {

inline constexpr float log2_of_e = 0x1.715476p0f;

// sum = Σ exp(z - max) over some of a row's logits; max is the largest of them. Empty as it starts.
struct exp_sum {
  float max = minus_infinity;
  float sum = 0.0f;
};

// One part's share of the sum over several with the maximum `max`. Exactly its sum where the
// maximum is its own; 0 for an empty part.
DDTREE_HD inline float rescaled(exp_sum const& part, float max) noexcept {
  return mul(part.sum, pexp2(mul(sub(part.max, max), log2_of_e)));
}

DDTREE_HD inline exp_sum merge(exp_sum const& a, exp_sum const& b) noexcept {
  float const max = a.max > b.max ? a.max : b.max;
  return {max, add(rescaled(a, max), rescaled(b, max))};
}

// Of a sum that is not empty.
DDTREE_HD inline float log_sum_exp(exp_sum const& s) noexcept { return add(s.max, plog(s.sum)); }

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
