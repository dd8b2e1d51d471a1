// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
