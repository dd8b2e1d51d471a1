// SPDX-License-Identifier: Apache-2.0
// The log-prob of a candidate, and what a rank contributes to an expansion over vocabulary shards.
#pragma once

#include "ddtree/expand.hpp"
#include "ddtree/views.hpp"

#include "rules/arith.hpp"
#include "rules/hd.hpp"
#include "rules/sampling.hpp"

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// r = 1 / temperature, lse that of the whole row.
DDTREE_HD inline float log_prob(float logit, float r, float lse) noexcept {
  float const p = sub(scaled(logit, r), lse);
  return p < 0.0f ? p : 0.0f;
}

// With the bias of its rank, never above the candidate before it (0 for the first). -inf stays.
DDTREE_HD inline float biased(float log_prob, float bias, float before) noexcept {
  float const sum = add(log_prob, bias == bias ? bias : 0.0f);
  float const bounded = sum < before ? sum : before;
  return log_prob >= -largest_float ? bounded : log_prob;
}

// Draft ids lie in [0, draft_ids): what a map translates, otherwise the target's.
DDTREE_HD constexpr index_t draft_ids(expand_options const& options, index_t vocab) noexcept {
  return options.vocab_map.data != nullptr ? options.draft_vocab : vocab;
}

// A contribution is five arrays of 4-byte elements, one after the other, filled up to a multiple of
// 16 bytes. Here: the first element of each.
struct expand_shard_layout {
  index_t logit;  // float [batch, depth, top_k], the shard's best, -inf where there are no more
  index_t id;     // int32 [batch, depth, top_k], draft ids: the vocab_map is applied in the merge
  index_t max;    // float [batch, depth], of the scaled logits, -inf where there is none
  index_t sum;    // float [batch, depth], of exp(z - max), 0 where there is none
  index_t flags;  // uint32 [batch]
  std::size_t bytes;
};

// What a contribution may say of its request; other bits are damage.
inline constexpr std::uint32_t contributed_flags = flag::draft_nan | flag::id_out_of_range;

DDTREE_HD constexpr expand_shard_layout expand_layout(round_shape const& shape) noexcept {
  index_t const rows = shape.batch * shape.depth;
  index_t const slots = rows * shape.top_k;
  index_t const flags = 2 * slots + 2 * rows;
  index_t const elements = (flags + shape.batch + 3) / 4 * 4;
  return {0, slots, 2 * slots, 2 * slots + rows, flags, static_cast<std::size_t>(elements) * 4};
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
