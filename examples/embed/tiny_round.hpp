// SPDX-License-Identifier: Apache-2.0
// What the engines' examples share: one request on the CPU, with made-up logits, up to where an
// engine's own formats begin.
#pragma once

#include "ddtree/ddtree.hpp"

#include <cstdint>
#include <cstdio>
#include <vector>

struct tiny_round {
  static constexpr ddtree::round_shape shape{.vocab = 8, .depth = 3, .top_k = 2, .budget = 10};
  static constexpr std::size_t rows = static_cast<std::size_t>(shape.width());

  ddtree::context ctx = ddtree::context::cpu();
  std::vector<unsigned char> memory;
  ddtree::decoding_round round;
  std::int32_t cache_len[1] = {10};
  ddtree::batch_view batch{cache_len};

  /// Token 0 is the root; the drafter then expects 1 or 2, 3 or 4, 5 or 7.
  ddtree::status draft() {
    static float const logits[] = {0, 3, 2.5f, 0, 0,    0, 0, 0,  //
                                   0, 0, 0,    3, 2.5f, 0, 0, 0,  //
                                   0, 0, 0,    0, 0,    5, 0, 2};
    memory.resize(ddtree::decoding_round::bytes(ctx, shape));
    auto const s =
        ddtree::decoding_round::create(ctx, shape, {memory.data(), memory.size()}, &round);
    if (!s) return s;
    round.accepted_.bonus[0] = 0;
    return round.draft(batch, {logits, ddtree::dtype::f32}, round.accepted_.bonus, {}, {});
  }

  /// What the target says at each node: it looks at the node's own token only. It accepts 2, 4, 5.
  std::vector<std::int32_t> target_tokens() const {
    static constexpr std::int32_t next[] = {2, 3, 4, 5, 5, 0, 7, 0};
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < rows; ++i) tokens.push_back(next[round.tree.token[i]]);
    return tokens;
  }
};

/// The exit code of an example.
inline int report(ddtree::status const& s, bool as_expected) {
  if (!s) std::fprintf(stderr, "%s\n", s.message);
  if (s && !as_expected) std::fprintf(stderr, "not the expected tokens\n");
  return s && as_expected ? 0 : 1;
}
