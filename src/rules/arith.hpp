// SPDX-License-Identifier: Apache-2.0
// Float arithmetic whose bits are the same on host and device: every operation is rounded to
// nearest and none is contracted into a fused multiply-add. nvcc contracts `a * b + c` by default,
// but never the *_rn intrinsics. On the host the library is compiled with -ffp-contract=off (GCC
// contracts by default where the target has FMA) and without any -ffast-math flag.
#pragma once

#include "rules/hd.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// std::bit_cast is a constexpr host function, which nvcc lets device code call only under
// --expt-relaxed-constexpr; the builtin needs no flag.
DDTREE_HD constexpr std::uint32_t float_bits(float x) noexcept {
  return __builtin_bit_cast(std::uint32_t, x);
}
DDTREE_HD constexpr float float_from_bits(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

inline constexpr float largest_float = 0x1.fffffep127f;
inline constexpr float minus_infinity = -__builtin_huge_valf();

#if defined(__CUDA_ARCH__)
DDTREE_HD inline float add(float a, float b) noexcept { return __fadd_rn(a, b); }
DDTREE_HD inline float sub(float a, float b) noexcept { return __fsub_rn(a, b); }
DDTREE_HD inline float mul(float a, float b) noexcept { return __fmul_rn(a, b); }
DDTREE_HD inline float div(float a, float b) noexcept { return __fdiv_rn(a, b); }
DDTREE_HD inline double add(double a, double b) noexcept { return __dadd_rn(a, b); }
DDTREE_HD inline double sub(double a, double b) noexcept { return __dsub_rn(a, b); }
DDTREE_HD inline double mul(double a, double b) noexcept { return __dmul_rn(a, b); }
DDTREE_HD inline double div(double a, double b) noexcept { return __ddiv_rn(a, b); }
#else
DDTREE_HD inline float add(float a, float b) noexcept { return a + b; }
DDTREE_HD inline float sub(float a, float b) noexcept { return a - b; }
DDTREE_HD inline float mul(float a, float b) noexcept { return a * b; }
DDTREE_HD inline float div(float a, float b) noexcept { return a / b; }
DDTREE_HD inline double add(double a, double b) noexcept { return a + b; }
DDTREE_HD inline double sub(double a, double b) noexcept { return a - b; }
DDTREE_HD inline double mul(double a, double b) noexcept { return a * b; }
DDTREE_HD inline double div(double a, double b) noexcept { return a / b; }
#endif

// Nearest integer, ties to even. |v| < 2^63.
DDTREE_HD inline std::int64_t round_to_int64(double v) noexcept {
#if defined(__CUDA_ARCH__)
  return __double2ll_rn(v);
#else
  // From 2^52 on every double is an integer. Below, adding and taking away 2^52 (of v's sign)
  // rounds in the adder, whatever the rounding of libm's functions or of the cast.
  double const shift = v < 0.0 ? -0x1p52 : 0x1p52;
  double const rounded = sub(add(v, shift), shift);
  bool const is_integer = !(-0x1p52 < v && v < 0x1p52);
  return static_cast<std::int64_t>(is_integer ? v : rounded);
#endif
}

// The same of a float. On devices one instruction without FP64, which is slow on sm_86, 89 and 120.
DDTREE_HD inline std::int64_t round_to_int64(float v) noexcept {
#if defined(__CUDA_ARCH__)
  return __float2ll_rn(v);
#else
  return round_to_int64(static_cast<double>(v));
#endif
}

// Least integer not below v; saturates at both ends, NaN gives 0.
DDTREE_HD inline std::uint64_t ceil_to_uint64(double v) noexcept {
  if (!(v > 0.0)) return 0;
  if (v >= 0x1p64) return ~std::uint64_t{0};
  auto const truncated = static_cast<std::uint64_t>(v);
  return truncated + (static_cast<double>(truncated) < v ? 1u : 0u);
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
