// SPDX-License-Identifier: Apache-2.0
// Selection over a row by one block, exact and without regard to the order in which threads run.
//
// A row is any type with
//   static constexpr int width;
//   template <int Threads, class Body> __device__ void for_each_packet(Body body) const;
// which calls body(std::int32_t first_id, float (&x)[width]) so that every column of the row stands
// in one packet of one thread: x[j] is the logit of id first_id + j, sanitised, or -inf where there
// is none. A body may change x. Rows are read again by every pass: the first from device memory,
// the others mostly from the L2 cache.
//
// A row of which other blocks have other columns also has
//   template <int Threads, class Mass> __device__ void combine(std::uint32_t* bins) const;
// which adds their bins to its own: a radix walk is then over the columns of all.
//
// Columns are compared as rules::candidate_key. The digits of a key are taken from the top: three
// of the logit, then three of the id. -inf is never selected.
//
// Every function here is called by all threads of the block, with the same arguments, and returns
// the same value to all; shared memory that it is given is free again on return.
#pragma once

#include "common/block.cuh"
#include "rules/dtype_convert.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// The least key of a finite logit.
inline constexpr std::uint64_t lowest_finite_key = std::uint64_t{0x00800000u} << 32;

inline constexpr int logit_digits = 3;
inline constexpr int all_digits = 6;
inline constexpr int max_bins = 2048;

/// 11, 11 and 10 bits of each half of a key.
__device__ constexpr int digit_bits(int digit) { return digit % 3 == 2 ? 10 : 11; }
__device__ constexpr int digit_shift(int digit) {
  return (digit < 3 ? 32 : 0) + (digit % 3 == 0 ? 21 : digit % 3 == 1 ? 10 : 0);
}

/// What a radix walk adds up: every column counts 1.
struct count_mass {
  using sum = std::uint32_t;
  static constexpr int words = 1;
  __device__ sum of(float) const { return 1; }
  static __device__ void add(std::uint32_t* bins, std::uint32_t bin, sum count) {
    atomicAdd(bins + bin, count);
  }
  static __device__ sum read(std::uint32_t const* bins, int bin) { return bins[bin]; }
  static __device__ void write(std::uint32_t* bins, int bin, sum value) { bins[bin] = value; }
};

/// Or weight(x), a 64-bit integer whose sum over the row stays below 2^64.
template <class Weight>
struct weight_mass {
  using sum = std::uint64_t;
  static constexpr int words = 2;
  Weight weight;

  __device__ sum of(float x) const { return weight(x); }
  static __device__ void add(std::uint32_t* bins, std::uint32_t bin, sum w) {
    // Shared memory has no 64-bit add: the low words carry into the high ones, whatever the order.
    auto const low = static_cast<std::uint32_t>(w);
    std::uint32_t const before = atomicAdd(bins + bin, low);
    std::uint32_t const carry = before + low < before ? 1u : 0u;
    atomicAdd(bins + max_bins + bin, static_cast<std::uint32_t>(w >> 32) + carry);
  }
  static __device__ sum read(std::uint32_t const* bins, int bin) {
    return std::uint64_t{bins[max_bins + bin]} << 32 | bins[bin];
  }
  static __device__ void write(std::uint32_t* bins, int bin, sum value) {
    bins[max_bins + bin] = static_cast<std::uint32_t>(value >> 32);
    bins[bin] = static_cast<std::uint32_t>(value);
  }
};

template <int Threads, class Mass>
struct walk_memory {
  std::uint32_t bins[Mass::words * max_bins];
  typename Mass::sum partial[warps_of<Threads>];
  typename Mass::sum above;
  typename Mass::sum at;
  int digit;
};

/// Keys from `floor` on weigh above + at; those whose digits are the ones of `floor` weigh `at`,
/// and the target is reached among them. Digits that the walk did not get to are 0 in `floor`.
template <class Sum>
struct radix_cut {
  std::uint64_t floor;
  Sum above;
  Sum at;
};

