// SPDX-License-Identifier: Apache-2.0
// A row read by a cluster of blocks: the sum of its exponentials, and its best logits in order.
//
// A row is cut into 128 strands of a packet per lane, each read by one warp. The blocks tell each
// other the largest logits of groups of columns, and so all know a threshold that at least top_k
// logits reach, and few more. They sort what reaches it, tell each other, and then know the rank of
// each of their own. What a strand gives depends neither on who reads it nor on how many blocks
// there are.
#pragma once

#include "common/block.cuh"
#include "common/cluster.cuh"
#include "common/exp_sum.cuh"
#include "common/fast_exp.cuh"
#include "common/logits.cuh"
#include "common/packet.cuh"
#include "common/race_hook.cuh"
#include "common/select.cuh"
#include "rules/arith.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/log_sum_exp.hpp"
#include "rules/sampling.hpp"

#include <cstdint>
#include <type_traits>

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline constexpr int cluster_threads = 512;
inline constexpr int max_cluster = 8;
inline constexpr int row_strands = 128;
inline constexpr int strand_stride = 32 * row_strands;  // packets between two of a lane's
inline constexpr int max_groups = 2048;
inline constexpr int group_bins = 256;
inline constexpr int list_bins = 1024;

struct strand_sum {
  float max;     // of the logits
  float offset;  // of the sum of 2^(x * scale - offset)
  float sum;
  float unused;
};

/// What a block says of its keys.
struct alignas(8) found_list {
  std::uint32_t begin;  // in memory.lists
  std::uint32_t count;  // of those that reach the threshold
};

struct cluster_memory {
  static constexpr std::uint32_t list_room = 4096;  // of all blocks
  static constexpr std::uint32_t own_room = 1024;
  union {
    std::uint64_t lists[list_room];  // what the blocks found, each in its share of the room
    walk_memory<cluster_threads, count_mass> walk;
  };
  union {
    std::uint64_t own[own_room];
    float groups[max_groups];
  };
  alignas(16) strand_sum strands[row_strands];
  union {
    float lane_max[row_strands / warps_of<cluster_threads> / 2 * cluster_threads];
    std::uint16_t by_bin[list_room];  // places in `lists`
  };
  mailbox strands_told;
  mailbox lists_told;
  std::uint32_t bins[list_bins];  // also for groups
  std::uint32_t scan[warps_of<cluster_threads>];
  std::uint32_t most[warps_of<cluster_threads>];
  std::uint32_t least[warps_of<cluster_threads>];
  found_list found[max_cluster];
  rules::exp_sum sum;  // of exp(x * r)
  float lse;
  float x_max;
  std::uint32_t count;  // of those in `own`
  key_counts counts;
  key_counts all_counts[max_cluster];
  std::uint32_t threshold_key;
  int crossing;
  bool met;  // NaN or +inf
};

/// A row in packets, the last filled up with -inf.
template <class Type>
struct row_packets {
  typename Type::element const* data;  // aligned to 16 bytes
  std::int32_t columns;

  __device__ std::int32_t count() const { return (columns + Type::width - 1) / Type::width; }

  __device__ std::int32_t whole() const { return columns / Type::width; }
  __device__ uint4 load(std::int32_t packet) const {
    return __ldg(reinterpret_cast<uint4 const*>(data) + packet);
  }

  /// The packet that is not whole. Out of line, as few threads need it.
  __device__ uint4 load_part() const { return part_of(data, columns); }

 private:
  static __device__ __noinline__ uint4 part_of(typename Type::element const* data,
                                               std::int32_t columns) {
    typename Type::element x[Type::width];
    for (int j = 0; j < Type::width; ++j) {
      std::int32_t const column = columns / Type::width * Type::width + j;
      x[j] = column < columns ? data[column] : nothing();
    }
    uint4 raw;
    static_assert(sizeof(x) == sizeof(raw));
    memcpy(&raw, x, sizeof(raw));
    return raw;
  }

  static constexpr typename Type::element nothing() {
    if constexpr (Type::width == 4) {
      return rules::minus_infinity;
    } else {
      return std::is_same_v<Type, bf16_logits> ? 0xff80 : 0xfc00;
    }
  }
};

#if __CUDA_ARCH__ >= 900

/// The blocks that share a row: 2, 4 or 8.
struct row_team {
  int log2_blocks;
  std::uint32_t rank;

  __device__ std::uint32_t blocks() const { return 1u << log2_blocks; }
  __device__ std::uint32_t last() const { return blocks() - 1; }
};

