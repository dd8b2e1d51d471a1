// SPDX-License-Identifier: Apache-2.0
// How the target's token at a node is drawn from its logits.
#pragma once

#include "ddtree/accept.hpp"

#include "cpu/logits.hpp"
#include "rules/arith.hpp"

#include <cstdint>
#include <span>

namespace ddtree {
inline namespace v0 {
namespace cpu {

/// One request's parameters of `sampling`.
struct draw_rule {
  bool is_greedy = true;
  float r = 1.0f;  // 1 / temperature
  std::uint64_t seed = 0;
  index_t top_k = 0;  // the vocabulary where off
  float top_p = 1.0f;
  float min_p = 0.0f;
  filter_order order = filter_order::k_p_min;
  bool has_filter = false;  // never of a greedy request
};

draw_rule find_rule(sampling const& how, index_t request, index_t vocab);

/// The winner among the tokens offered so far: the largest key, of equal keys the lowest id.
struct best_token {
  float key = rules::minus_infinity;
  token_t id = -1;

  void offer(float other_key, token_t other_id) {
    // As unsigned, -1 is behind every id.
    bool const is_behind = static_cast<std::uint32_t>(other_id) >= static_cast<std::uint32_t>(id);
    if (other_key < key || (other_key == key && is_behind)) return;
    key = other_key;
    id = other_id;
  }
};

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
