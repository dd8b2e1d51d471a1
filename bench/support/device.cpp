// SPDX-License-Identifier: Apache-2.0
// The device, its stream and its memory.
#include "support/cuda_check.hpp"
#include "support/gpu.hpp"

#include <fstream>

namespace bench::gpu {

namespace {

cudaError_t probe() {
  int count = 0;
  cudaError_t const error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return error;
  return count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaDeviceProp const& properties() {
  static cudaDeviceProp const found = [] {
    cudaDeviceProp p;
    check(cudaGetDeviceProperties(&p, 0));
    return p;
  }();
  return found;
}

/// 13000 is 13.0.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// As nvidia-smi prints it.
std::string kernel_driver() {
  std::string version = "unknown";
  std::ifstream("/sys/module/nvidia/version") >> version;
  return version;
}

}  // namespace

bool available() { return probe() == cudaSuccess; }

std::string why_not() { return cudaGetErrorString(probe()); }

ddtree::context context() {
  static cudaStream_t const stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return ddtree::context::cuda(0, stream);
}

std::vector<std::pair<std::string, std::string>> description() {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  auto const& p = properties();
  return {{"device", p.name},
          {"compute_capability", std::to_string(p.major) + "." + std::to_string(p.minor)},
          {"multiprocessors", std::to_string(p.multiProcessorCount)},
          {"l2_bytes", std::to_string(p.l2CacheSize)},
          {"driver", kernel_driver()},
          {"cuda_driver", cuda_version(driver)},
          {"cuda_runtime", cuda_version(runtime)}};
}

std::size_t l2_bytes() { return static_cast<std::size_t>(properties().l2CacheSize); }

int multiprocessors() { return properties().multiProcessorCount; }

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  check(cudaMemsetAsync(memory, 0, bytes, context().stream));
  return memory;
}

void release(void* memory) { (void)cudaFree(memory); }  // waits for the device

void copy(void* to, void const* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context().stream));
  check(cudaStreamSynchronize(context().stream));
}

}  // namespace bench::gpu
