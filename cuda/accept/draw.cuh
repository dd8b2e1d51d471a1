// SPDX-License-Identifier: Apache-2.0
// Filters, and the draw among the tokens that they leave. All threads of the block call the
// functions here together and get the token.
#pragma once

#include "accept/noise.cuh"
#include "accept/team.cuh"
#include "common/block.cuh"
#include "common/select.cuh"
#include "rules/draw.hpp"
#include "rules/sampling.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Threads of a block that reads rows.
inline constexpr int accept_threads = 1024;

/// The weights of a request's tokens and what min_p says of them. Both min_p and top_k keep the
/// best so many, whichever comes first: that top_k is applied first makes no difference to min_k_p.
struct weigher {
  float r;
  float z_max;
  std::uint64_t least;  // of min_p, 0 = off
  bool min_p_first;

  __device__ weigher(rules::draw_rule const& rule, float x_max)
      : r(rule.r),
        z_max(rules::scaled(x_max, rule.r)),
        least(rules::is_min_p_off(rule.min_p) ? 0 : rules::min_p_threshold(rule.min_p)),
        min_p_first(rule.order == filter_order::min_k_p) {}

  __device__ bool passes_min_p(float z) const {
    return least == 0 || z == z_max || rules::token_weight(z, z_max) >= least;
  }

  /// What a logit weighs for top_p.
  __device__ std::uint64_t operator()(float x) const {
    float const z = rules::scaled(x, r);
    if (min_p_first && !passes_min_p(z)) return 0;
    return rules::token_weight(z, z_max);
  }
};

struct list_memory {
  std::uint64_t partial[warps_of<accept_threads>];
  std::uint64_t total;
  float cut;
};

/// Draws from `count` > 0 candidates, best first, of which the best top_k are all. There is at most
/// one per thread.
template <int Threads = accept_threads>
__device__ token_t draw_from_list(std::uint64_t const* keys, std::uint32_t count,
                                  rules::draw_rule const& rule, index_t position,
                                  list_memory& memory) {
  static_assert(max_top_k <= accept_threads && Threads <= accept_threads);
  bool const is_there = threadIdx.x < count;
  std::uint64_t const key = is_there ? keys[threadIdx.x] : 0;
  float const x = is_there ? rules::candidate_logit(key) : rules::minus_infinity;
  float const z = rules::scaled(x, rule.r);
  weigher const weight(rule, rules::candidate_logit(keys[0]));
  bool stays = is_there && weight.passes_min_p(z);
  if (!rules::is_top_p_off(rule.top_p)) {
    std::uint64_t const own = is_there ? weight(x) : 0;
    std::uint64_t const sum = block_scan<Threads>(own, plus{}, memory.partial);
    if (threadIdx.x == Threads - 1) memory.total = sum;
    __syncthreads();
    std::uint64_t const target = rules::top_p_target(rule.top_p, memory.total);
    // The best candidate weighs something: the target is reached in exactly one thread.
    if (sum - own < target && target <= sum) memory.cut = z;
    __syncthreads();
    stays = stays && z >= memory.cut;
  }
  std::uint64_t best = 0;
  if (stays) {
    std::uint32_t const id = rules::candidate_id(key);
    best = rules::candidate_key(rules::add(z, rules::noise(rule.seed, position, id)), id);
  }
  best = block_reduce<Threads>(best, larger{}, memory.partial);
  return static_cast<token_t>(rules::candidate_id(best));
}

/// The best k of the lists that the blocks of a team have, each `count` <= k keys, best first, at
/// `keys`: in every block at the pointer, best first. There is room for 2 max_top_k keys, and they
/// differ. `counts` is shared memory for a count of each block, unused since the last exchange.
__device__ inline std::uint64_t const* merge_lists(team& blocks, std::uint32_t k,
                                                   std::uint64_t* keys, std::uint32_t& count,
                                                   std::uint32_t* counts) {
  if (blocks.blocks() == 1) return keys;
  std::uint64_t* const merged = keys + max_top_k;
  auto const to = static_cast<int>(threadIdx.x);
  if (to < blocks.blocks()) blocks.peer(counts, to)[blocks.rank()] = count;
  blocks.barrier();
  if (threadIdx.x < count) {
    std::uint64_t const key = keys[threadIdx.x];
    std::uint32_t place = threadIdx.x;
    for (int i = 0; i < blocks.blocks(); ++i) {
      if (i != blocks.rank()) place += count_above(blocks.peer(keys, i), counts[i], key);
    }
    for (int i = 0; place < k && i < blocks.blocks(); ++i) blocks.peer(merged, i)[place] = key;
  }
  std::uint32_t total = 0;
  for (int i = 0; i < blocks.blocks(); ++i) total += counts[i];
  count = total < k ? total : k;
  blocks.barrier();
  return merged;
}

