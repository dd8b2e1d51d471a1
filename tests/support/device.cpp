// SPDX-License-Identifier: Apache-2.0
#include "support/device.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#if defined(DDTREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace ddtree_test {

ddtree::backend_kind tested_backend() {
  char const* const name = std::getenv("DDTREE_TEST_BACKEND");
  bool const cuda = name != nullptr && std::string_view(name) == "cuda";
  return cuda ? ddtree::backend_kind::cuda : ddtree::backend_kind::cpu;
}

#if defined(DDTREE_WITH_CUDA)

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

cudaStream_t test_stream() {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
  return cudaStreamPerThread;
#else
  static cudaStream_t const stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
#endif
}

}  // namespace

bool has_cuda_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

ddtree::context cuda_context() { return ddtree::context::cuda(0, test_stream()); }

void* allocate(ddtree::context const& ctx, std::size_t bytes) {
  if (ctx.backend == ddtree::backend_kind::cpu) return ::operator new(bytes);
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped));
  return memory;
}

void release(ddtree::context const& ctx, void* memory) {
  if (ctx.backend == ddtree::backend_kind::cpu) return ::operator delete(memory);
  (void)cudaFreeHost(memory);  // waits for the device
}

void wait_for(ddtree::context const& ctx) {
  if (ctx.backend == ddtree::backend_kind::cuda) check(cudaStreamSynchronize(test_stream()));
}

#else

bool has_cuda_device() { return false; }

ddtree::context cuda_context() { throw std::logic_error("a build without CUDA"); }

void* allocate(ddtree::context const&, std::size_t bytes) { return ::operator new(bytes); }

void release(ddtree::context const&, void* memory) { ::operator delete(memory); }

void wait_for(ddtree::context const&) {}

#endif

}  // namespace ddtree_test
