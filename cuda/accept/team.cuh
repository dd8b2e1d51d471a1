// SPDX-License-Identifier: Apache-2.0
// Blocks that read a row together: those of a cluster, or one block alone. All threads of all of
// them call the functions here together.
#pragma once

#include "common/block.cuh"
#include "common/race_hook.cuh"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What blocks of the largest cluster that every device has can say to one another. A place is used
/// again two exchanges later: by then a barrier says that it has been read.
inline constexpr int max_team = 8;
template <class T>
struct team_slots {
  T value[2][max_team];
};

class team {
 public:
  /// Blocks begin when they can: what they have in shared memory is there after the first barrier.
  __device__ team() {
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank_));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks_));
    if (blocks_ > 1) arrive();
#endif
  }

  __device__ int rank() const { return static_cast<int>(rank_); }
  __device__ int blocks() const { return static_cast<int>(blocks_); }

  /// Waits for all blocks; what was written before is visible afterwards.
  __device__ void barrier() {
    if (blocks_ == 1) return __syncthreads();
#if __CUDA_ARCH__ >= 900
    meet();
    race_delay(0);
    arrive();
    wait();
#endif
  }

  /// Before the end: no barrier is left half done where blocks did not meet.
  __device__ void leave() { meet(); }

  /// The same object in another block's shared memory.
  template <class T>
  __device__ T* peer(T* own, int rank) const {
#if __CUDA_ARCH__ >= 900
    if (blocks_ > 1) {
      std::uint64_t address;
      asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(own), "r"(rank));
      return reinterpret_cast<T*>(address);
    }
#endif
    return own;
  }

  /// Begins an exchange, which ends at the next barrier, and returns which of two places it uses.
  __device__ unsigned begin_exchange() {
    meet();
    phase_ ^= 1u;
    race_delay(1);
    return phase_;
  }

  /// Ends an exchange with one value of each block, by rank. `value` is the same in all threads of
  /// a block.
  template <class T>
  __device__ T const* exchange(T const& value, team_slots<T>& slots) {
    auto const to = static_cast<int>(threadIdx.x);
    if (to < blocks()) peer(&slots, to)->value[phase_][rank_] = value;
    barrier();
    return slots.value[phase_];
  }

  template <class T>
  __device__ T const* gather(T const& value, team_slots<T>& slots) {
    begin_exchange();
    return exchange(value, slots);
  }

  template <class T, class Op>
  __device__ T reduce(T value, Op op, team_slots<T>& slots) {
    if (blocks_ == 1) return value;
    T const* const all = gather(value, slots);
    value = all[0];
    for (int i = 1; i < blocks(); ++i) value = op(value, all[i]);
    return value;
  }

 private:
  /// Every block has begun.
  __device__ void meet() {
    if (has_met_ || blocks_ == 1) return;
    wait();
    has_met_ = true;
  }

  __device__ void arrive() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
  }
  __device__ void wait() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }

  std::uint32_t rank_ = 0;
  std::uint32_t blocks_ = 1;
  unsigned phase_ = 0;
  bool has_met_ = false;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
