// SPDX-License-Identifier: Apache-2.0
// What a cluster does with a row that one reading is not enough for: one with NaN or infinities, or
// with so many ties that there is no room for them.
#pragma once

#include "ddtree/expand.hpp"

#include "common/exp_sum.cuh"
#include "common/select.cuh"
#include "expand/cluster_row.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {

#if __CUDA_ARCH__ >= 900

/// The strands of a block as a row for common/select.cuh.
template <class Type>
struct cluster_share {
  static constexpr int width = Type::width;

  row_packets<Type> row;
  row_team team;

  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    visit_strands([](std::int32_t) {},
                  [&](std::int32_t packet, float(&x)[width]) {
                    sanitize(x);
                    body(packet * width, x);
                  });
  }

  /// Calls body(packet, x) for the packets of each strand of this warp, and then after(first) with
  /// the first of this lane's.
  template <class After, class Body>
  __device__ void visit_strands(After after, Body body) const {
    constexpr int ahead = 4;
    std::int32_t const packets = row.count();
    cluster_impl::for_each_strand(team, [&](int, std::int32_t first) {
#pragma unroll 1
      for (std::int32_t at = first; at < packets; at += ahead * strand_stride) {
        uint4 raw[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          std::int32_t const packet = at + i * strand_stride;
          if (packet < row.whole()) raw[i] = row.load(packet);
        }
#pragma unroll 1
        for (int i = 0; i < ahead && at + i * strand_stride < packets; ++i) {
          std::int32_t const packet = at + i * strand_stride;
          uint4 one = raw[0];
#pragma unroll
          for (int j = 1; j < ahead; ++j) {
            if (j == i) one = raw[j];
          }
          if (packet >= row.whole()) one = row.load_part();
          float x[width];
          unpack<Type>(one, x);
          body(packet, x);
        }
      }
      after(first);
    });
  }

  /// Each block adds up a share of the bins and tells all.
  template <int Threads, class Mass>
  __device__ void combine(std::uint32_t* bins) const {
    std::uint32_t const blocks = team.blocks();
    cluster_sync();
    std::uint32_t const share = max_bins >> team.log2_blocks;
    for (std::uint32_t i = threadIdx.x; i < share; i += Threads) {
      auto const bin = static_cast<int>(share * team.rank + i);
      typename Mass::sum total = 0;
#pragma unroll
      for (std::uint32_t b = 0; b < max_cluster; ++b) {
        if (b < blocks) total += Mass::read(in_block(bins, b), bin);
      }
#pragma unroll
      for (std::uint32_t b = 0; b < max_cluster; ++b) {
        if (b < blocks) Mass::write(in_block(bins, b), bin, total);
      }
    }
    cluster_sync();
  }
};

/// memory.sum as the generic variant has it. Returns the flags of the row.
template <class Type>
__device__ std::uint32_t sum_again(row_packets<Type> const& row, float r, row_team const& team,
                                   cluster_memory& memory) {
  std::uint32_t const blocks = team.blocks();
  bool met = false;
  rules::exp_sum own;
  float max = rules::minus_infinity;
  auto const add = [&](std::int32_t, float(&x)[Type::width]) {
    met = sanitize(x) || met;
#pragma unroll
    for (int j = 0; j < Type::width; ++j) {
      x[j] = rules::scaled(x[j], r);
      max = fmaxf(max, x[j]);
    }
    add_packet(own, x, max);
  };
  auto const tell = [&](std::int32_t first) {
    for (int mask = 16; mask > 0; mask /= 2) own = rules::merge(own, shuffle_xor(own, mask));
    auto const lane = static_cast<std::uint32_t>(lane_index());
    if (lane < blocks) {
      *in_block(&memory.strands[first / 32], lane) = {own.max, 0.0f, own.sum, 0.0f};
    }
    own = {};
    max = rules::minus_infinity;
  };
  cluster_sync();  // all have read the strands
  cluster_share<Type>{row, team}.visit_strands(tell, add);
  met = __syncthreads_or(met) != 0;
  if (met && threadIdx.x < blocks) in_block(&memory, threadIdx.x)->met = true;
  cluster_sync();
  if (warp_index() == 0) {
    rules::exp_sum sum;
    for (int i = lane_index(); i < row_strands; i += 32) {
      sum = rules::merge(sum, {memory.strands[i].max, memory.strands[i].sum});
    }
    for (int mask = 16; mask > 0; mask /= 2) sum = rules::merge(sum, shuffle_xor(sum, mask));
    if (lane_index() == 0) {
      memory.sum = sum;
      memory.lse = rules::log_sum_exp(sum);
    }
  }
  __syncthreads();
  return memory.met ? flag::draft_nan : 0;
}

/// Adds the counts of all blocks up.
__device__ inline key_counts add_counts(key_counts own, row_team const& team,
                                        cluster_memory& memory) {
  cluster_sync();
  if (threadIdx.x < team.blocks()) {
    in_block(&memory, threadIdx.x)->all_counts[team.rank] = own;
  }
  cluster_sync();
  key_counts sum{0, 0};
  for (std::uint32_t b = 0; b < team.blocks(); ++b) {
    sum.from += memory.all_counts[b].from;
    sum.above += memory.all_counts[b].above;
  }
  return sum;
}

/// Leaves the best k in the lists and returns how many there are. `from` is a logit that at least k
/// reach.
template <class Type>
__device__ std::uint32_t select_again(row_packets<Type> const& row, std::uint32_t k, float from,
                                      row_team const& team, cluster_memory& memory) {
  cluster_share<Type> const share{row, team};
  std::uint64_t const lowest = rules::candidate_key(from, 0) >> 32 << 32;
  key_counts own = collect<cluster_threads>(share, lowest, memory.own, 0, memory.counts);
  walk_start start{{0, 0, 0}, 0};
  key_counts const all = add_counts(own, team, memory);
  if (all.above < k) {
    start = start_at_ids(lowest, all.above, static_cast<std::uint32_t>(row.columns));
  }
  auto const cut = radix_walk<cluster_threads, all_digits>(share, lowest, k, k, count_mass{},
                                                           memory.walk, start.cut, start.digit);
  own = collect<cluster_threads>(share, cut.floor, memory.own, cluster_memory::own_room,
                                 memory.counts);
  std::uint32_t const total = add_counts(own, team, memory).from;
  std::uint32_t begin = 0;
  for (std::uint32_t b = 0; b < team.rank; ++b) begin += memory.all_counts[b].from;
  if (threadIdx.x < team.blocks()) {
    in_block(&memory, threadIdx.x)->found[team.rank] = {begin, own.from};
  }
  for (std::uint32_t i = threadIdx.x; i < own.from << team.log2_blocks; i += cluster_threads) {
    std::uint32_t const at = i >> team.log2_blocks;
    *in_block(&memory.lists[begin + at], i & team.last()) = memory.own[at];
  }
  cluster_sync();
  return total;
}

#endif

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