namespace select_impl {

template <int Threads, class Row, class Mass>
__device__ void fill_bins(Row const& row, std::uint64_t from, std::uint64_t prefix, int digit,
                          Mass const& mass, std::uint32_t* bins) {
  int const shift = digit_shift(digit);
  int const bits = digit_bits(digit);
  std::uint32_t const mask = (1u << bits) - 1u;
  for (int i = static_cast<int>(threadIdx.x); i < Mass::words * max_bins; i += Threads) bins[i] = 0;
  __syncthreads();
  row.template for_each_packet<Threads>([&](std::int32_t first_id, float(&x)[Row::width]) {
    // Neighbours that share a bin are added once: ties may put all columns into one.
    std::uint32_t run_bin = 0;
    typename Mass::sum run = 0;
#pragma unroll
    for (int j = 0; j < Row::width; ++j) {
      std::uint64_t const key =
          rules::candidate_key(x[j], static_cast<std::uint32_t>(first_id + j));
      // Two shifts: together they may be 64.
      bool const has_prefix = (key ^ prefix) >> shift >> bits == 0;
      if (key < from || !has_prefix) continue;
      std::uint32_t const bin = static_cast<std::uint32_t>(key >> shift) & mask;
      if (run != 0 && bin != run_bin) {
        Mass::add(bins, run_bin, run);
        run = 0;
      }
      run_bin = bin;
      run += mass.of(x[j]);
    }
    if (run != 0) Mass::add(bins, run_bin, run);
  });
  __syncthreads();
}

/// Finds the bin, from the top, where `above` and the bins so far reach the target.
template <int Threads, class Mass>
__device__ void find_bin(typename Mass::sum above, typename Mass::sum target,
                         walk_memory<Threads, Mass>& memory) {
  using sum = typename Mass::sum;
  constexpr int share = max_bins / Threads;
  static_assert(share * Threads == max_bins);
  int const top = max_bins - 1 - static_cast<int>(threadIdx.x) * share;
  sum own = 0;
#pragma unroll
  for (int i = 0; i < share; ++i) own += Mass::read(memory.bins, top - i);
  sum const after = above + block_scan<Threads>(own, plus{}, memory.partial);
  sum before = after - own;
  if (before < target && target <= after) {
    int bin = top;
    sum at = Mass::read(memory.bins, bin);
    while (before + at < target) {
      before += at;
      at = Mass::read(memory.bins, --bin);
    }
    memory.digit = bin;
    memory.above = before;
    memory.at = at;
  }
  if (threadIdx.x == Threads - 1 && after < target) {
    memory.digit = -1;
    memory.above = 0;
    memory.at = after;
  }
  __syncthreads();
}

}  // namespace select_impl

/// Walks down the digits of the keys from `from` on to where their mass, from the largest key down,
/// reaches `target` > 0. It stops after `Digits` digits, or as soon as no more than `enough` is
/// kept with the floor found so far. The floor is `from` where everything weighs less than the
/// target.
///
/// With logit_digits and a weight_mass the upper half of the floor is the rules::order_key of the
/// largest value t such that the values >= t weigh at least the target.
///
/// `cut` and `digit` let it go on from where something is known already: `above` weighs more than
/// the digits before `digit` of `cut.floor` say, and what begins with them reaches the target.
template <int Threads, int Digits, class Row, class Mass>
__device__ radix_cut<typename Mass::sum> radix_walk(Row const& row, std::uint64_t from,
                                                    typename Mass::sum target,
                                                    typename Mass::sum enough, Mass const& mass,
                                                    walk_memory<Threads, Mass>& memory,
                                                    radix_cut<typename Mass::sum> cut = {0, 0, 0},
                                                    int digit = 0) {
#pragma unroll 1
  for (; digit < Digits; ++digit) {
    select_impl::fill_bins<Threads>(row, from, cut.floor, digit, mass, memory.bins);
    if constexpr (requires { row.template combine<Threads, Mass>(memory.bins); }) {
      row.template combine<Threads, Mass>(memory.bins);
    }
    select_impl::find_bin<Threads, Mass>(cut.above, target, memory);
    cut.above = memory.above;
    cut.at = memory.at;
    if (memory.digit < 0) {
      cut.floor = from;
      break;
    }
    cut.floor |= static_cast<std::uint64_t>(memory.digit) << digit_shift(digit);
    if (cut.above + cut.at <= enough) break;
  }
  __syncthreads();
  if (cut.floor < from) cut.floor = from;
  return cut;
}

