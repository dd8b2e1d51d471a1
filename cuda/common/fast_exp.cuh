// SPDX-License-Identifier: Apache-2.0
// Exponentials whose bits are the hardware's: for sums that decide nothing, and for tests with a
// margin.
#pragma once

#include "rules/arith.hpp"
#include "rules/log_sum_exp.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// 2^x, to 2^-22 of it; what would be subnormal is 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// e^x for x <= 0, to 2^-22 of e^x and 2^-24 |x|; what would be subnormal is 0. __expf would spend
/// three more instructions on subnormals.
__device__ inline float fast_exp(float x) { return fast_exp2(rules::mul(x, rules::log2_of_e)); }

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
