// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Sorts n elements in shared memory, n a power of two, by a bitonic network. `precedes(i, j)` is
/// the strict and total order that the elements at i and j shall have, `exchange(i, j)` swaps them.
/// All threads of the block call it; the elements stand written, and sorted, at a barrier.
template <int Threads, class Precedes, class Exchange>
__device__ void block_sort(int n, Precedes precedes, Exchange exchange) {
  for (int size = 2; size <= n; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int pair = static_cast<int>(threadIdx.x); pair < n / 2; pair += Threads) {
        int const i = 2 * pair - (pair & (stride - 1));
        int const j = i + stride;
        bool const ascending = (i & size) == 0;
        if (precedes(j, i) == ascending) exchange(i, j);
      }
      // Up to a stride of 32 the pairs of a warp make up 64 elements that no other warp touches.
      int const next_stride = stride > 1 ? stride / 2 : size;
      if (stride > 32 || next_stride > 32) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

/// Puts nodes in the exact order: shared.weight[i] is then the weight of row i, and the index of
/// row i (not of the root) is shared.place[i - 1]. Nodes 1..n have their weights and indices at
/// first; `has_earlier_path(i, j)` decides between two of one weight. Ends with a barrier.
template <int Threads, class Memory, class HasEarlierPath>
__device__ void sort_rows(Memory& shared, int n, HasEarlierPath has_earlier_path) {
  int size = 1;
  while (size < n) size *= 2;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < size; i += Threads) {
    shared.place[i] = static_cast<std::uint16_t>(i + 1);
    if (i >= n) shared.weight[i + 1] = INT64_MIN;
  }
  __syncthreads();
  auto* const weight = shared.weight + 1;
  auto* const place = shared.place;
  block_sort<Threads>(
      size,
      [=](int i, int j) {
        if (weight[i] != weight[j]) return weight[i] > weight[j];
        if (place[i] > n || place[j] > n) return place[i] < place[j];
        return has_earlier_path(place[i], place[j]);
      },
      [=](int i, int j) {
        auto const w = weight[i];
        weight[i] = weight[j];
        weight[j] = w;
        auto const p = place[i];
        place[i] = place[j];
        place[j] = p;
      });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
