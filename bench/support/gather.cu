// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_check.hpp"
#include "support/gpu.hpp"

namespace bench::gpu {
namespace {

constexpr int threads = 256;

__global__ void gather_kernel(uint4* to, uint4 const* from, ddtree::index_t ranks,
                              ddtree::index_t rows, ddtree::index_t packets) {
  auto const count = ranks * rows * packets;
  auto const stride = static_cast<ddtree::index_t>(gridDim.x) * threads;
  for (auto i = static_cast<ddtree::index_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += stride) {
    auto const row = i / (ranks * packets);
    auto const in_row = i - row * ranks * packets;
    auto const rank = in_row / packets;
    to[i] = from[(rank * rows + row) * packets + in_row - rank * packets];
  }
}

}  // namespace

void gather(void* to, void const* from, ddtree::index_t ranks, ddtree::index_t rows,
            ddtree::index_t row_bytes) {
  auto const packets = row_bytes / static_cast<ddtree::index_t>(sizeof(uint4));
  auto const all = (ranks * rows * packets + threads - 1) / threads;
  ddtree::index_t const most = multiprocessors() * 8;
  auto const blocks = static_cast<unsigned>(all < most ? all : most);
  gather_kernel<<<blocks, threads, 0, context().stream>>>(
      static_cast<uint4*>(to), static_cast<uint4 const*>(from), ranks, rows, packets);
  check(cudaGetLastError());
}

}  // namespace bench::gpu