/// The key of the k-th best column: exactly k columns have a key from it on. Where the row has no
/// more than k finite logits, all of them do. Any k > 0.
template <int Threads, class Row>
__device__ std::uint64_t kth_key(Row const& row, std::uint32_t k, std::uint64_t from,
                                 walk_memory<Threads, count_mass>& memory) {
  return radix_walk<Threads, all_digits>(row, from, k, k, count_mass{}, memory).floor;
}

/// The largest logits of the groups that a thread's columns fall into, as a by-product of a pass.
/// The k-th largest of all groups is a lower bound of the k-th largest logit, and for k up to half
/// the number of groups a good one: on random rows fewer than 1.5 k columns reach it.
struct group_maxima {
  static constexpr int width = 4;
  float value[width] = {rules::minus_infinity, rules::minus_infinity, rules::minus_infinity,
                        rules::minus_infinity};

  template <int Width>
  __device__ void add(float const (&x)[Width]) {
#pragma unroll
    for (int j = 0; j < Width; ++j) value[j % width] = fmaxf(value[j % width], x[j]);
  }

  __device__ float largest() const {
    return fmaxf(fmaxf(value[0], value[1]), fmaxf(value[2], value[3]));
  }

  /// The groups of a block as a row.
  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    float x[width] = {value[0], value[1], value[2], value[3]};
    body(static_cast<std::int32_t>(threadIdx.x) * width, x);
  }
};

/// A key that at least k columns reach, or all finite ones.
template <int Threads>
__device__ std::uint64_t find_floor(group_maxima const& groups, std::uint32_t k,
                                    walk_memory<Threads, count_mass>& memory) {
  // Two digits are 22 bits of the logit.
  return radix_walk<Threads, 2>(groups, lowest_finite_key, k, k + k / 8, count_mass{}, memory)
      .floor;
}

/// How many keys there are from some key on, and how many of these have a larger logit than it.
struct key_counts {
  std::uint32_t from;
  std::uint32_t above;
};

/// Puts the keys from `from` on away, in any order. Beyond `capacity` they are dropped, and `from`
/// only says that there are more.
template <int Threads, class Row>
__device__ key_counts collect(Row const& row, std::uint64_t from, std::uint64_t* keys,
                              std::uint32_t capacity, key_counts& counts) {
  if (threadIdx.x == 0) counts = {0, 0};
  __syncthreads();
  float const least = rules::candidate_logit(from);
  row.template for_each_packet<Threads>([&](std::int32_t first_id, float(&x)[Row::width]) {
    bool any = false;
#pragma unroll
    for (int j = 0; j < Row::width; ++j) any = any | (x[j] >= least);
    if (!any) return;
    std::uint32_t hits = 0;
    std::uint32_t above = 0;
#pragma unroll
    for (int j = 0; j < Row::width; ++j) {
      auto const id = static_cast<std::uint32_t>(first_id + j);
      hits |= rules::candidate_key(x[j], id) >= from ? 1u << j : 0u;
      above += x[j] > least ? 1u : 0u;
    }
    if (above != 0) atomicAdd(&counts.above, above);
    if (hits == 0 || *const_cast<std::uint32_t volatile*>(&counts.from) > capacity) return;
    std::uint32_t at = atomicAdd(&counts.from, __popc(hits));
#pragma unroll
    for (int j = 0; j < Row::width; ++j) {
      if ((hits >> j & 1u) == 0) continue;
      auto const id = static_cast<std::uint32_t>(first_id + j);
      if (at < capacity) keys[at] = rules::candidate_key(x[j], id);
      ++at;
    }
  });
  __syncthreads();
  key_counts const total = counts;
  __syncthreads();
  return total;
}

/// Where a walk may begin that looks for the k-th key.
struct walk_start {
  radix_cut<std::uint32_t> cut;
  int digit;
};