namespace cluster_impl {

/// What a lane reads of a strand. NaN and infinities leave a sum that is not finite.
struct lane_sum {
  float max = rules::minus_infinity;
  float offset = -rules::largest_float;
  float sum = 0.0f;

  template <class Type>
  __device__ void add(uint4 const& raw, float scale) {
    float const most = maximum_of<Type>(raw);
    max = fmaxf(max, most);
    float const top = rules::mul(most, scale);
    if (top > rules::add(offset, 64.0f)) {  // the first time, and before it could overflow
      sum = rules::mul(sum, fast_exp2(rules::sub(offset, top)));
      offset = top;
    }
    float x[Type::width];
    unpack<Type>(raw, x);
#pragma unroll
    for (int j = 0; j < Type::width; ++j) x[j] = fast_exp2(__fmaf_rn(x[j], scale, -offset));
    sum = rules::add(sum, tree_sum(x));
  }
};

/// Whether a strand of this lane has the packet that is not whole.
template <class Type>
__device__ bool has_part(row_packets<Type> const& row, std::int32_t first) {
  return row.whole() < row.count() && row.whole() % strand_stride == first % strand_stride;
}

/// Calls body(place, first packet of this lane) for the strands of this warp.
template <class Body>
__device__ void for_each_strand(row_team const& team, Body body) {
  auto strand = static_cast<int>(warp_index() << team.log2_blocks | team.rank);
#pragma unroll 1
  for (int i = 0; strand < row_strands;
       ++i, strand += warps_of<cluster_threads> << team.log2_blocks) {
    body(i, strand * 32 + lane_index());
  }
}

/// Tells all blocks of a strand. Groups of `lanes` lanes are told by their largest logits.
__device__ inline void tell_strand(lane_sum const& own, int strand, int log2_lanes,
                                   row_team const& team, cluster_memory& memory) {
  auto const lane = static_cast<std::uint32_t>(lane_index());
  float const offset =
      rules::float_from_order_key(__reduce_max_sync(all_lanes, rules::order_key(own.offset)));
  float sum = rules::mul(own.sum, fast_exp2(rules::sub(own.offset, offset)));
  for (int mask = 16; mask > 0; mask /= 2) {
    sum = rules::add(sum, __shfl_xor_sync(all_lanes, sum, mask));
  }
  float const max =
      rules::float_from_order_key(__reduce_max_sync(all_lanes, rules::order_key(own.max)));
  float of_group = max;
  if (log2_lanes < 5) {
    of_group = own.max;
    for (int mask = 1; mask < 1 << log2_lanes; mask *= 2) {
      of_group = fmaxf(of_group, __shfl_xor_sync(all_lanes, of_group, mask));
    }
  }
  float* const place =
      &memory.groups[(static_cast<std::uint32_t>(strand) * 32 + lane) >> log2_lanes];
  for (std::uint32_t i = lane & ((1u << log2_lanes) - 1); i < team.blocks();
       i += 1u << log2_lanes) {
    memory.strands_told.send(place, i, of_group);
  }
  if (lane < team.blocks()) {
    memory.strands_told.send(&memory.strands[strand], lane, {max, offset, sum, 0.0f});
  }
}

}  // namespace cluster_impl

/// Before all else, by all threads; a __syncthreads() has to follow, then cluster_arrive_relaxed().
__device__ inline void begin_reading(row_team const& team, cluster_memory& memory) {
  for (auto i = static_cast<int>(threadIdx.x); i < group_bins; i += cluster_threads) {
    memory.bins[i] = 0;
  }
  if (threadIdx.x != 0) return;
  memory.count = 0;
  memory.threshold_key = 0;
  memory.met = false;
  memory.strands_told.open(1);
  memory.lists_told.open(team.blocks());
}

/// The strands of a warp, as they come from memory.
template <class Type>
struct strand_reader {
  static constexpr int ahead =
      5;  // packets on their way; a row of 151,936 16-bit logits has as many

  row_packets<Type> row;
  row_team team;
  int strand;
  std::int32_t at;  // packet of this lane
  uint4 raw[ahead];

  /// The first packets are on their way afterwards.
  __device__ strand_reader(row_packets<Type> const& from, row_team const& of)
      : row(from), team(of), strand(static_cast<int>(warp_index() << of.log2_blocks | of.rank)) {
    at = strand * 32 + lane_index();
    load(at, row.whole());
  }

