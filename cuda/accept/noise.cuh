// SPDX-License-Identifier: Apache-2.0
// The best key of a row: logits, or scaled logits with their noise.
#pragma once

#include "accept/target_row.cuh"
#include "common/fast_exp.cuh"
#include "rules/draw.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/gumbel.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What the noise of a token depends on, beside its id.
struct draw_seed {
  std::uint64_t seed;
  index_t position;  // of the token to be drawn
};

/// The best of a thread's columns, whose ids ascend: what only equals the best comes too late.
struct best_of_thread {
  float key = rules::minus_infinity;
  token_t id = -1;

  __device__ void offer(float other_key, token_t other_id) {
    if (!(other_key > key)) return;
    key = other_key;
    id = other_id;
  }

  /// The best of a block is the largest of these; 0 where there is none.
  __device__ std::uint64_t candidate() const {
    return id < 0 ? 0 : rules::candidate_key(key, static_cast<std::uint32_t>(id));
  }
};

template <int Width>
__device__ void offer_largest(float const (&x)[Width], std::int32_t first_id,
                              best_of_thread& best) {
  float const largest = maximum(x);
  if (!(largest > best.key)) return;
  int at = 0;
#pragma unroll
  for (int j = Width - 1; j >= 0; --j) at = x[j] == largest ? j : at;
  best.offer(largest, first_id + at);
}

namespace noise_impl {

__device__ inline void load_block(draw_seed const& seed, std::uint32_t block, std::uint32_t* word) {
  rules::philox_counter const four = rules::noise_block(seed.seed, seed.position, block);
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = four.word[i];
}

/// The random words of four ids from first_id on. A block serves the ids 4n..4n + 3; a shard may
/// begin inside of one.
__device__ inline void load_words(draw_seed const& seed, std::uint32_t first_id,
                                  std::uint32_t (&word)[4]) {
  load_block(seed, first_id / 4, word);
  std::uint32_t const skipped = first_id % 4;
  if (skipped == 0) return;
  std::uint32_t next[4];
  load_block(seed, first_id / 4 + 1, next);
  // Selects keep the words in registers.
#pragma unroll
  for (std::uint32_t step = 0; step < 3; ++step) {
    if (step >= skipped) break;
    std::uint32_t const moved = next[0];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      word[i] = word[i + 1];
      next[i] = next[i + 1];
    }
    word[3] = moved;
  }
}

}  // namespace noise_impl

/// Offers scaled logits with their noise; -inf is never taken.
///
/// A token can beat the best key only with g > best - z; as -ln(1 - q) >= q that needs
/// q < exp(z - best). The margin of 2^-10 is a hundred times what rounding and the fast exponential
/// add up to; nearly all tokens fall to this, which saves their two logarithms.
template <int Width>
__device__ void offer_with_noise(float const (&z)[Width], std::int32_t first_id,
                                 draw_seed const& seed, best_of_thread& best) {
  static_assert(Width % 4 == 0);
  float const largest = maximum(z);
  if (largest == rules::minus_infinity) return;
  if (rules::add(largest, rules::largest_noise) < best.key) return;
#pragma unroll
  for (int four = 0; four < Width; four += 4) {
    std::uint32_t word[4];
    noise_impl::load_words(seed, static_cast<std::uint32_t>(first_id + four), word);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float const own = z[four + i];
      float const below = fminf(rules::sub(own, best.key), 0.0f);
      float const bound = rules::mul(fast_exp(below), 0x1.004p32f);
      if (own == rules::minus_infinity || static_cast<float>(word[i]) > bound) continue;
      best.offer(rules::add(own, rules::gumbel_from_word(word[i])), first_id + four + i);
    }
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
