// SPDX-License-Identifier: Apache-2.0
// Thread block clusters (compute capability 9.0 and up): their blocks run at the same time and
// reach each other's shared memory.
#pragma once

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

#if __CUDA_ARCH__ >= 900

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline std::uint32_t cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

/// All threads of all blocks of the cluster; what they wrote before is visible to all afterwards.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/// The same object in the shared memory of another block. Only between two cluster_sync().
template <class T>
__device__ T* in_block(T* own, std::uint32_t rank) {
  T* remote;
  asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(own), "r"(rank));
  return remote;
}

#endif

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