  /// Tells all blocks of each strand. After begin_reading() and cluster_arrive_relaxed().
  __device__ void read(float scale, int log2_lanes, cluster_memory& memory) {
    using namespace cluster_impl;
    if (threadIdx.x == 0) {
      auto const groups = static_cast<std::uint32_t>(row_strands * 32 >> log2_lanes);
      memory.strands_told.announce(team.rank, groups * 4 + sizeof(memory.strands));
    }
    std::int32_t const packets = row.whole();
    int const stride = warps_of<cluster_threads> << team.log2_blocks;
    cluster_wait();  // the others are there
    lane_sum own;
    int place = 0;
#pragma unroll 1
    for (bool is_last = false; !is_last;) {
      std::int32_t next = at + ahead * strand_stride;
      bool const ends = next - lane_index() >= packets;
      if (ends) next = (strand + stride) * 32 + lane_index();
      is_last = ends && strand + stride >= row_strands;
      std::int32_t const end = is_last ? 0 : packets;
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (at + i * strand_stride < packets) own.add<Type>(raw[i], scale);
        std::int32_t const packet = next + i * strand_stride;
        if (packet < end) raw[i] = row.load(packet);
      }
      if (ends) {
        if (has_part(row, at)) own.add<Type>(row.load_part(), scale);
        memory.lane_max[place * cluster_threads + static_cast<int>(threadIdx.x)] = own.max;
        tell_strand(own, strand, log2_lanes, team, memory);
        own = lane_sum();
        ++place;
        if (!is_last) strand += stride;
      }
      if (!is_last) at = next;
    }
  }

  __device__ void load(std::int32_t from, std::int32_t end) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      std::int32_t const packet = from + i * strand_stride;
      if (packet < end) raw[i] = row.load(packet);
    }
  }
};

namespace cluster_impl {

/// The k-th largest of 128 values, four threads a value.
__device__ inline void rank_groups(std::uint32_t k, cluster_memory& memory) {
  static_assert(cluster_threads == 4 * row_strands);
  float const value = memory.groups[threadIdx.x / 4];
  auto const* const others = reinterpret_cast<float4 const*>(memory.groups);
  std::uint32_t reached[2] = {0, 0};
#pragma unroll 2
  for (std::uint32_t i = 0; i < row_strands / 16; ++i) {
    float4 const x = others[4 * i + threadIdx.x % 4];
    reached[0] += (x.x >= value ? 1u : 0u) + (x.y >= value ? 1u : 0u);
    reached[1] += (x.z >= value ? 1u : 0u) + (x.w >= value ? 1u : 0u);
  }
  reached[0] += reached[1];
  reached[0] += __shfl_xor_sync(all_lanes, reached[0], 1);
  reached[0] += __shfl_xor_sync(all_lanes, reached[0], 2);
  unsigned const best =
      __reduce_max_sync(all_lanes, reached[0] >= k ? rules::order_key(value) : 0u);
  if (lane_index() == 0) atomicMax(&memory.threshold_key, best);
}

/// About the k-th largest of more values, and not above it.
__device__ inline void bin_groups(int groups, std::uint32_t k, cluster_memory& memory) {
  int const thread = static_cast<int>(threadIdx.x);
  constexpr int warps = warps_of<cluster_threads>;
  constexpr int most_per_thread = max_groups / cluster_threads;
  float value[most_per_thread];
  float max = rules::minus_infinity;
  float min = rules::largest_float;
#pragma unroll
  for (int i = 0; i < most_per_thread; ++i) {
    int const at = i * cluster_threads + thread;
    value[i] = at < groups ? memory.groups[at] : rules::minus_infinity;
    max = fmaxf(max, value[i]);
    if (value[i] > rules::minus_infinity) min = fminf(min, value[i]);
  }
  unsigned const most = __reduce_max_sync(all_lanes, rules::order_key(max));
  unsigned const least = __reduce_min_sync(all_lanes, rules::order_key(min));
  if (lane_index() == 0) {
    memory.most[warp_index()] = most;
    memory.least[warp_index()] = least;
  }
  __syncthreads();
  max =
      rules::float_from_order_key(__reduce_max_sync(all_lanes, memory.most[lane_index() % warps]));
  min =
      rules::float_from_order_key(__reduce_min_sync(all_lanes, memory.least[lane_index() % warps]));
  float const per_unit = static_cast<float>(group_bins - 1) / (max - min);
  int bin[most_per_thread];
#pragma unroll
  for (int i = 0; i < most_per_thread; ++i) {
    float const down = (max - value[i]) * per_unit;
    bin[i] = down < static_cast<float>(group_bins - 1) ? static_cast<int>(down) : group_bins - 1;
    if (i * cluster_threads + thread < groups) atomicAdd(&memory.bins[bin[i]], 1u);
  }
  __syncthreads();
  if (warp_index() == 0) {
    int const crossing = find_crossing<group_bins>(memory.bins, k);
    if (lane_index() == 0) memory.crossing = crossing;
  }
  __syncthreads();
  int const crossing = memory.crossing;
  unsigned own = ~0u;
#pragma unroll
  for (int i = 0; i < most_per_thread; ++i) {
    bool const counts = i * cluster_threads + thread < groups && bin[i] <= crossing;
    unsigned const key = rules::order_key(value[i]);
    if (counts && key < own) own = key;
  }
  own = __reduce_min_sync(all_lanes, own);
  // Inverted, so that the memory is prepared the same way for both kinds of selection.
  if (lane_index() == 0) atomicMax(&memory.threshold_key, ~own);
}

/// memory.sum and memory.x_max, by one warp. Sums are put together in the order of the strands.
__device__ inline void add_strands(float r, float scale, cluster_memory& memory) {
  constexpr int share = row_strands / 32;
  float max[share];
  float offset[share];
  float sum[share];
#pragma unroll
  for (int i = 0; i < share; ++i) {
    strand_sum const s = memory.strands[i * 32 + lane_index()];
    max[i] = s.max;
    offset[i] = s.offset;
    sum[i] = s.sum;
  }
  float x_max = fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3]));
  float top = fmaxf(fmaxf(offset[0], offset[1]), fmaxf(offset[2], offset[3]));
  x_max = rules::float_from_order_key(__reduce_max_sync(all_lanes, rules::order_key(x_max)));
  top = rules::float_from_order_key(__reduce_max_sync(all_lanes, rules::order_key(top)));
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < share; ++i) {
    total = rules::add(total, rules::mul(sum[i], fast_exp2(rules::sub(offset[i], top))));
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    total = rules::add(total, __shfl_xor_sync(all_lanes, total, mask));
  }
  // Relative to the largest logit, as the rest of the library has it. That the scale is a rounded
  // r * log2(e) matters to differences of logits only.
  float const above = __fmaf_rn(x_max, scale, -top);
  if (lane_index() != 0) return;
  memory.x_max = x_max;
  memory.sum = {rules::scaled(x_max, r), rules::mul(total, exp2f(-above))};
  memory.lse = rules::log_sum_exp(memory.sum);
}

}  // namespace cluster_impl

