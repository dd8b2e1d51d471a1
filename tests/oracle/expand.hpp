// SPDX-License-Identifier: Apache-2.0
// Expansion restated: decode, sort all of the row, normalise in long double. Nothing of the library
// is used.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace oracle::expand {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float largest = std::numeric_limits<float>::max();

/// A float of 1 sign bit, `exponent_bits` and `fraction_bits`, from its definition.
inline float decode(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  auto const fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1));
  double const sign = (bits >> (exponent_bits + fraction_bits) & 1u) != 0 ? -1.0 : 1.0;
  double const unit = std::ldexp(1.0, -fraction_bits);
  double magnitude = std::ldexp(1.0 + fraction * unit, exponent - bias);
  if (exponent == 0) magnitude = std::ldexp(fraction * unit, 1 - bias);
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = fraction != 0.0 ? std::numeric_limits<double>::quiet_NaN()
                                : std::numeric_limits<double>::infinity();
  }
  return static_cast<float>(sign * magnitude);
}

inline float decode_f32(std::uint32_t bits) { return decode(bits, 8, 23); }
inline float decode_f16(std::uint32_t bits) { return decode(bits, 5, 10); }
inline float decode_bf16(std::uint32_t bits) { return decode(bits, 8, 7); }

/// What expand knows of a row beside its logits.
struct rule {
  std::int64_t vocab = 0;  // the target's
  int top_k = 0;
  float temperature = 1.0f;
  std::vector<std::int64_t> vocab_map;  // by draft id, empty = none
  std::vector<float> bias;              // by rank, empty = none
};

struct row {
  std::vector<std::int32_t> token;    // [top_k]
  std::vector<long double> log_prob;  // [top_k]
  /// How far a float result may be from log_prob: the roundings of z - lse, and 1e-5.
  long double tolerance = 0.0L;
  bool met_nan = false;
  bool met_bad_id = false;
};

inline float reciprocal(float temperature) {
  if (!(temperature > 0.0f) || temperature > largest) return 1.0f;
  return std::min(1.0f / temperature, largest);
}

/// float(x) * r as a float, held to the finite range unless x is -inf.
inline float scaled(float x, float r) {
  if (x == -infinity) return x;
  return std::min(std::max(x * r, -largest), largest);
}

/// The draft ids that count, in order: by logit, then by id. Their logits are left in `x`.
inline std::vector<std::size_t> sorted_ids(std::vector<float>& x, rule const& how, row& out) {
  std::vector<std::size_t> ids;
  for (std::size_t id = 0; id < x.size(); ++id) {
    std::int64_t const token =
        how.vocab_map.empty() ? static_cast<std::int64_t>(id) : how.vocab_map[id];
    if (how.vocab_map.empty() && token >= how.vocab) break;  // padding
    if (token < -1 || token >= how.vocab) out.met_bad_id = true;
    if (token < 0 || token >= how.vocab) continue;
    if (std::isnan(x[id]) || x[id] == infinity) out.met_nan = true;
    if (std::isnan(x[id])) x[id] = -infinity;
    if (x[id] == infinity) x[id] = largest;
    if (x[id] > -infinity) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  return ids;
}

/// x: logits by draft id.
inline row expand_row(std::vector<float> x, rule const& how) {
  row out;
  auto const top_k = static_cast<std::size_t>(how.top_k);
  out.token.assign(top_k, 0);
  out.log_prob.assign(top_k, -std::numeric_limits<long double>::infinity());
  std::vector<std::size_t> const ids = sorted_ids(x, how, out);
  if (ids.empty()) return out;

  float const r = reciprocal(how.temperature);
  long double const max = scaled(x[ids[0]], r);
  // Small terms first.
  long double const sum =
      std::accumulate(ids.rbegin(), ids.rend(), 0.0L, [&](long double s, std::size_t id) {
        return s + std::exp(static_cast<long double>(scaled(x[id], r)) - max);
      });
  long double const lse = max + std::log(sum);
  long double before = 0.0L;
  long double size = std::fabs(lse);
  for (std::size_t rank = 0; rank < std::min(top_k, ids.size()); ++rank) {
    long double p = std::min(scaled(x[ids[rank]], r) - lse, 0.0L);
    size = std::max(size, std::fabs(p));
    // From half an ulp beyond the largest float on it is -inf, and no bias changes that.
    bool const is_finite = p > -(std::ldexp(1.0L, 128) - std::ldexp(1.0L, 103));
    if (!how.bias.empty() && is_finite) {
      long double const bias = std::isnan(how.bias[rank]) ? 0.0L : how.bias[rank];
      p = std::min(p + bias, before);
    }
    before = p;
    std::int64_t const id = static_cast<std::int64_t>(ids[rank]);
    out.token[rank] =
        static_cast<std::int32_t>(how.vocab_map.empty() ? id : how.vocab_map[ids[rank]]);
    out.log_prob[rank] = is_finite ? p : -std::numeric_limits<long double>::infinity();
  }
  out.tolerance = 1e-5L + size * 0x1p-22L;
  return out;
}

}  // namespace oracle::expand
