// SPDX-License-Identifier: Apache-2.0
// Device memory with room for rows more than 2^31 elements apart, of which few are touched. Needs
// CUDA.
#pragma once

#include "support/device_array.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddtree_test {

class huge_memory {
 public:
  /// `data()` is null where the device has too little.
  huge_memory(ddtree::context const& ctx, std::size_t bytes) : ctx_(ctx) {
    if (cudaMalloc(&memory_, bytes) != cudaSuccess) {
      memory_ = nullptr;
      (void)cudaGetLastError();
    }
  }
  huge_memory(huge_memory const&) = delete;
  huge_memory& operator=(huge_memory const&) = delete;
  ~huge_memory() { (void)cudaFree(memory_); }

  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }

  void write(std::int64_t at, void const* from, std::size_t bytes) const {
    copy(data() + at, from, bytes);
  }
  std::vector<unsigned char> read(std::int64_t at, std::size_t bytes) const {
    std::vector<unsigned char> out(bytes);
    copy(out.data(), data() + at, bytes);
    return out;
  }

 private:
  void copy(void* to, void const* from, std::size_t bytes) const {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ctx_.stream));
    check_cuda(cudaStreamSynchronize(ctx_.stream));
  }

  ddtree::context ctx_;
  void* memory_ = nullptr;
};

}  // namespace ddtree_test