/// What at least k logits reach, or all finite ones; where all strands have been told.
__device__ inline float choose_row_threshold(int groups, std::uint32_t k, cluster_memory& memory) {
  using namespace cluster_impl;
  bool const few = groups == row_strands;
  if (few) {
    rank_groups(k, memory);
  } else {
    bin_groups(groups, k, memory);
  }
  __syncthreads();
  std::uint32_t const key = few ? memory.threshold_key : ~memory.threshold_key;
  return fmaxf(rules::float_from_order_key(key), -rules::largest_float);
}

namespace cluster_impl {

/// Few instructions rather than few steps: most threads have none or one, and come here once.
template <class Type>
__device__ void append_hits(uint4 const& raw, std::int32_t packet, float threshold,
                            cluster_memory& memory) {
  unsigned hits = 0;
  {
    float x[Type::width];
    unpack<Type>(raw, x);
#pragma unroll
    for (int j = 0; j < Type::width; ++j) hits |= x[j] >= threshold ? 1u << j : 0u;
  }
  std::uint32_t at = atomicAdd(&memory.count, static_cast<std::uint32_t>(__popc(hits)));
#pragma unroll 1
  for (; hits != 0 && at < cluster_memory::own_room; hits &= hits - 1) {
    int const j = __ffs(static_cast<int>(hits)) - 1;
    constexpr int per_word = Type::width / 4;
    std::uint32_t const low = j / per_word % 2 == 0 ? raw.x : raw.y;
    std::uint32_t const high = j / per_word % 2 == 0 ? raw.z : raw.w;
    float pair[per_word];
    Type::unpack(j / per_word < 2 ? low : high, pair);
    float const x = j % per_word == 0 ? pair[0] : pair[per_word - 1];
    auto const id = static_cast<std::uint32_t>(packet * Type::width + j);
    memory.own[at++] = rules::candidate_key(x, id);
  }
}

}  // namespace cluster_impl

