// SPDX-License-Identifier: Apache-2.0
#include "cuda_overlap.hpp"

namespace ddtree_test {
namespace {

constexpr int threads = 256;

/// Steps of a chain of dependent multiplications: some 100 microseconds.
constexpr unsigned idle_steps = 30000;

__device__ void copy(moved_bytes const& piece) {
  for (std::size_t i = threadIdx.x; i < piece.bytes; i += threads) piece.to[i] = piece.from[i];
}

__global__ void copy_late_kernel(moved_bytes const* pieces) {
  unsigned x = threadIdx.x;
  for (unsigned i = 0; i < idle_steps; ++i) x = x * 1664525u + 1013904223u + (x >> 16);
  moved_bytes const piece = pieces[blockIdx.x];
  // Never: it keeps the chain, which has no other use.
  if (x == 0xFFFFFFFFu && piece.bytes == 0) return;
  copy(piece);
}

__global__ void take_and_poison_kernel(moved_bytes const* pieces) {
  moved_bytes const piece = pieces[blockIdx.x];
  copy(piece);
  for (std::size_t i = threadIdx.x; i < piece.bytes; i += threads) piece.from[i] = 0xFF;
}

}  // namespace

void copy_late(cudaStream_t stream, moved_bytes const* pieces, std::size_t count) {
  copy_late_kernel<<<static_cast<unsigned>(count), threads, 0, stream>>>(pieces);
}

void take_and_poison(cudaStream_t stream, moved_bytes const* pieces, std::size_t count) {
  take_and_poison_kernel<<<static_cast<unsigned>(count), threads, 0, stream>>>(pieces);
}

}  // namespace ddtree_test
