// SPDX-License-Identifier: Apache-2.0
// The sum of exponentials over a row, packet by packet.
#pragma once

#include "common/block.cuh"
#include "common/fast_exp.cuh"
#include "rules/log_sum_exp.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// The sum of a power of two of values, in the order of a tree.
template <int Width>
__device__ float tree_sum(float (&part)[Width]) {
#pragma unroll
  for (int half = Width / 2; half > 0; half /= 2) {
#pragma unroll
    for (int j = 0; j < half; ++j) part[j] = rules::add(part[j], part[half + j]);
  }
  return part[0];
}

/// Adds a packet whose values are all at most `max`, which never falls from call to call; -inf
/// weighs nothing. Arithmetic that the compiler may not contract: it is inlined in several places,
/// which must give the same bits.
template <int Width>
__device__ void add_packet(rules::exp_sum& to, float const (&z)[Width], float max) {
  if (max > to.max) {
    to.sum = rules::mul(to.sum, fast_exp(rules::sub(to.max, max)));
    to.max = max;
  }
  if (max == rules::minus_infinity) return;
  float part[Width];
#pragma unroll
  for (int j = 0; j < Width; ++j) part[j] = fast_exp(rules::sub(z[j], max));
  to.sum = rules::add(to.sum, tree_sum(part));
}

struct merge_exp_sums {
  __device__ rules::exp_sum operator()(rules::exp_sum const& a, rules::exp_sum const& b) const {
    return rules::merge(a, b);
  }
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
