// SPDX-License-Identifier: Apache-2.0
#include "cuda_rules.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace ddtree_test {
namespace {

constexpr unsigned block_threads = 256;

__global__ void __launch_bounds__(block_threads)
    evaluate_kernel(rule which, std::uint32_t stride, std::size_t count, std::uint64_t* out) {
  std::size_t const i = std::size_t{blockIdx.x} * block_threads + threadIdx.x;
  if (i < count) out[i] = evaluate(which, static_cast<std::uint32_t>(i) * stride);
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace

std::vector<std::uint64_t> evaluate_on_device(rule which, std::uint32_t stride, std::size_t count) {
  std::vector<std::uint64_t> result(count);
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(std::uint64_t)));
  auto* const out = static_cast<std::uint64_t*>(memory);
  auto const blocks = static_cast<unsigned>((count + block_threads - 1) / block_threads);
  evaluate_kernel<<<blocks, block_threads>>>(which, stride, count, out);
  cudaError_t const launched = cudaGetLastError();
  cudaError_t const copied = cudaMemcpy(result.data(), memory, count * sizeof(std::uint64_t),
                                        cudaMemcpyDeviceToHost);
  cudaError_t const freed = cudaFree(memory);
  check(launched);
  check(copied);
  check(freed);
  return result;
}

}  // namespace ddtree_test
