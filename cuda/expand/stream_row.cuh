// SPDX-License-Identifier: Apache-2.0
// One pass over a row by one block: the sum of exponentials, and every logit from a threshold on.
//
// A row is cut into 32 segments, each warp streaming some of them, 512 bytes of one after 512 bytes
// of the other. The first pieces of all are a sample spread over the row, from which a threshold is
// chosen that somewhat more than top_k logits should reach. What is selected does not depend on it:
// where fewer reach it, or more than there is room for, the row is read again by other means.
#pragma once

#include "common/block.cuh"
#include "common/exp_sum.cuh"
#include "common/fast_exp.cuh"
#include "common/logits.cuh"
#include "common/packet.cuh"
#include "rules/arith.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/log_sum_exp.hpp"
#include "rules/sampling.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline constexpr int stream_segments = 32;
inline constexpr int sample_bins = 256;

/// Room of a block: `Keys` logits that reach the threshold, sorted with the help of `Bins` bins.
template <int Threads_, int Keys_, int Bins_>
struct stream_room {
  static constexpr int threads = Threads_;
  static constexpr int warps = warps_of<Threads_>;
  static constexpr int keys = Keys_;
  static constexpr int bins = Bins_;
  static constexpr int packets_per_warp = 192;
};

template <class Room>
struct stream_memory {
  std::uint64_t keys[Room::keys];
  union {
    struct {
      std::uint32_t sample[sample_bins];
      std::uint32_t packets[Room::warps][Room::packets_per_warp];
    };
    std::uint64_t by_bin[Room::keys];
  };
  std::uint32_t bins[Room::bins];
  float segment[stream_segments];
  std::uint32_t scan[Room::warps];
  std::uint32_t least[Room::warps];
  std::uint32_t count;
  std::uint32_t overflow;
  float threshold;
};

/// The bin of a logit, 0 for the largest: monotone, and that is all that matters.
template <int Bins>
struct bin_scale {
  float threshold;
  float bins_per_unit;

  __device__ bin_scale(float least, float max)
      : threshold(least), bins_per_unit(Bins / (1.6f * (max - least))) {}

  __device__ int operator()(float x) const {
    float const place = (x - threshold) * bins_per_unit;
    int const up = place < static_cast<float>(Bins - 1) ? static_cast<int>(place) : Bins - 1;
    return Bins - 1 - up;
  }
};

/// What a block found in a row.
struct stream_result {
  bool complete;        // otherwise nothing else holds
  std::uint32_t count;  // of memory.keys, in any order: all logits from `threshold` on
  float threshold;
  float max;  // of the sample
  float sum;  // of 2^(x * scale - offset)
  float offset;
};

namespace stream_impl {

/// 2^(x * scale - offset), summed by segment: so the bits do not depend on how many warps share a
/// row.
template <int Segments>
struct power_sums {
  float scale;
  float offset;
  float sum[Segments] = {};

  __device__ float power(float x) const { return fast_exp2(__fmaf_rn(x, scale, -offset)); }

  template <class Type>
  __device__ void add(uint4 const& raw, int segment) {
    float x[Type::width];
    unpack<Type>(raw, x);
#pragma unroll
    for (int j = 0; j < Type::width; ++j) x[j] = power(x[j]);
    sum[segment] = rules::add(sum[segment], tree_sum(x));
  }
};

/// The packets of a warp that reach the threshold.
struct packet_notes {
  std::uint32_t* list;
  std::uint32_t capacity;
  std::uint32_t count = 0;

