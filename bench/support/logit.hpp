// SPDX-License-Identifier: Apache-2.0
// Logits as a pure function of row and column, the same on host and device but for the last bits of
// the logarithm and the cosine.
#pragma once

#include "ddtree/views.hpp"

#include "rules/dtype_convert.hpp"
#include "rules/hd.hpp"
#include "rules/philox.hpp"

#include <cmath>
#include <cstdint>

namespace bench {

enum class logit_kind {
  normal,      // N(0, 2.5)
  wide,        // N(0, 6): trees as deep as those of a good drafter
  peaked,      // N(0, 2.5) with eight tokens raised: the best has a probability of 0.6 to 0.85
  integers,    // N(0, 2.5) rounded to integers: heavy ties
  equal,       // the rest is adversarial: all logits alike,
  ascending,   // the best last,
  descending,  // the best first,
  one_hot,     // one token far above,
  stripe,      // all of the best in the columns that one thread of a block of 512 reads
};

constexpr char const* name(logit_kind kind) {
  constexpr char const* names[] = {"normal",    "wide",       "peaked",  "integers", "equal",
                                   "ascending", "descending", "one_hot", "stripe"};
  return names[static_cast<int>(kind)];
}

struct logit_rows {
  logit_kind kind = logit_kind::normal;
  ddtree::dtype type = ddtree::dtype::bf16;
  ddtree::index_t rows = 0, vocab = 0;
  std::uint32_t seed = 0;
};

DDTREE_HD inline ddtree::rules::philox_counter random_words(logit_rows const& r,
                                                            ddtree::index_t row,
                                                            ddtree::index_t column,
                                                            std::uint32_t stream) {
  return ddtree::rules::philox4x32(
      {{static_cast<std::uint32_t>(column), static_cast<std::uint32_t>(row),
        static_cast<std::uint32_t>(row >> 32), stream}},
      {{r.seed, 0x62656e63u}});
}

/// N(0, 1), by Box and Muller.
DDTREE_HD inline float normal_at(logit_rows const& r, ddtree::index_t row, ddtree::index_t column) {
  auto const random = random_words(r, row, column, 0);
  float const u = (static_cast<float>(random.word[0] >> 8) + 0.5f) * 0x1p-24f;
  float const v = static_cast<float>(random.word[1] >> 8) * 0x1p-24f;
  return std::sqrt(-2.0f * std::log(u)) * std::cos(6.2831853f * v);
}

DDTREE_HD inline float logit_at(logit_rows const& r, ddtree::index_t row, ddtree::index_t column) {
  float const along = static_cast<float>(column) / static_cast<float>(r.vocab);
  float const x = 2.5f * normal_at(r, row, column);
  switch (r.kind) {
    case logit_kind::wide: return 2.4f * x;
    case logit_kind::integers: return std::rint(x);
    case logit_kind::equal: return 1.0f;
    case logit_kind::ascending: return 20.0f * along - 10.0f;
    case logit_kind::descending: return 10.0f - 20.0f * along;
    case logit_kind::one_hot: return column == r.vocab / 3 ? 30.0f : 0.0f;
    case logit_kind::stripe: return column / 8 % 512 == 5 ? x + 30.0f : x;
    default: return x;
  }
}

inline constexpr int raised_tokens = 8;

/// The column of a peaked row's j-th raised token.
DDTREE_HD inline ddtree::index_t raised_column(logit_rows const& r, ddtree::index_t row, int j) {
  return static_cast<ddtree::index_t>(random_words(r, row, j, 1).word[0]) % r.vocab;
}
/// Its logit. With ln V + 2.5^2 / 2 for the log-sum-exp of the other tokens, the first one's odds
/// against them are 2 to 20, and each next one is e^2 times less probable.
DDTREE_HD inline float raised_logit(logit_rows const& r, ddtree::index_t row, int j) {
  float const u = static_cast<float>(random_words(r, row, 0, 2).word[0] >> 8) * 0x1p-24f;
  float const others = std::log(static_cast<float>(r.vocab)) + 3.125f;
  return others + std::log(2.0f + 18.0f * u) - 2.0f * static_cast<float>(j);
}

constexpr ddtree::index_t bytes_of(ddtree::dtype type) {
  return type == ddtree::dtype::f32 ? 4 : 2;
}

DDTREE_HD inline void store_logit(void* data, ddtree::dtype type, ddtree::index_t at, float x) {
  if (type == ddtree::dtype::f32) {
    static_cast<float*>(data)[at] = x;
  } else if (type == ddtree::dtype::bf16) {
    static_cast<std::uint16_t*>(data)[at] = ddtree::rules::float_to_bf16(x);
  } else {
    static_cast<std::uint16_t*>(data)[at] = ddtree::rules::float_to_f16(x);
  }
}

}  // namespace bench
