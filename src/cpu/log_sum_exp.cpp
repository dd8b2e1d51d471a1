// SPDX-License-Identifier: Apache-2.0
#include "cpu/log_sum_exp.hpp"

#include "rules/sampling.hpp"

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

/// 2^x for x <= 0: exactly 1 at 0, elsewhere within 2^-18; 2^-126 where it would be less, also for
/// -inf and NaN, which vanishes beside the 1 of the maximum. A sum needs neither the last bits nor
/// the monotony of rules::pexp2, which takes a third more time. x = n + f with |f| <= 1/2; 2^f is
/// a polynomial fitted to the relative error.
float exp2_in_sum(float x) {
  constexpr float round_shift = 0x1.8p23f;
  float const bounded = x > -126.0f ? x : -126.0f;
  float const shifted = rules::add(bounded, round_shift);
  float const f = rules::sub(bounded, rules::sub(shifted, round_shift));
  float p = 0x1.3a02d0p-7f;
  p = rules::add(rules::mul(p, f), 0x1.c9fc4ap-5f);
  p = rules::add(rules::mul(p, f), 0x1.ec0378p-3f);
  p = rules::add(rules::mul(p, f), 0x1.62e12cp-1f);
  p = rules::add(rules::mul(p, f), 1.0f);
  return rules::float_from_bits(rules::float_bits(p) + (rules::float_bits(shifted) << 23));
}

}  // namespace

void scale(logits_chunk& x, float r) {
  if (r == 1.0f) return;
  for (float& value : x.value) value = rules::scaled(value, r);
}

rules::exp_sum take_exp_sum(logits_chunk const& z, float max) {
  if (max < -rules::largest_float) return {};  // nothing but -inf
  // Lane by lane: the order of the additions is fixed, and it vectorises.
  constexpr index_t lanes = 16;
  float lane[lanes] = {};
  for (index_t i = 0; i < logits_chunk::size; i += lanes) {
    for (index_t j = 0; j < lanes; ++j) {
      float const x = rules::mul(rules::sub(z.value[i + j], max), rules::log2_of_e);
      lane[j] = rules::add(lane[j], exp2_in_sum(x));
    }
  }
  for (index_t half = lanes / 2; half > 0; half /= 2) {
    for (index_t j = 0; j < half; ++j) lane[j] = rules::add(lane[j], lane[half + j]);
  }
  return {max, lane[0]};
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
