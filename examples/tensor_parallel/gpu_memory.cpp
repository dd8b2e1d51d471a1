// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

bool is_on_gpu(ddtree::context const& ctx) { return ctx.backend == ddtree::backend_kind::cuda; }

}  // namespace

int count_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

ddtree::context context_on(int gpu) {
  if (count_gpus() == 0) return ddtree::context::cpu();
  cudaStream_t stream = nullptr;
  check(cudaSetDevice(gpu));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return ddtree::context::cuda(gpu, stream);
}

void* allocate(ddtree::context const& ctx, std::size_t bytes) {
  if (!is_on_gpu(ctx)) return ::operator new(bytes);
  void* memory = nullptr;
  check(cudaSetDevice(ctx.device));
  check(cudaMalloc(&memory, bytes));
  return memory;
}

void release(ddtree::context const& ctx, void* memory) {
  if (!is_on_gpu(ctx)) {
    ::operator delete(memory);
  } else {
    (void)cudaFree(memory);
  }
}

void copy(ddtree::context const& ctx, void* to, void const* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (!is_on_gpu(ctx)) {
    std::memcpy(to, from, bytes);
    return;
  }
  check(cudaSetDevice(ctx.device));
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ctx.stream));
  check(cudaStreamSynchronize(ctx.stream));
}