struct row_draw_memory {
  union {
    walk_memory<accept_threads, count_mass> counts;
    walk_memory<accept_threads, weight_mass<weigher>> weights;
  };
  std::uint64_t partial[warps_of<accept_threads>];
  std::uint32_t bar;
  team_slots<std::uint64_t> slots;
};

/// A row of which every block of a team has a part.
template <class Row>
struct team_row {
  static constexpr int width = Row::width;

  Row const& row;
  team& blocks;

  template <int Threads, int Batch = 4, class Body>
  __device__ void for_each_packet(Body body) const {
    row.template for_each_packet<Threads, Batch>(body);
  }

  /// Each block adds up a share of the bins and tells all.
  template <int Threads, class Mass>
  __device__ void combine(std::uint32_t* bins) const {
    int const count = blocks.blocks();
    if (count == 1) return;
    blocks.barrier();
    int const end = max_bins * (blocks.rank() + 1) / count;
    int bin = max_bins * blocks.rank() / count + static_cast<int>(threadIdx.x);
    for (; bin < end; bin += Threads) {
      typename Mass::sum total = 0;
      for (int i = 0; i < count; ++i) total += Mass::read(blocks.peer(bins, i), bin);
      for (int i = 0; i < count; ++i) Mass::write(blocks.peer(bins, i), bin, total);
    }
    blocks.barrier();
  }
};

namespace draw_impl {

/// The z down to which tokens stay, where the keys from `from` on are candidates.
template <class Row>
__device__ float find_top_p_cut(team_row<Row> const& row, std::uint64_t from, weigher const& weight,
                                float top_p, row_draw_memory& memory) {
  std::uint64_t total = 0;
  row.template for_each_packet<accept_threads, 1>(
      [&](std::int32_t first_id, float(&x)[Row::width]) {
#pragma unroll
        for (int j = 0; j < Row::width; ++j) {
          bool const counts =
              rules::candidate_key(x[j], static_cast<std::uint32_t>(first_id + j)) >= from;
          total += counts ? weight(x[j]) : 0;
        }
      });
  total = block_reduce<accept_threads>(total, plus{}, memory.partial);
  total = row.blocks.reduce(total, plus{}, memory.slots);
  std::uint64_t const target = rules::top_p_target(top_p, total);
  auto const cut = radix_walk<accept_threads, logit_digits>(
      row, from, target, std::uint64_t{0}, weight_mass<weigher>{weight}, memory.weights);
  return rules::scaled(rules::candidate_logit(cut.floor), weight.r);
}

}  // namespace draw_impl

/// Draws from a row that has a finite logit, the largest being x_max. `floor` is a key that at
/// least top_k columns or all finite ones reach. It takes a pass over the row per digit of a cut.
template <class Row>
__device__ token_t draw_from_row(team_row<Row> const& row, rules::draw_rule const& rule,
                                 index_t vocab, index_t position, float x_max, std::uint64_t floor,
                                 row_draw_memory& memory) {
  std::uint64_t from = lowest_finite_key;
  if (rule.top_k < vocab) {
    from =
        kth_key<accept_threads>(row, static_cast<std::uint32_t>(rule.top_k), floor, memory.counts);
  }
  weigher const weight(rule, x_max);
  float z_cut = rules::minus_infinity;
  if (!rules::is_top_p_off(rule.top_p)) {
    z_cut = draw_impl::find_top_p_cut(row, from, weight, rule.top_p, memory);
  }
  best_of_thread best;
  draw_seed const seed{rule.seed, position};
  if (threadIdx.x == 0) memory.bar = 0;
  __syncthreads();
  row.template for_each_packet<accept_threads, 1>(
      [&](std::int32_t first_id, float(&x)[Row::width]) {
#pragma unroll
        for (int j = 0; j < Row::width; ++j) {
          float const z = rules::scaled(x[j], rule.r);
          bool const stays =
              rules::candidate_key(x[j], static_cast<std::uint32_t>(first_id + j)) >= from &&
              z >= z_cut && weight.passes_min_p(z);
          x[j] = stays ? z : rules::minus_infinity;
        }
        offer_with_noise(x, first_id, seed, best, &memory.bar);
      });
  std::uint64_t const own =
      block_reduce<accept_threads>(best.candidate(), larger{}, memory.partial);
  return static_cast<token_t>(rules::candidate_id(row.blocks.reduce(own, larger{}, memory.slots)));
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
