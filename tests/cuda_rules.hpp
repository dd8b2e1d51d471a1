// SPDX-License-Identifier: Apache-2.0
// Every rule that both backends agree on to the bit, as a function of 32 bits: what host and device
// code of it give can be compared as words.
#pragma once

#include "rules/arith.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/gumbel.hpp"
#include "rules/hd.hpp"
#include "rules/math.hpp"
#include "rules/sampling.hpp"
#include "rules/weight.hpp"

#include <cstdint>
#include <vector>

namespace ddtree_test {

enum class rule : int {
  plog,
  pexp2,
  gumbel,
  noise,
  from_f16,
  from_bf16,
  to_f16,
  to_bf16,
  round_float,
  round_double,
  ceil_double,
  candidate_key,
  division,
  reciprocal_temperature,
  scaled,
  token_weight,
  top_p_target,
  path_weight,
};
inline constexpr int num_rules = 18;

/// Bits mixed, for a second argument.
DDTREE_HD inline std::uint64_t mixed(std::uint32_t bits) {
  return (std::uint64_t{bits} + 1) * 0x9e3779b97f4a7c15u;
}

DDTREE_HD inline double double_of(std::uint32_t bits) {
  // Of either sign, 2^-40 to 2^62 or so.
  double const fraction = static_cast<double>(mixed(bits) >> 11) * 0x1p-53 + 1.0;
  int const exponent = static_cast<int>(bits % 100) - 40;
  double scale = 1.0;
  for (int i = 0; i < exponent; ++i) scale *= 2.0;
  for (int i = 0; i > exponent; --i) scale *= 0.5;
  double const x = ddtree::rules::mul(fraction, scale);
  return (bits & 1024u) != 0 ? -x : x;
}

/// The result's bits; 0 where the input is outside the rule's domain.
DDTREE_HD inline std::uint64_t evaluate(rule which, std::uint32_t bits) {
  namespace rules = ddtree::rules;
  float const x = rules::float_from_bits(bits);
  float const y = rules::float_from_bits(static_cast<std::uint32_t>(mixed(bits) >> 32));
  bool const is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  bool const is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  auto const half = static_cast<std::uint16_t>(bits >> 16);
  switch (which) {
    case rule::plog:
      return x >= 0x1p-126f && x <= 0x1p127f ? rules::float_bits(rules::plog(x)) : 0;
    case rule::pexp2: return x <= 0.0f ? rules::float_bits(rules::pexp2(x)) : 0;
    case rule::gumbel: return rules::float_bits(rules::gumbel_from_word(bits));
    case rule::noise:
      return rules::float_bits(
          rules::noise(mixed(bits), static_cast<std::int64_t>(mixed(bits) >> 24), bits));
    case rule::from_f16:
      return (half & 0x7fffu) <= 0x7c00u ? rules::float_bits(rules::f16_to_float(half)) : 0;
    case rule::from_bf16: return rules::float_bits(rules::bf16_to_float(half));
    case rule::to_f16: return rules::float_to_f16(x);
    case rule::to_bf16: return rules::float_to_bf16(x);
    case rule::round_float:
      return x > -0x1p63f && x < 0x1p63f ? static_cast<std::uint64_t>(rules::round_to_int64(x)) : 0;
    case rule::round_double: return static_cast<std::uint64_t>(rules::round_to_int64(double_of(bits)));
    case rule::ceil_double: return rules::ceil_to_uint64(double_of(bits));
    case rule::candidate_key:
      return is_nan ? 0 : rules::candidate_key(x, static_cast<std::uint32_t>(mixed(bits)));
    case rule::division:
      return is_finite && y > 0x1p-20f && y < 0x1p20f ? rules::float_bits(rules::div(x, y)) : 0;
    case rule::reciprocal_temperature: return rules::float_bits(rules::reciprocal_temperature(x));
    case rule::scaled: {
      float const r = rules::reciprocal_temperature(y);
      return is_nan ? 0 : rules::float_bits(rules::scaled(x, r));
    }
    case rule::token_weight:
      return is_finite && x <= 0.0f ? rules::token_weight(x, 0.0f) : 0;
    case rule::top_p_target:
      return x > 0.0f && x < 1.0f ? rules::top_p_target(x, mixed(bits) >> 1) : 0;
    case rule::path_weight:
      return rules::selectable(x) && x <= 0.0f ? static_cast<std::uint64_t>(rules::weight(x)) : 0;
  }
  return 0;
}

/// evaluate(which, i * stride) for i = 0..count-1 on the current device. Throws where CUDA fails.
std::vector<std::uint64_t> evaluate_on_device(rule which, std::uint32_t stride, std::size_t count);

}  // namespace ddtree_test
