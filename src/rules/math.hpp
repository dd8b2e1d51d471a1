// SPDX-License-Identifier: Apache-2.0
// Logarithm and exponential with the same bits everywhere: fixed polynomials in IEEE add, subtract
// and multiply, evaluated by Horner's rule. libm, CUDA's functions and the fast hardware ones all
// differ from one another and between releases. Coefficients: Remez exchange on the relative error,
// rounded to fp32, then improved ulp by ulp.
#pragma once

#include "rules/arith.hpp"
#include "rules/hd.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// ln x for normal x in [2^-126, 2^127].
//
// x = 2^k m with m in [sqrt(1/2), sqrt(2)), f = m - 1 (exact), and
// ln x = k ln2 + f - f^2/2 + f^3 P(f), P of degree 7 on [-0.2929, 0.4142], the reduction of Cephes'
// logf. ln2 is split so that k * ln2_high is exact. Approximation error 2^-27.3 relative;
// measured over every float: at most 0.86 ulp.
DDTREE_HD inline float plog(float x) noexcept {
  constexpr std::uint32_t sqrt_half = 0x3f3504f3u;
  constexpr float ln2_high = 0x1.63p-1f;
  constexpr float ln2_low = -0x1.bd0106p-13f;
  std::uint32_t const shifted = float_bits(x) - sqrt_half;
  float const k = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  float const f = sub(float_from_bits((shifted & 0x007fffffu) + sqrt_half), 1.0f);
  float p = -0x1.38b5d8p-4f;
  p = add(mul(p, f), 0x1.055bc4p-3f);
  p = add(mul(p, f), -0x1.0d858ap-3f);
  p = add(mul(p, f), 0x1.22da34p-3f);
  p = add(mul(p, f), -0x1.547250p-3f);
  p = add(mul(p, f), 0x1.99a00ap-3f);
  p = add(mul(p, f), -0x1.000226p-2f);
  p = add(mul(p, f), 0x1.555554p-2f);
  float const square = mul(f, f);
  // Small terms first.
  float tail = mul(mul(square, f), p);
  tail = add(tail, mul(k, ln2_low));
  tail = sub(tail, mul(square, 0.5f));
  return add(add(f, tail), mul(k, ln2_high));
}

// 2^x for x <= 0: exactly 1 at 0, never falling as x rises, 0 below -126 (and for -inf and NaN), so
// that no result is subnormal.
//
// x = n + f with f in [0, 1], 2^f = 1 + f Q(f), Q of degree 5. Approximation error 2^-27.5
// relative; measured over every float in [-126, 0]: at most 1.67 ulp, and monotone. The reduction
// to [-0.5, 0.5] would be more accurate (1.09 ulp) but not monotone: there f has more bits than the
// result, and the rounding of Q shows through.
// Branch-free: GCC turns a loop over it into SSE2 code (-O3 -fno-trapping-math).
DDTREE_HD inline float pexp2(float x) noexcept {
  // Adding 1.5 * 2^23 leaves n in the low mantissa bits, whatever x is. Just below 0, f = x + 1 is
  // rounded to a multiple of 2^-24; at odd integers f = 1, and Q(1) is exactly 1.
  constexpr float round_shift = 0x1.8p23f;
  float const shifted = add(sub(x, 0.5f), round_shift);
  float const f = sub(x, sub(shifted, round_shift));
  float q = 0x1.c54146p-13f;
  q = add(mul(q, f), 0x1.46d646p-10f);
  q = add(mul(q, f), 0x1.3d0b8cp-7f);
  q = add(mul(q, f), 0x1.c6890cp-5f);
  q = add(mul(q, f), 0x1.ebfd56p-3f);
  q = add(mul(q, f), 0x1.62e42cp-1f);
  float const power_of_f = add(mul(q, f), 1.0f);
  // n goes into the exponent; for x < -126 this wraps to rubbish that the select drops.
  float const result = float_from_bits(float_bits(power_of_f) + (float_bits(shifted) << 23));
  return x >= -126.0f ? result : 0.0f;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
