// SPDX-License-Identifier: Apache-2.0
// What the device's memory gives plain kernels: each roof is the best of several launch shapes.
#include "support/cuda_check.hpp"
#include "support/gpu.hpp"

#include <algorithm>
#include <utility>

namespace bench::gpu {
namespace {

constexpr ddtree::index_t vectors = ddtree::index_t{80} << 20;  // of 16 bytes: 1.3 GB
constexpr int repetitions = 7;

enum class what { read, write, copy };

/// Every thread takes `Unroll` vectors, a block's width apart, from each of its block's tiles.
template <what What, int Unroll>
__global__ void stream_kernel(uint4 const* from, uint4* to) {
  auto const tile = static_cast<ddtree::index_t>(blockDim.x) * Unroll;
  for (auto base = blockIdx.x * tile; base < vectors; base += gridDim.x * tile) {
    auto const first = base + threadIdx.x;
    uint4 v[Unroll] = {};
#pragma unroll
    for (int i = 0; i < Unroll; ++i) {
      if (What != what::write) v[i] = __ldcs(from + first + i * blockDim.x);
    }
#pragma unroll
    for (int i = 0; i < Unroll; ++i) {
      // No input holds this number: the loads stay, nothing is stored.
      bool const store = What != what::read || v[i].x == 0x9e3779b9u;
      if (store) __stcs(to + first + i * blockDim.x, v[i]);
    }
  }
}

template <class Launch>
double median_seconds(Launch const& launch) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  double seconds[repetitions];
  launch();
  for (double& s : seconds) {
    check(cudaEventRecord(begin, context().stream));
    launch();
    check(cudaEventRecord(end, context().stream));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    s = ms * 1e-3;
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::sort(seconds, seconds + repetitions);
  return seconds[repetitions / 2];
}

template <what What, int Unroll>
double bytes_per_second(uint4 const* from, uint4* to) {
  double const bytes = vectors * sizeof(uint4) * (What == what::copy ? 2.0 : 1.0);
  double best = 0;
  int const full = multiprocessors() * 2048;
  for (int const threads : {256, 512, 1024}) {
    auto const tiles = static_cast<int>(vectors / (threads * Unroll));
    for (int const blocks : {tiles, full / threads, 2 * full / threads}) {
      double const seconds = median_seconds([&] {
        stream_kernel<What, Unroll><<<blocks, threads, 0, context().stream>>>(from, to);
        check(cudaGetLastError());
      });
      best = std::max(best, bytes / seconds);
    }
  }
  return best;
}

template <what What>
double best_of(uint4 const* from, uint4* to) {
  return std::max({bytes_per_second<What, 2>(from, to), bytes_per_second<What, 4>(from, to),
                   bytes_per_second<What, 8>(from, to)});
}

roof measure() {
  auto* const from = static_cast<uint4*>(allocate(vectors * sizeof(uint4)));
  auto* const to = static_cast<uint4*>(allocate(vectors * sizeof(uint4)));
  roof const found{best_of<what::read>(from, to), best_of<what::write>(from, to),
                   best_of<what::copy>(from, to)};
  release(from);
  release(to);
  return found;
}

}  // namespace

roof const& roofs() {
  static roof const found = measure();
  return found;
}

}  // namespace bench::gpu
