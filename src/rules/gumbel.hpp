// SPDX-License-Identifier: Apache-2.0
// Gumbel noise of a (seed, position, token): the argmax of z + g over tokens is a sample of
// softmax(z) (Gumbel-max). It depends on nothing else, so that a tree, a chain and plain decoding
// draw the same token at a position, in any order and on either backend.
#pragma once

#include "rules/arith.hpp"
#include "rules/hd.hpp"
#include "rules/math.hpp"
#include "rules/philox.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// smallest_noise < g < largest_noise: a token with z + largest_noise below the best key so far
// cannot win, and needs no noise. (The extremes are -2.8116 and 22.8739.)
inline constexpr float smallest_noise = -2.9f;
inline constexpr float largest_noise = 22.9f;

// The four words of tokens 4 * block .. 4 * block + 3. One Philox call for four ids: one per id
// measured 2.2 times slower. `position` is that of the token being chosen.
DDTREE_HD constexpr philox_counter noise_block(std::uint64_t seed, std::int64_t position,
                                               std::uint32_t block) noexcept {
  auto const p = static_cast<std::uint64_t>(position);
  // "DDTR": keeps the stream apart from other users of the same seed.
  constexpr std::uint32_t purpose = 0x44445452u;
  return philox4x32(
      {{block, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32), purpose}},
      {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}});
}

// A uniform word as a standard Gumbel variate, g = -ln(-ln(1 - q)), within 8e-6 of the exact value
// (most of it from rounding 1 - q at q just above 2^-8).
DDTREE_HD inline float gumbel_from_word(std::uint32_t word) noexcept {
  float const raw = mul(add(static_cast<float>(word), 0.5f), 0x1p-32f);
  float const q = raw < 0x1.fffffep-1f ? raw : 0x1.fffffep-1f;
  // Small q are the large g that win: 1 - q would lose their bits, the series keeps them (relative
  // error 2^-26).
  float const series = mul(q, add(1.0f, mul(q, add(0.5f, mul(q, 1.0f / 3.0f)))));
  // The argument of plog is chosen first, so that a warp runs it once.
  float const e = q < 0x1p-8f ? series : -plog(sub(1.0f, q));
  return -plog(e);
}

// g of one token. Loops over a row take noise_block once per four ids.
DDTREE_HD inline float noise(std::uint64_t seed, std::int64_t position,
                             std::uint32_t token) noexcept {
  philox_counter const block = noise_block(seed, position, token >> 2);
  // Selects keep the block in registers on devices.
  std::uint32_t const even = (token & 2u) != 0 ? block.word[2] : block.word[0];
  std::uint32_t const odd = (token & 2u) != 0 ? block.word[3] : block.word[1];
  return gumbel_from_word((token & 1u) != 0 ? odd : even);
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
