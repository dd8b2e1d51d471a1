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
/// In two halves, so that there is something to do in between.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
/// Of this block's writes only those to mailboxes need be seen.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/// The same object in the shared memory of another block. Only between two cluster_sync(), or once
/// the block is known to be there and while it waits for what it is sent.
template <class T>
__device__ T* in_block(T* own, std::uint32_t rank) {
  T* remote;
  asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(own), "r"(rank));
  return remote;
}

/// The address of an object in shared memory, for instructions that take no pointer.
__device__ inline std::uint32_t shared_address(void const* own) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
}
/// And of the same object in another block.
__device__ inline std::uint32_t shared_address(void const* own, std::uint32_t rank) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(own)), "r"(rank));
  return remote;
}

// An mbarrier, in 8 bytes of shared memory, counts what a block waits for: arrivals, and the bytes
// that they announce. It costs neither a fence nor the L1 cache, as cluster_sync() does.

/// By the thread that initialised them, before the first cluster barrier.
__device__ inline void show_mbarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Writes 4, 8 or 16 bytes to a place in a block's shared memory, which count with an mbarrier
/// there.
template <class T>
__device__ void send_async(std::uint32_t to, std::uint32_t mbarrier, T const& value) {
  if constexpr (sizeof(T) == 4) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
        "r"(__builtin_bit_cast(std::uint32_t, value)), "r"(mbarrier)
        : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
        "l"(__builtin_bit_cast(std::uint64_t, value)), "r"(mbarrier)
        : "memory");
  } else {
    uint4 const bits = __builtin_bit_cast(uint4, value);
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(to),
        "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w), "r"(mbarrier)
        : "memory");
  }
}

#endif

/// An mbarrier that is used once in the life of a block, with one arrival of each sender.
struct mailbox {
  std::uint64_t state;

#if __CUDA_ARCH__ >= 900
  /// By one thread, before the first cluster barrier.
  __device__ void open(std::uint32_t senders) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(senders)
                 : "memory");
    show_mbarriers();
  }

  /// Announces bytes to the mailbox of a block, once per sender. It orders nothing: what is sent is
  /// visible because it has arrived.
  __device__ void announce(std::uint32_t rank, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     shared_address(this, rank)),
                 "r"(bytes)
                 : "memory");
  }

  /// Writes 4, 8 or 16 bytes to `place` of a block, which arrive in its mailbox.
  template <class T>
  __device__ void send(T* place, std::uint32_t rank, T const& value) {
    send_async(shared_address(place, rank), shared_address(this, rank), value);
  }

  /// Until everything has arrived, which is then visible.
  __device__ void wait() {
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "again:\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n\t"
        "@!done bra again;\n\t}" ::"r"(shared_address(this))
        : "memory");
  }
#endif
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
