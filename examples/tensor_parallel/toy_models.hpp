// SPDX-License-Identifier: Apache-2.0
// A target and a drafter whose logits are hashes of the last token, in quarters, so that ties
// across ranks are frequent. The drafter guesses the target's favourite three times out of four.
#pragma once

#include "ddtree/views.hpp"

#include "vocabulary.hpp"

#include <cstdint>

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}

inline ddtree::token_t favourite(ddtree::token_t last) {
  return static_cast<ddtree::token_t>(mix(static_cast<std::uint64_t>(last) + 99) %
                                      vocabulary::size);
}

inline std::uint64_t hash_of(ddtree::token_t last, ddtree::token_t id) {
  return mix(static_cast<std::uint64_t>(last * vocabulary::size + id));
}

inline float target_logit(ddtree::token_t last, ddtree::token_t id) {
  float const noise = static_cast<float>(hash_of(last, id) >> 59) / 4;
  return id == favourite(last) ? 14.0f : noise;
}

inline float draft_logit(ddtree::token_t last, ddtree::token_t id) {
  float const distortion = hash_of(id, last) % 4 == 0 ? 5.0f : 0.0f;
  return target_logit(last, id) - distortion;
}