/// Puts the logits of this block's strands that reach the threshold among memory.own. `reader`
/// still has what it read last.
template <class Type>
__device__ void collect_hits(strand_reader<Type>& reader, float threshold, cluster_memory& memory) {
  using namespace cluster_impl;
  constexpr int ahead = strand_reader<Type>::ahead;
  row_packets<Type> const& row = reader.row;
  std::int32_t const packets = row.whole();
  std::int32_t kept = reader.at;
  for_each_strand(reader.team, [&](int place, std::int32_t first) {
    if (memory.lane_max[place * cluster_threads + static_cast<int>(threadIdx.x)] < threshold) {
      return;
    }
    bool const with_part = has_part(row, first);
#pragma unroll 1
    for (std::int32_t at = first; at < packets + (with_part ? 1 : 0); at += ahead * strand_stride) {
      // When there are too many they are not needed.
      if (*const_cast<std::uint32_t volatile*>(&memory.count) > cluster_memory::own_room) return;
      if (at != kept) reader.load(at, packets);
      kept = at;
      unsigned hits = 0;
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        std::int32_t const packet = at + i * strand_stride;
        bool const hit = packet < packets ? maximum_of<Type>(reader.raw[i]) >= threshold
                                          : with_part && packet == packets;
        hits |= hit ? 1u << i : 0u;
      }
#pragma unroll 1
      for (; hits != 0; hits &= hits - 1) {
        int const hit = __ffs(static_cast<int>(hits)) - 1;
        uint4 one = reader.raw[0];
#pragma unroll
        for (int i = 1; i < ahead; ++i) {
          if (i == hit) one = reader.raw[i];
        }
        std::int32_t const packet = at + hit * strand_stride;
        if (packet == packets) one = row.load_part();
        append_hits<Type>(one, packet, threshold, memory);
      }
    }
  });
}

/// The share of memory.lists that a block has. Not a multiple of 16, so that the same place of two
/// lists is in two banks.
__device__ inline std::uint32_t list_room(row_team const& team) {
  return min(cluster_memory::list_room >> team.log2_blocks, cluster_memory::own_room) - 2;
}

/// Tells all blocks what is in memory.own.
__device__ inline void tell_list(row_team const& team, cluster_memory& memory) {
  std::uint32_t const count = memory.count;
  std::uint32_t const room = list_room(team);
  std::uint32_t const told = count <= room ? count : 0;
  std::uint32_t const begin = team.rank * room;
  if (threadIdx.x < team.blocks()) {
    memory.lists_told.announce(threadIdx.x, 8 + told * 8);
    memory.lists_told.send(&memory.found[team.rank], threadIdx.x, found_list{begin, count});
  }
  for (std::uint32_t i = threadIdx.x; i < told << team.log2_blocks; i += cluster_threads) {
    std::uint32_t const at = i >> team.log2_blocks;
    memory.lists_told.send(&memory.lists[begin + at], i & team.last(), memory.own[at]);
  }
}

namespace cluster_impl {

/// For few keys: each is compared with all others.
template <class Body>
__device__ void rank_by_all(std::uint32_t of, row_team const& team, cluster_memory const& memory,
                            Body body) {
  found_list const own = memory.found[of];
  int log2_split = 5;  // threads that share a key
  while (log2_split > team.log2_blocks && own.count << log2_split > cluster_threads) --log2_split;
  std::uint32_t const part = threadIdx.x & ((1u << log2_split) - 1);
  found_list const other = memory.found[part & team.last()];
  std::uint64_t const* const list = memory.lists + other.begin;
  std::uint32_t const step = 1u << (log2_split - team.log2_blocks);
  for (std::uint32_t first = 0; first < own.count; first += cluster_threads >> log2_split) {
    std::uint32_t const i = first + (threadIdx.x >> log2_split);
    std::uint64_t const key = i < own.count ? memory.lists[own.begin + i] : 0;
    std::uint32_t rank = 0;
    std::uint32_t j = part >> team.log2_blocks;
    for (; j + 3 * step < other.count; j += 4 * step) {
      std::uint64_t const a = list[j];
      std::uint64_t const b = list[j + step];
      std::uint64_t const c = list[j + 2 * step];
      std::uint64_t const d = list[j + 3 * step];
      rank += (a > key ? 1u : 0u) + (b > key ? 1u : 0u) + (c > key ? 1u : 0u) + (d > key ? 1u : 0u);
    }
    for (; j < other.count; j += step) rank += list[j] > key ? 1u : 0u;
    for (int mask = 1; mask < 1 << log2_split; mask *= 2) {
      rank += __shfl_xor_sync(all_lanes, rank, mask);
    }
    if (i < own.count && part == 0) body(rank, key);
  }
}

/// The bin of a logit, 0 for the largest.
struct list_scale {
  float max;
  float per_unit;

