// SPDX-License-Identifier: Apache-2.0
// Draws the target's token at a node from its logits.
#pragma once

#include "ddtree/accept.hpp"

#include "cpu/logits.hpp"
#include "rules/draw.hpp"

#include <cstdint>
#include <span>

namespace ddtree {
inline namespace v0 {
namespace cpu {

using rules::best_token;
using rules::draw_rule;
using rules::find_rule;

/// Offers the scaled logits of ids first_id, first_id + 1, ... with their noise. Ids must ascend
/// from call to call; -inf is never taken.
void offer_with_noise(logits_chunk const& z, index_t first_id, draw_rule const& rule,
                      index_t position, best_token& best);

/// Draws from the candidates (as rules::candidate_key) that top_p and min_p leave; top_k has been
/// applied. At least one; they are reordered.
token_t draw(std::span<std::uint64_t> candidates, draw_rule const& rule, index_t position);

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