  __device__ void add(bool reaches, std::uint32_t packet) {
    unsigned const all = __ballot_sync(all_lanes, reaches);
    if (all == 0) return;
    std::uint32_t const at = count + __popc(all & ((1u << lane_index()) - 1));
    if (reaches && at < capacity) list[at] = packet;
    count += __popc(all);
  }
};

/// The sample comes as the maxima of its groups, two a thread. The threshold is about the value
/// that `wanted` of them reach.
template <class Type, class Room>
__device__ void choose_threshold(float const (&group)[2], int wanted, float& threshold, float& max,
                                 stream_memory<Room>& memory) {
  int const t = static_cast<int>(threadIdx.x);
  unsigned const own = rules::order_key(fmaxf(group[0], group[1]));
  unsigned const of_warp = __reduce_max_sync(all_lanes, own);
  // Groups without a finite logit do not count.
  unsigned const lesser = rules::order_key(fminf(group[0], group[1]));
  unsigned const least_of_warp =
      __reduce_min_sync(all_lanes, lesser > rules::order_key(rules::minus_infinity) ? lesser : own);
  if (lane_index() == 0) {
    memory.scan[warp_index()] = of_warp;
    memory.least[warp_index()] = least_of_warp;
  }
  if (t == 0) memory.count = memory.overflow = 0;
  for (int i = t; i < sample_bins; i += Room::threads) memory.sample[i] = 0;
  for (int i = t; i < Room::bins; i += Room::threads) memory.bins[i] = 0;
  __syncthreads();
  unsigned const other = memory.scan[lane_index() % Room::warps];
  max = rules::float_from_order_key(__reduce_max_sync(all_lanes, other));
  unsigned const low = __reduce_min_sync(all_lanes, memory.least[lane_index() % Room::warps]);
  // Bins count down from the maximum; the last takes what is below their range.
  float const range = max - rules::float_from_order_key(low);
  float const per_unit = (sample_bins - 1) / range;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float const place = (max - group[i]) * per_unit;
    bool const inside = place < static_cast<float>(sample_bins - 1);
    atomicAdd(&memory.sample[inside ? static_cast<int>(place) : sample_bins - 1], 1u);
  }
  __syncthreads();
  if (warp_index() == 0) {
    int const crossing = find_crossing<sample_bins>(memory.sample, static_cast<unsigned>(wanted));
    if (lane_index() == 0) {
      memory.threshold = representable<Type>(max - static_cast<float>(crossing + 1) / per_unit);
    }
  }
  __syncthreads();
  threshold = memory.threshold;
}

/// Puts the logits of a warp's packets that reach the threshold among the keys.
template <class Type, class Room>
__device__ void collect_keys(uint4 const* row, packet_notes const& notes, float threshold,
                             bin_scale<Room::bins> const& bin_of, stream_memory<Room>& memory) {
  __syncwarp();  // each lane reads what others noted
  std::uint32_t const noted = notes.count < notes.capacity ? notes.count : notes.capacity;
  if (noted < notes.count && lane_index() == 0) memory.overflow = 1;
  for (std::uint32_t i = static_cast<std::uint32_t>(lane_index()); i < noted; i += 32) {
    std::uint32_t const packet = notes.list[i];
    float x[Type::width];
    unpack<Type>(__ldg(row + packet), x);
    int hits = 0;
#pragma unroll
    for (int j = 0; j < Type::width; ++j) hits += x[j] >= threshold ? 1 : 0;
    std::uint32_t at = atomicAdd(&memory.count, static_cast<std::uint32_t>(hits));
#pragma unroll
    for (int j = 0; j < Type::width; ++j) {
      if (!(x[j] >= threshold)) continue;
      if (at < Room::keys) {
        memory.keys[at] =
            rules::candidate_key(x[j], packet * Type::width + static_cast<std::uint32_t>(j));
        atomicAdd(&memory.bins[bin_of(x[j])], 1u);
      }
      ++at;
    }
  }
}

}  // namespace stream_impl

/// Which pieces of 512 bytes a block reads: every `count`th, so that each has its share of any run
/// of large logits.
struct row_share {
  int index;
  int count;
};

/// `data` is aligned to 16 bytes. Short rows, of less than a piece for each segment, are left to
/// others.
template <class Type, class Room>
__device__ stream_result stream_row(typename Type::element const* data, std::int32_t columns,
                                    row_share const& share, float scale, int wanted,
                                    stream_memory<Room>& memory) {
  using namespace stream_impl;
  constexpr int per_warp = stream_segments / Room::warps;
  auto const* const row = reinterpret_cast<uint4 const*>(data);
  std::int32_t const packets = columns / Type::width;
  std::int32_t const pieces = (packets / 32 - share.index + share.count - 1) / share.count;
  std::int32_t const steps = pieces / stream_segments;
  if (steps == 0) return {};
  std::int32_t const step_packets = 32 * share.count;
  std::int32_t const own = warp_index() * steps * step_packets + 32 * share.index + lane_index();
  std::int32_t const stride = Room::warps * steps * step_packets;  // between a warp's segments

  constexpr int ahead = per_warp < 4 ? 4 : per_warp;  // packets on their way
  uint4 raw[ahead];
#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    std::int32_t const step = i / per_warp;
    if (step < steps) raw[i] = __ldg(row + own + step * step_packets + i % per_warp * stride);
  }
  float group[2] = {rules::minus_infinity, rules::minus_infinity};
#pragma unroll
  for (int i = 0; i < per_warp; ++i) {
    float const most = maximum_of<Type>(raw[i]);
    group[i % 2] = fmaxf(group[i % 2], most);
  }
  float threshold;
  float max;
  choose_threshold<Type>(group, wanted, threshold, max, memory);

  power_sums<per_warp> sums{scale, rules::mul(max, scale)};
  packet_notes notes{memory.packets[warp_index()], Room::packets_per_warp};
