// SPDX-License-Identifier: Apache-2.0
// The exact order of tree nodes: path weights as integers, and rank paths that compare as words.
#pragma once

#include "rules/arith.hpp"
#include "rules/hd.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// A path weight is the sum of its log-probs, each rounded to a multiple of 2^-44: integer sums are
// associative, so every schedule of a parallel build gives the same bits. 31 log-probs of -8192 sum
// to more than -2^62.
using weight_t = std::int64_t;

inline constexpr float lowest_log_prob = -8192.0f;
inline constexpr weight_t lowest_weight = INT64_MIN;

// Only finite log-probs from -8192 on are ever selected.
DDTREE_HD constexpr bool selectable(float log_prob) noexcept {
  return log_prob >= lowest_log_prob && log_prob <= largest_float;
}

// Of a selectable log-prob. Scaling by a power of two is exact, so this rounds once, to even.
DDTREE_HD inline weight_t weight(float log_prob) noexcept {
  return round_to_int64(mul(log_prob, 0x1p44f));
}

DDTREE_HD inline float to_log_weight(weight_t w) noexcept {
  return mul(static_cast<float>(w), 0x1p-44f);
}

// The threshold w >= min_weight(m) of the option min_log_weight. NaN and -inf mean none. No path
// weighs less than -2^18, so thresholds beyond +-2^18 are all alike and need no 64-bit overflow.
DDTREE_HD inline weight_t min_weight(float min_log_weight) noexcept {
  if (!(min_log_weight >= -0x1p18f)) return INT64_MIN;
  if (min_log_weight > 0x1p18f) return INT64_MAX;
  return weight(min_log_weight);
}

// The candidate ranks from the root to a node: 11-bit fields of rank + 1 (top_k <= 1024), five per
// word, the first depth in the highest bits, 0 where the path has ended. Comparing word by word is
// then the lexicographic order of paths, a prefix before its extensions. {} is the root.
struct rank_path {
  static constexpr int field_bits = 11;
  static constexpr int fields = 5;
  static constexpr int words = 7;
  std::uint64_t word[words];
};

// Bits of the field of a depth, 1..31, below it in its word.
DDTREE_HD constexpr int rank_shift(int depth) noexcept {
  return 64 - rank_path::field_bits * ((depth - 1) % rank_path::fields + 1);
}

// The path of the child of rank `rank` that stands at `depth`, 1..31; `parent` ends at depth - 1.
DDTREE_HD constexpr rank_path child(rank_path parent, int depth, int rank) noexcept {
  std::uint64_t const field = static_cast<std::uint64_t>(rank + 1) << rank_shift(depth);
  // Every word is touched, so that no index is dynamic and devices keep the path in registers.
  for (int w = 0; w < rank_path::words; ++w)
    parent.word[w] |= w == (depth - 1) / rank_path::fields ? field : 0;
  return parent;
}

// The rank at a depth, 1..31; -1 where the path has ended.
DDTREE_HD constexpr int rank_at(rank_path const& path, int depth) noexcept {
  std::uint64_t field = 0;
  for (int w = 0; w < rank_path::words; ++w)
    field = w == (depth - 1) / rank_path::fields ? path.word[w] : field;
  return static_cast<int>(field >> rank_shift(depth) & ((1u << rank_path::field_bits) - 1)) - 1;
}

// < 0, 0, > 0 as a stands before, at or after b.
DDTREE_HD constexpr int compare(rank_path const& a, rank_path const& b) noexcept {
  int order = 0;
  for (int w = rank_path::words - 1; w >= 0; --w)
    order = a.word[w] == b.word[w] ? order : (a.word[w] < b.word[w] ? -1 : 1);
  return order;
}

// Best-first order of nodes: weight descending, then path ascending. Strict and total.
DDTREE_HD constexpr bool precedes(weight_t a_weight, rank_path const& a, weight_t b_weight,
                                  rank_path const& b) noexcept {
  return a_weight != b_weight ? a_weight > b_weight : compare(a, b) < 0;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
