// SPDX-License-Identifier: Apache-2.0
// Memory of a context as `buffer` has it, but a GPU's own, which the host sees by copying: for
// inputs that are read more than once and for results that kernels read back. Needs CUDA.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include "support/buffer.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ddtree_test {

inline void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// An array of T in a context's memory, poisoned where no values are given, with a canary at each
/// end.
template <class T>
class device_array {
 public:
  device_array(ddtree::context const& ctx, std::size_t count) : ctx_(ctx), count_(count) {
    std::vector<unsigned char> fresh(count * sizeof(T) + 2 * canary_bytes, poison_byte);
    std::fill_n(fresh.begin(), canary_bytes, canary_byte);
    std::fill_n(fresh.end() - canary_bytes, canary_bytes, canary_byte);
    fill(fresh);
  }
  device_array(ddtree::context const& ctx, std::vector<T> const& values)
      : ctx_(ctx), count_(values.size()) {
    std::vector<unsigned char> fresh(count_ * sizeof(T) + 2 * canary_bytes, canary_byte);
    if (count_ != 0) std::memcpy(&fresh[canary_bytes], values.data(), count_ * sizeof(T));
    fill(fresh);
  }
  device_array(device_array const&) = delete;
  device_array& operator=(device_array const&) = delete;
  ~device_array() {
    if (memory_ != nullptr) (void)cudaFree(memory_);
  }

  T* data() {
    unsigned char* const memory = is_on_device() ? memory_ : host_.data();
    return reinterpret_cast<T*>(memory + canary_bytes);
  }
  std::size_t size() const { return count_; }
  ddtree::workspace as_workspace() { return {data(), count_ * sizeof(T)}; }

  /// What stands there when all that was enqueued is done. Throws where a canary was overwritten.
  std::vector<T> values() const {
    std::vector<unsigned char> copied;
    if (is_on_device()) {
      copied.resize(count_ * sizeof(T) + 2 * canary_bytes);
      check_cuda(cudaMemcpyAsync(copied.data(), memory_, copied.size(), cudaMemcpyDeviceToHost,
                                 ctx_.stream));
      check_cuda(cudaStreamSynchronize(ctx_.stream));
    }
    std::vector<unsigned char> const& all = is_on_device() ? copied : host_;
    auto const is_canary = [](unsigned char byte) { return byte == canary_byte; };
    if (!std::all_of(all.begin(), all.begin() + canary_bytes, is_canary) ||
        !std::all_of(all.end() - canary_bytes, all.end(), is_canary)) {
      throw std::logic_error("written outside an array");
    }
    std::vector<T> out(count_);
    if (count_ != 0) std::memcpy(out.data(), &all[canary_bytes], count_ * sizeof(T));
    return out;
  }

 private:
  bool is_on_device() const { return ctx_.backend == ddtree::backend_kind::cuda; }

  void fill(std::vector<unsigned char>& fresh) {
    if (!is_on_device()) {
      host_ = std::move(fresh);
      return;
    }
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, fresh.size()));
    memory_ = static_cast<unsigned char*>(memory);
    check_cuda(cudaMemcpyAsync(memory_, fresh.data(), fresh.size(), cudaMemcpyHostToDevice,
                               ctx_.stream));
    check_cuda(cudaStreamSynchronize(ctx_.stream));
  }

  ddtree::context ctx_;
  std::size_t count_;
  unsigned char* memory_ = nullptr;
  std::vector<unsigned char> host_;
};

}  // namespace ddtree_test
