// SPDX-License-Identifier: Apache-2.0
// Blocks that read a row together: those of a cluster, or one block alone. All threads of all of
// them call the functions here together.
#pragma once

#include "common/block.cuh"
#include "common/cluster.cuh"
#include "common/race_hook.cuh"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What blocks of the largest cluster that every device has can say to one another. A place is used
/// again two exchanges later: by then it has been read.
inline constexpr int max_team = 8;
template <class T>
struct alignas(16) team_slots {
  T value[2][max_team];
};

/// Shared memory of a block: an mbarrier for each of two exchanges, which counts what arrives.
struct team_memory {
  std::uint64_t arrived[2];
};

class team {
 public:
  /// Blocks begin when they can: what they have in shared memory is there after the first exchange
  /// has begun.
  __device__ explicit team(team_memory& memory) : memory_(memory) {
#if __CUDA_ARCH__ >= 900
    rank_ = cluster_rank();
    blocks_ = cluster_size();
    if (blocks_ == 1) return;
    if (threadIdx.x == 0) {
      for (std::uint64_t& barrier : memory_.arrived) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
      }
      show_mbarriers();
    }
    __syncwarp();
    cluster_arrive_relaxed();
#endif
  }

  __device__ int rank() const { return static_cast<int>(rank_); }
  __device__ int blocks() const { return static_cast<int>(blocks_); }

  /// Waits for all blocks; what was written before is visible afterwards. Takes longer than an
  /// exchange: all memory of all threads is waited for.
  __device__ void barrier() {
    if (blocks_ == 1) return __syncthreads();
#if __CUDA_ARCH__ >= 900
    meet();
    race_delay(0);
    __syncwarp();
    cluster_arrive();
    wait_for_blocks();
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

  /// Begins an exchange and returns which of two places it uses.
  __device__ unsigned begin_exchange() {
    meet();
    ++turn_;
    race_delay(1);
    return place();
  }

  /// Sends a value to the same object in every block, as a part of the exchange that has begun. By
  /// one thread.
  template <class T>
  __device__ void send_to_all(T const& value, T* own) const {
    for (int to = 0; to < blocks(); ++to) send(value, own, to);
  }

  /// Ends an exchange with one value of each block, by rank. `value` is the same in all threads of
  /// a block; `bytes_sent` is what all blocks sent to this one before.
  template <class T>
  __device__ T const* exchange(T const& value, team_slots<T>& slots, unsigned bytes_sent = 0) {
    auto const to = static_cast<int>(threadIdx.x);
    T* const own = &slots.value[place()][rank_];
    if (blocks_ > 1 && to == 0) expect(blocks_ * sizeof(T) + bytes_sent);
    if (to < blocks()) send(value, own, to);
    await();
    return slots.value[place()];
  }

  template <class T, class Op>
  __device__ T reduce(T value, Op op, team_slots<T>& slots) {
    if (blocks_ == 1) return value;
    begin_exchange();
    T const* const all = exchange(value, slots);
    value = all[0];
    for (int i = 1; i < blocks(); ++i) value = op(value, all[i]);
    return value;
  }

 private:
  __device__ unsigned place() const { return turn_ & 1u; }

  /// Every block has begun.
  __device__ void meet() {
    if (has_met_ || blocks_ == 1) return;
    wait_for_blocks();
    has_met_ = true;
  }

  __device__ void wait_for_blocks() const {
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    cluster_wait();
#endif
  }

  /// Stores to block `to`, whose mbarrier counts the bytes when they are there.
  template <class T>
  __device__ void send(T const& value, T* own, int to) const {
    if (blocks_ == 1) {
      *own = value;
      return;
    }
#if __CUDA_ARCH__ >= 900
    constexpr int words = sizeof(T) / 4;
    static_assert(sizeof(T) % 4 == 0);
    std::uint32_t word[words];
    memcpy(word, &value, sizeof(T));
    auto const rank = static_cast<std::uint32_t>(to);
    std::uint32_t const address = shared_address(own, rank);
    std::uint32_t const barrier = shared_address(&memory_.arrived[place()], rank);
#pragma unroll
    for (int w = 0; w < words; ++w) send_async(address + 4 * w, barrier, word[w]);
#endif
  }

  __device__ void expect(unsigned bytes) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(&memory_.arrived[place()])),
                 "r"(bytes)
                 : "memory");
#endif
  }

  /// All that this exchange sends to this block is there.
  __device__ void await() const {
    if (blocks_ == 1) return __syncthreads();
#if __CUDA_ARCH__ >= 900
    std::uint32_t const barrier = shared_address(&memory_.arrived[place()]);
    // Exchange 1 is the first that uses place 1, exchange 2 the first that uses place 0.
    std::uint32_t const parity = ((turn_ - 1) >> 1) & 1u;
    std::uint32_t is_done = 0;
    do {
      asm volatile(
          "{\n\t.reg .pred p;\n\t"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, p;\n\t}"
          : "=r"(is_done)
          : "r"(barrier), "r"(parity)
          : "memory");
    } while (is_done == 0);
#endif
  }

  team_memory& memory_;
  std::uint32_t rank_ = 0;
  std::uint32_t blocks_ = 1;
  unsigned turn_ = 0;
  bool has_met_ = false;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
