// SPDX-License-Identifier: Apache-2.0
// The best few columns of a row: a floor by bisection over what each thread holds, then a place for
// each key that reaches it by counting. For rows of common/select.cuh, and with its rules for
// calls; a short row is over sooner this way than by histograms and a sort, which are chains of
// barriers.
#pragma once

#include "common/block.cuh"
#include "common/packet.cuh"
#include "common/select.cuh"
#include "rules/dtype_convert.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Threads of a block that selects few; half as many are few.
inline constexpr int few_threads = 256;

template <int Threads>
struct few_memory {
  top_k_memory<Threads> top_k;
  std::uint32_t count;
};

/// A key that k of the threads' largest logits reach, or all finite ones: the upper 16 bits of it,
/// which are all that a 16-bit logit has. For k up to half the threads few more columns reach it.
__device__ inline std::uint64_t bisect_floor(float largest, std::uint32_t k) {
  std::uint32_t const own = rules::order_key(largest) >> 16;
  std::uint32_t floor = 0;
#pragma unroll 1
  for (std::uint32_t bit = 1u << 15; bit != 0; bit /= 2) {
    int const count = __syncthreads_count(own >= (floor | bit));
    if (static_cast<std::uint32_t>(count) >= k) floor |= bit;
  }
  return larger{}(std::uint64_t{floor} << 48, lowest_finite_key);
}

/// For rows that look at nothing else: leaves out packets that do not reach a floor as they stand
/// in memory.
template <class Type>
struct floor_gate {
  float least;
  bool is_open;  // to all

  __device__ floor_gate(std::uint64_t floor, bool opens)
      : least(representable<Type>(rules::candidate_logit(floor))), is_open(opens) {}

  __device__ bool admits(uint4 const& raw, std::int32_t) const {
    return is_open || reaches<Type>(raw, least);
  }
};

/// As select_top_k, to which it leaves rows of which too many columns reach the floor.
template <int Threads, class Row>
__device__ std::uint32_t select_few(Row const& row, std::uint32_t k, std::uint64_t floor,
                                    few_memory<Threads>& memory) {
  constexpr std::uint32_t most = 512;
  std::uint64_t* const found = memory.top_k.keys + top_k_memory<Threads>::capacity - most;
  if (threadIdx.x == 0) memory.count = 0;
  __syncthreads();
  float const least = rules::candidate_logit(floor);
  row.template for_each_packet<Threads>([&](std::int32_t first_id, float(&x)[Row::width]) {
#pragma unroll
    for (int j = 0; j < Row::width; ++j) {
      if (!(x[j] >= least)) continue;
      std::uint64_t const key =
          rules::candidate_key(x[j], static_cast<std::uint32_t>(first_id + j));
      if (key < floor) continue;
      std::uint32_t const at = atomicAdd(&memory.count, 1u);
      if (at < most) found[at] = key;
    }
  });
  __syncthreads();
  std::uint32_t const count = memory.count;
  if (count > most) return select_top_k<Threads>(row, k, floor, memory.top_k);
  for (std::uint32_t i = threadIdx.x; i < count; i += Threads) {
    std::uint64_t const key = found[i];
    std::uint32_t place = 0;
    // Keys are alike only in damaged contributions.
#pragma unroll 4
    for (std::uint32_t j = 0; j < count; ++j) {
      place += found[j] > key || (found[j] == key && j < i) ? 1u : 0u;
    }
    if (place < k) memory.top_k.keys[place] = key;
  }
  __syncthreads();
  return count < k ? count : k;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
