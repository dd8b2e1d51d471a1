// SPDX-License-Identifier: Apache-2.0
// The best key of a row: logits, or scaled logits with their noise.
#pragma once

#include "accept/target_row.cuh"
#include "common/block.cuh"
#include "common/fast_exp.cuh"
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

  /// The key is finite.
  __device__ void offer(float other_key, token_t other_id) {
    if (other_key < key || (other_key == key && other_id > id)) return;
    key = other_key;
    id = other_id;
  }

  /// Raises the bar to what the lanes have that come by together.
  __device__ void share(unsigned lanes) {
    std::uint32_t const largest = __reduce_max_sync(lanes, rules::order_key(key));
    bar = fmaxf(bar, rules::float_from_order_key(largest));
  }

  /// Raises the bar to what other warps told, and tells what the lanes have. `bar_of_block` is the
  /// order_key of a bar, in shared memory.
  __device__ void ask(std::uint32_t* bar_of_block) {
    unsigned const lanes = __activemask();
    int const first = __ffs(static_cast<int>(lanes)) - 1;
    // Nothing is written: it reads what others may be raising.
    std::uint32_t key = lane_index() == first ? atomicMax(bar_of_block, 0u) : 0;
    key = __shfl_sync(lanes, key, first);
    bar = fmaxf(bar, rules::float_from_order_key(key));
  }
  __device__ void tell(unsigned lanes, std::uint32_t* bar_of_block) const {
    if (lane_index() == __ffs(static_cast<int>(lanes)) - 1) {
      atomicMax(bar_of_block, rules::order_key(bar));
    }
  }

  /// The best of a block is the largest of these; 0 where there is none.
  __device__ std::uint64_t candidate() const {
    return id < 0 ? 0 : rules::candidate_key(key, static_cast<std::uint32_t>(id));
  }
};

/// Offers the largest of a packet, of several the first.
template <int Width>
__device__ void offer_largest(float const (&x)[Width], std::int32_t first_id,
                              best_of_thread& best) {
  float const largest = maximum(x);
  if (!(largest > rules::minus_infinity)) return;
  int at = 0;
#pragma unroll
  for (int j = Width - 1; j >= 0; --j) at = x[j] == largest ? j : at;
  best.offer(largest, first_id + at);
}

/// Notes which packet has the largest logit, and admits none but those with NaN or +inf: ids are
/// looked up at the end.
template <class Type>
struct largest_packet {
  float largest = rules::minus_infinity;
  std::int32_t first_column = -1;

  __device__ bool admits(uint4 const& raw, std::int32_t column) {
    float const own = largest_or_nan<Type>(raw);
    bool const is_larger = own > largest && own <= rules::largest_float;
    largest = is_larger ? own : largest;
    first_column = is_larger ? column : first_column;
    return !(own <= rules::largest_float);
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

/// A value below the bar by more than keys near it are rounded, and by the margin of noise_bound.
__device__ inline float below(float bar) { return bar - fmaf(fabsf(bar), 0x1p-22f, 0x1p-9f); }

/// Whether z with the noise of a word may reach the bar that `low` is below of: q <= exp(z - bar).
/// The upper 23 bits of the word make up a float that is no larger than 1 + q.
__device__ inline bool may_reach(float low, float z, std::uint32_t word) {
  constexpr float log2e = 0x1.715476p+0f;
  float const share = fast_exp2((z - low) * log2e);
  return rules::float_from_bits(word >> 9 | 0x3f800000u) <= 1.0f + share;
}

/// Offers those that may win exactly, the most promising of each lane first.
template <int Width>
__device__ void offer_exactly(float const (&z)[Width], std::uint32_t const (&word)[Width],
                              std::int32_t first_id, unsigned lanes, best_of_thread& best) {
  float bound[Width];
#pragma unroll
  for (int j = 0; j < Width; ++j) {
    float const most = rules::add(z[j], noise_bound(word[j]));
    // Of -inf and the word 0 that is NaN.
    bound[j] = z[j] == rules::minus_infinity ? rules::minus_infinity : most;
  }
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
      best.offer(rules::add(own, rules::gumbel_from_word(own_word)), first_id + at);
    }
    __syncwarp(lanes);
    best.share(lanes);
  }
}

}  // namespace noise_impl

/// Offers scaled logits with their noise; -inf is never taken.
///
/// Few tokens get further than a test that costs one exponential, and of those few further than a
/// bound of their key, which saves two logarithms each. Lanes tell one another what they have
/// found, and the other warps: a lane alone would go on to raise its own bar, and a warp waits for
/// each of them. Lanes that have left the loop over packets take no part.
template <int Width>
__device__ void offer_with_noise(float const (&z)[Width], std::int32_t first_id,
                                 draw_seed const& seed, best_of_thread& best,
                                 std::uint32_t* bar_of_block) {
  static_assert(Width % 4 == 0);
  best.ask(bar_of_block);
  if (rules::add(maximum(z), rules::largest_noise) < best.bar) return;
  std::uint32_t word[Width];
#pragma unroll
  for (int four = 0; four < Width; four += 4) {
    std::uint32_t own[4];
    noise_impl::load_words(seed, static_cast<std::uint32_t>(first_id + four), own);
#pragma unroll
    for (int i = 0; i < 4; ++i) word[four + i] = own[i];
  }
  bool may_win = false;
  float const low = noise_impl::below(best.bar);
#pragma unroll
  for (int j = 0; j < Width; ++j) may_win = may_win | noise_impl::may_reach(low, z[j], word[j]);
  unsigned const lanes = __activemask();
  if (!__any_sync(lanes, may_win)) return;
  noise_impl::offer_exactly(z, word, first_id, lanes, best);
  best.tell(lanes, bar_of_block);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
