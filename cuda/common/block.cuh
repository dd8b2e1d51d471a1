// SPDX-License-Identifier: Apache-2.0
// Reductions and scans over a block of `Threads` threads, 32 times a power of two. All threads call
// them together and all get the result; `partial` is shared memory for one value per warp, free
// again on return. The order of operations is fixed, so floats give the same bits every time.
#pragma once

#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x / 32); }

/// Lets the next kernel begin, if it may overlap this one.
__device__ inline void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// What the kernel before this one wrote is visible afterwards.
__device__ inline void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <int Threads>
inline constexpr int warps_of = Threads / 32;

struct plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

struct smaller {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

/// The value of the lane whose index differs in the bits of `mask`. Any struct of 4-byte words.
template <class T>
__device__ T shuffle_xor(T value, int mask) {
  constexpr int words = sizeof(T) / 4;
  static_assert(sizeof(T) % 4 == 0);
  std::uint32_t word[words];
  memcpy(word, &value, sizeof(T));
#pragma unroll
  for (int w = 0; w < words; ++w) word[w] = __shfl_xor_sync(all_lanes, word[w], mask);
  memcpy(&value, word, sizeof(T));
  return value;
}

/// op over the values of all threads; associative up to rounding, and commutative.
template <int Threads, class T, class Op>
__device__ T block_reduce(T value, Op op, T* partial) {
  static_assert((Threads & (Threads - 1)) == 0 && Threads >= 32);
  constexpr int warps = warps_of<Threads>;
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  value = partial[lane_index() % warps];
  for (int mask = warps / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  __syncthreads();
  return value;
}

/// The bin where the counts, from bin 0 on, reach `wanted`; `Bins`, 32 times a number, where they
/// do not. By one warp.
template <int Bins>
__device__ int find_crossing(std::uint32_t const* bins, unsigned wanted) {
  static_assert(Bins % 32 == 0);
  constexpr int share = Bins / 32;
  unsigned counts[share];
  unsigned own = 0;
#pragma unroll
  for (int i = 0; i < share; ++i) own += counts[i] = bins[lane_index() * share + i];
  unsigned after = own;
  for (int distance = 1; distance < 32; distance *= 2) {
    unsigned const before = __shfl_up_sync(all_lanes, after, static_cast<unsigned>(distance));
    if (lane_index() >= distance) after += before;
  }
  unsigned before = after - own;
  int crossing = Bins;
  bool const is_here = before < wanted && wanted <= after;
#pragma unroll
  for (int i = 0; i < share; ++i) {
    if (is_here && before < wanted) crossing = lane_index() * share + i;
    before += counts[i];
  }
  return __reduce_min_sync(all_lanes, crossing);
}

/// op over the values of this thread and those before it; associative.
template <int Threads, class T, class Op>
__device__ T block_scan(T value, Op op, T* partial) {
  static_assert((Threads & (Threads - 1)) == 0 && Threads >= 32);
  constexpr int warps = warps_of<Threads>;
  int const lane = lane_index();
  for (int distance = 1; distance < 32; distance *= 2) {
    T const before = __shfl_up_sync(all_lanes, value, static_cast<unsigned>(distance));
    if (lane >= distance) value = op(before, value);
  }
  if (lane == 31) partial[warp_index()] = value;
  __syncthreads();
  // Every warp scans the warps' totals for itself.
  T total = partial[lane % warps];
  for (int distance = 1; distance < warps; distance *= 2) {
    T const before = __shfl_up_sync(all_lanes, total, static_cast<unsigned>(distance));
    if (lane >= distance) total = op(before, total);
  }
  int const warp = warp_index();
  T const before = __shfl_sync(all_lanes, total, warp == 0 ? 0 : warp - 1);
  if (warp > 0) value = op(before, value);
  __syncthreads();
  return value;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
