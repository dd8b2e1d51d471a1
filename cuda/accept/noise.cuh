// SPDX-License-Identifier: Apache-2.0
// The best key of a row: logits, or scaled logits with their noise.
#pragma once

#include "accept/target_row.cuh"
#include "common/logits.cuh"
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

/// The best of a thread's columns.
struct best_of_thread {
  float key = rules::minus_infinity;
  token_t id = -1;
  /// Some thread of the block has a key from here on, or none has any: what stays below cannot win.
  float bar = -rules::largest_float;

  /// Of ids that ascend: what only equals the best comes too late.
  __device__ void offer(float other_key, token_t other_id) {
    if (!(other_key > key)) return;
    key = other_key;
    id = other_id;
  }

  /// Of ids in any order. The key is finite.
  __device__ void offer_unordered(float other_key, token_t other_id) {
    if (other_key < key || (other_key == key && other_id > id)) return;
    key = other_key;
    id = other_id;
  }

  /// Raises the bar to what the lanes have that come by together.
  __device__ void share(unsigned lanes) {
    std::uint32_t const largest = __reduce_max_sync(lanes, rules::order_key(key));
    bar = fmaxf(bar, rules::float_from_order_key(largest));
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

/// Leaves out packets whose logits, which nothing raises, cannot become the best. NaN and +inf are
/// let in. A warp looks at a packet if one lane needs to, so lanes tell one another what they have.
template <class Type>
struct largest_gate {
  best_of_thread& best;
  bool is_open;  // to all

  __device__ bool admits(uint4 const& raw) const {
    return is_open || !(largest_or_nan<Type>(raw) < best.bar);
  }
  __device__ void settle() const {
    if (is_open) return;
    unsigned const lanes = __activemask();
    if (__any_sync(lanes, best.key > best.bar)) best.share(lanes);
  }
};

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

namespace noise_impl {

/// What the noise of a word cannot exceed: -ln(1 - q) >= q, so that g <= -ln q. The margin of 2^-10
/// is ten times what the fast logarithm and the rounding of g add up to; inf for the word 0.
__device__ inline float noise_bound(std::uint32_t word) {
  constexpr float ln2 = 0x1.62e43p-1f;
  float log2_of_word;
  asm("lg2.approx.f32 %0, %1;" : "=f"(log2_of_word) : "f"(__uint2float_rn(word)));
  return fmaf(-ln2, log2_of_word, 32 * ln2 + 0x1p-10f);
}

}  // namespace noise_impl

/// Offers scaled logits with their noise; -inf is never taken.
///
/// Few tokens get further than a bound of their key, which saves two logarithms each. Lanes tell
/// one another what they have found: a lane alone would go on to raise its own bar, and a warp
/// waits for each of them. Lanes that have left the loop over packets take no part.
template <int Width>
__device__ void offer_with_noise(float const (&z)[Width], std::int32_t first_id,
                                 draw_seed const& seed, best_of_thread& best) {
  static_assert(Width % 4 == 0);
  if (rules::add(maximum(z), rules::largest_noise) < best.bar) return;
  std::uint32_t word[Width];
  float bound[Width];
#pragma unroll
  for (int four = 0; four < Width; four += 4) {
    std::uint32_t own[4];
    noise_impl::load_words(seed, static_cast<std::uint32_t>(first_id + four), own);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[four + i] = own[i];
      float const most = rules::add(z[four + i], noise_impl::noise_bound(own[i]));
      // Of -inf and the word 0 that is NaN.
      bound[four + i] = z[four + i] == rules::minus_infinity ? rules::minus_infinity : most;
    }
  }
  unsigned const lanes = __activemask();
#pragma unroll 1
  for (;;) {
    float const top = maximum(bound);
    if (!__any_sync(lanes, top >= best.bar)) return;
    if (top >= best.bar) {
      int at = 0;
      float own = z[0];
      std::uint32_t own_word = word[0];
#pragma unroll
      for (int j = 1; j < Width; ++j) {
        if (bound[j] != top) continue;
        at = j;
        own = z[j];
        own_word = word[j];
      }
#pragma unroll
      for (int j = 0; j < Width; ++j) bound[j] = j == at ? rules::minus_infinity : bound[j];
      best.offer_unordered(rules::add(own, rules::gumbel_from_word(own_word)), first_id + at);
    }
    __syncwarp(lanes);
    best.share(lanes);
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