#pragma unroll 1
  for (std::int32_t first = 0; first < steps; first += ahead / per_warp) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      std::int32_t const step = first + i / per_warp;
      if (step >= steps) break;
      std::int32_t const packet = own + step * step_packets + i % per_warp * stride;
      notes.add(reaches<Type>(raw[i], threshold), static_cast<std::uint32_t>(packet));
      sums.template add<Type>(raw[i], i % per_warp);
      std::int32_t const later = packet + ahead / per_warp * step_packets;
      if (step + ahead / per_warp < steps) raw[i] = __ldg(row + later);
    }
  }
  // What the segments leave: a piece for each at most, and less than one.
#pragma unroll
  for (int i = 0; i < per_warp; ++i) {
    std::int32_t const piece = stream_segments * steps + warp_index() + i * Room::warps;
    std::int32_t const packet = (piece * share.count + share.index) * 32 + lane_index();
    bool const is_there = packet < packets;
    uint4 const last = is_there ? __ldg(row + packet) : uint4{};
    notes.add(is_there && reaches<Type>(last, threshold), static_cast<std::uint32_t>(packet));
    if (is_there) sums.template add<Type>(last, i);
  }

  bin_scale<Room::bins> const bin_of(threshold, max);
  collect_keys<Type>(row, notes, threshold, bin_of, memory);
  // Columns that fill no packet.
  std::int32_t const rest = packets * Type::width + static_cast<std::int32_t>(threadIdx.x);
  if (share.index == 0 && rest < columns) {
    float const x = Type::to_float(data[rest]);
    sums.sum[0] = rules::add(sums.sum[0], sums.power(x));
    if (x >= threshold) {
      std::uint32_t const at = atomicAdd(&memory.count, 1u);
      if (at < Room::keys) {
        memory.keys[at] = rules::candidate_key(x, static_cast<std::uint32_t>(rest));
        atomicAdd(&memory.bins[bin_of(x)], 1u);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < per_warp; ++i) {
    for (int mask = 16; mask > 0; mask /= 2) {
      sums.sum[i] = rules::add(sums.sum[i], __shfl_xor_sync(all_lanes, sums.sum[i], mask));
    }
    if (lane_index() == 0) memory.segment[warp_index() + i * Room::warps] = sums.sum[i];
  }
  __syncthreads();
  float total = memory.segment[lane_index()];
  for (int mask = 16; mask > 0; mask /= 2) {
    total = rules::add(total, __shfl_xor_sync(all_lanes, total, mask));
  }
  std::uint32_t const count = memory.count;
  // Not so where there was NaN or an infinity, or a logit that is far above the sample.
  bool const is_finite = total > 0.0f && total <= rules::largest_float;
  return {is_finite && memory.overflow == 0 && count <= Room::keys,
          count,
          threshold,
          max,
          total,
          sums.offset};
}

/// The sum as the rest of the library has it: relative to the largest logit. That the scale is a
/// rounded r * log2(e) matters to differences of logits only.
__device__ inline rules::exp_sum relative_sum(stream_result const& found, float r, float scale,
                                              float x_max) {
  float const above = __fmaf_rn(x_max, scale, -found.offset);
  return {rules::scaled(x_max, r), rules::mul(found.sum, exp2f(-above))};
}

/// Puts the best `top_k` keys in order, best first.
template <class Room>
__device__ void sort_keys(stream_memory<Room>& memory, stream_result const& found,
                          std::uint32_t top_k) {
  bin_scale<Room::bins> const bin_of(found.threshold, found.max);
  constexpr int share = Room::bins / Room::threads;
  int const first_bin = static_cast<int>(threadIdx.x) * share;
  std::uint32_t counts[share];
  std::uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < share; ++i) own += counts[i] = memory.bins[first_bin + i];
  std::uint32_t begin = block_scan<Room::threads>(own, plus{}, memory.scan) - own;
#pragma unroll
  for (int i = 0; i < share; ++i) {
    memory.bins[first_bin + i] = begin;
    begin += counts[i];
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < found.count; i += Room::threads) {
    std::uint64_t const key = memory.keys[i];
    memory.by_bin[atomicAdd(&memory.bins[bin_of(rules::candidate_logit(key))], 1u)] = key;
  }
  __syncthreads();
  // Each bin now holds where it ends.
  for (std::uint32_t i = threadIdx.x; i < found.count; i += Room::threads) {
    std::uint64_t const key = memory.by_bin[i];
    int const bin = bin_of(rules::candidate_logit(key));
    std::uint32_t const first = bin == 0 ? 0 : memory.bins[bin - 1];
    std::uint32_t const end = memory.bins[bin];
    std::uint32_t rank = first;
    for (std::uint32_t j = first; j < end; ++j) rank += memory.by_bin[j] > key ? 1u : 0u;
    if (rank < top_k) memory.keys[rank] = key;
  }
  __syncthreads();
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
