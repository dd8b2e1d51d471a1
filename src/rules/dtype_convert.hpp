// SPDX-License-Identifier: Apache-2.0
// Logits as fp32, and the order of logits as integers.
#pragma once

#include "rules/arith.hpp"
#include "rules/hd.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

DDTREE_HD constexpr float bf16_to_float(std::uint16_t bits) noexcept {
  return float_from_bits(static_cast<std::uint32_t>(bits) << 16);
}

// IEEE binary16. The bits of NaN are unspecified (sanitize drops it).
DDTREE_HD inline float f16_to_float(std::uint16_t bits) noexcept {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  // Selects instead of branches, so that a loop over a row vectorises. A subnormal goes through a
  // subtraction of normal floats, so that a host that flushes subnormals gets it right as well.
  std::uint32_t const magnitude = (bits & 0x7fffu) << 13;
  std::uint32_t const rebiased = magnitude + (112u << 23);
  float const subnormal = sub(float_from_bits(rebiased + (1u << 23)), 0x1p-14f);
  std::uint32_t const exponent = magnitude & 0x0f800000u;
  std::uint32_t const finite = exponent == 0 ? float_bits(subnormal) : rebiased;
  std::uint32_t const value = exponent == 0x0f800000u ? rebiased + (112u << 23) : finite;
  return float_from_bits(value | (static_cast<std::uint32_t>(bits & 0x8000u) << 16));
#endif
}

// Round to nearest even; past the largest finite value infinity, NaN stays NaN.
DDTREE_HD constexpr std::uint16_t float_to_bf16(float x) noexcept {
  std::uint32_t const bits = float_bits(x);
  bool const is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  std::uint32_t const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// Round to nearest even; past the largest finite value infinity, NaN stays NaN.
DDTREE_HD inline std::uint16_t float_to_f16(float x) noexcept {
  std::uint32_t const sign = float_bits(x) >> 31 << 15;
  std::uint32_t const magnitude = float_bits(x) & 0x7fffffffu;
  // Below 2^-14 the result counts in units of 2^-24, which are the ulp of 0.5: the adder rounds.
  std::uint32_t const small = float_bits(add(float_from_bits(magnitude), 0.5f)) - 0x3f000000u;
  std::uint32_t const normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t const finite = magnitude < 0x38800000u ? small : normal;
  // 65520 and more round to infinity.
  std::uint32_t const large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000u ? large : finite));
}

// NaN or +inf: a logit that sets the NaN flag. Signed compares, as SSE2 has no unsigned ones.
DDTREE_HD constexpr bool needs_sanitizing(float x) noexcept {
  auto const bits = static_cast<std::int32_t>(float_bits(x));
  return ((bits & 0x7fffffff) > 0x7f800000) | (bits == 0x7f800000);
}

// NaN counts as -inf, +inf as the largest finite float; everything else is left as it is.
DDTREE_HD constexpr float sanitize(float x) noexcept {
  auto const bits = static_cast<std::int32_t>(float_bits(x));
  float const bounded = bits == 0x7f800000 ? largest_float : x;
  return (bits & 0x7fffffff) > 0x7f800000 ? minus_infinity : bounded;
}

// The same; `met` becomes true if x was replaced, and is left alone otherwise.
DDTREE_HD constexpr float sanitize(float x, bool& met) noexcept {
  met = met | needs_sanitizing(x);
  return sanitize(x);
}

// Unsigned order of keys = order of floats, with -0 equal to +0. Not for NaN. The key of -inf is
// 0x007fffff, so that 0 and ~0 are free to mean "below all" and "above all".
DDTREE_HD constexpr std::uint32_t order_key(float x) noexcept {
  std::uint32_t const bits = float_bits(x);
  std::uint32_t const flip = (0u - (bits >> 31)) | 0x80000000u;
  return bits == 0x80000000u ? 0x80000000u : bits ^ flip;
}

// The float of a key; -0 comes back as +0.
DDTREE_HD constexpr float float_from_order_key(std::uint32_t key) noexcept {
  std::uint32_t const flip = ((key >> 31) - 1u) | 0x80000000u;
  return float_from_bits(key ^ flip);
}

// A larger key is the better candidate: logit descending, then id ascending. 0 is below the key of
// every logit that is not NaN.
DDTREE_HD constexpr std::uint64_t candidate_key(float logit, std::uint32_t id) noexcept {
  return static_cast<std::uint64_t>(order_key(logit)) << 32 | ~id;
}
DDTREE_HD constexpr float candidate_logit(std::uint64_t key) noexcept {
  return float_from_order_key(static_cast<std::uint32_t>(key >> 32));
}
DDTREE_HD constexpr std::uint32_t candidate_id(std::uint64_t key) noexcept {
  return ~static_cast<std::uint32_t>(key);
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