/// Fewer than k columns of a row have a larger logit than `from`, and more have the same: with so
/// many ties the walk has to find an id. All ids are below `id_end`.
__device__ inline walk_start start_at_ids(std::uint64_t from, std::uint32_t above,
                                          std::uint32_t id_end) {
  std::uint64_t const floor = from >> 32 << 32;
  if (id_end > 1u << 21) return {{floor, above, 0}, logit_digits};
  // The first digit of such ids is all ones.
  return {{floor | std::uint64_t{0x7ff} << digit_shift(logit_digits), above, 0}, logit_digits + 1};
}

/// How many of `count` keys, best first, are larger.
__device__ inline std::uint32_t count_above(std::uint64_t const* keys, std::uint32_t count,
                                            std::uint64_t key) {
  std::uint32_t low = 0;
  while (low < count) {
    std::uint32_t const middle = (low + count) / 2;
    if (keys[middle] > key) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

/// Sorts keys in shared memory, largest first: a bitonic network. There must be room for the next
/// power of two.
template <int Threads>
__device__ void sort_descending(std::uint64_t* keys, std::uint32_t count) {
  std::uint32_t const thread = threadIdx.x;
  std::uint32_t size = 1;
  while (size < count) size *= 2;
  for (std::uint32_t i = count + thread; i < size; i += Threads) keys[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (std::uint32_t run = 2; run <= size; run *= 2) {
#pragma unroll 1
    for (std::uint32_t stride = run / 2; stride > 0; stride /= 2) {
      for (std::uint32_t pair = thread; pair < size / 2; pair += Threads) {
        std::uint32_t const i = 2 * pair - (pair & (stride - 1));
        std::uint64_t const a = keys[i];
        std::uint64_t const b = keys[i + stride];
        bool const descends = (i & run) == 0;
        if ((a < b) == descends) {
          keys[i] = b;
          keys[i + stride] = a;
        }
      }
      // Up to a stride of 32 the 32 pairs of a warp are 64 consecutive keys of its own.
      std::uint32_t const next = stride > 1 ? stride / 2 : run;
      if (stride <= 32 && next <= 32) {
        __syncwarp();
      } else {
        __syncthreads();
      }
    }
  }
  __syncthreads();
}

template <int Threads>
struct top_k_memory {
  static constexpr std::uint32_t capacity = 4096;
  union {
    walk_memory<Threads, count_mass> walk;
    std::uint64_t keys[capacity];
  };
  key_counts counts;
};

/// The best k <= 1024 columns of a row: memory.keys, best first. Returns how many there are, fewer
/// than k where the row has fewer finite logits. `from` is a key that at least k columns or all
/// finite ones reach; the fewer reach it, the better. All ids are below `id_end`.
template <int Threads, class Row>
__device__ std::uint32_t select_top_k(Row const& row, std::uint32_t k, std::uint64_t from,
                                      top_k_memory<Threads>& memory, std::uint32_t id_end = ~0u) {
  constexpr std::uint32_t capacity = top_k_memory<Threads>::capacity;
  key_counts const found = collect<Threads>(row, from, memory.keys, capacity, memory.counts);
  std::uint32_t count = found.from;
  if (count > capacity) {
    walk_start start{{0, 0, 0}, 0};
    if (static_cast<std::uint32_t>(from) == 0 && found.above < k) {
      start = start_at_ids(from, found.above, id_end);
    }
    auto const cut = radix_walk<Threads, all_digits>(row, from, k, capacity, count_mass{},
                                                     memory.walk, start.cut, start.digit);
    // Only where the row holds one key more than `capacity` times, as damaged input may.
    bool const has_copies = cut.above + cut.at > capacity;
    count = collect<Threads>(row, cut.floor + (has_copies ? 1 : 0), memory.keys, capacity,
                             memory.counts)
                .from;
    if (has_copies) {
      for (std::uint32_t i = count + threadIdx.x; i < k; i += Threads) memory.keys[i] = cut.floor;
      count = k;
    }
  }
  sort_descending<Threads>(memory.keys, count);
  return count < k ? count : k;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