  __device__ list_scale(float least, float most)
      : max(most), per_unit(static_cast<float>(list_bins - 1) / (most - least)) {}
  __device__ int operator()(std::uint64_t key) const {
    float const down = (max - rules::candidate_logit(key)) * per_unit;
    return down < static_cast<float>(list_bins - 1) ? static_cast<int>(down) : list_bins - 1;
  }
};

/// For many: all are put in bins, and each is compared with those of its own.
template <class Body>
__device__ void rank_by_bins(std::uint32_t list, float threshold, float max, row_team const& team,
                             cluster_memory& memory, Body body) {
  constexpr int share = list_bins / cluster_threads;
  list_scale const bin_of(threshold, max);
  auto const for_each_key = [&](auto visit) {
    std::uint32_t const lanes = cluster_threads >> team.log2_blocks;
    found_list const of = memory.found[threadIdx.x & team.last()];
    for (std::uint32_t i = threadIdx.x >> team.log2_blocks; i < of.count; i += lanes) {
      visit(of.begin + i);
    }
  };
  int const first_bin = static_cast<int>(threadIdx.x) * share;
#pragma unroll
  for (int i = 0; i < share; ++i) memory.bins[first_bin + i] = 0;
  __syncthreads();
  for_each_key([&](std::uint32_t at) { atomicAdd(&memory.bins[bin_of(memory.lists[at])], 1u); });
  __syncthreads();
  std::uint32_t counts[share];
  std::uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < share; ++i) own += counts[i] = memory.bins[first_bin + i];
  std::uint32_t begin = block_scan<cluster_threads>(own, plus{}, memory.scan) - own;
#pragma unroll
  for (int i = 0; i < share; ++i) {
    memory.bins[first_bin + i] = begin;
    begin += counts[i];
  }
  __syncthreads();
  for_each_key([&](std::uint32_t at) {
    std::uint32_t const place = atomicAdd(&memory.bins[bin_of(memory.lists[at])], 1u);
    memory.by_bin[place] = static_cast<std::uint16_t>(at);
  });
  __syncthreads();
  // Each bin now holds where it ends.
  found_list const found = memory.found[list];
  int log2_split = 5;  // threads that share a key
  while (log2_split > 0 && found.count << log2_split > cluster_threads) --log2_split;
  std::uint32_t const part = threadIdx.x & ((1u << log2_split) - 1);
  for (std::uint32_t base = 0; base < found.count; base += cluster_threads >> log2_split) {
    std::uint32_t const i = base + (threadIdx.x >> log2_split);
    std::uint64_t const key = i < found.count ? memory.lists[found.begin + i] : ~std::uint64_t{0};
    int const bin = i < found.count ? bin_of(key) : 0;
    std::uint32_t const end = memory.bins[bin];
    std::uint32_t const from = bin == 0 ? 0 : memory.bins[bin - 1];
    std::uint32_t rank = 0;
#pragma unroll 4
    for (std::uint32_t j = from + part; j < end; j += 1u << log2_split) {
      rank += memory.lists[memory.by_bin[j]] > key ? 1u : 0u;
    }
    for (int mask = 1; mask < 1 << log2_split; mask *= 2) {
      rank += __shfl_xor_sync(all_lanes, rank, mask);
    }
    if (i < found.count && part == 0) body(from + rank, key);
  }
}

}  // namespace cluster_impl

/// How the ranks of keys are found.
struct list_order {
  std::uint32_t total;
  bool in_bins;
  float threshold;  // with bins: all keys lie between these
  float max;
};

/// Calls body(rank, key) for the keys of one list, in one thread each.
template <class Body>
__device__ void for_each_rank(std::uint32_t list, list_order const& order, row_team const& team,
                              cluster_memory& memory, Body body) {
  if (order.in_bins) {
    cluster_impl::rank_by_bins(list, order.threshold, order.max, team, memory, body);
  } else {
    cluster_impl::rank_by_all(list, team, memory, body);
  }
}

#endif

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
