// SPDX-License-Identifier: Apache-2.0
// Where the ranks compute, and memory there: cpu_memory.cpp or gpu_memory.cpp.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include <cstddef>
#include <vector>

/// GPUs of this machine, 0 in a build without CUDA.
int count_gpus();
/// A stream of its own on a GPU; the CPU where there is none.
ddtree::context context_on(int gpu);

void* allocate(ddtree::context const& ctx, std::size_t bytes);
void release(ddtree::context const& ctx, void* memory);
/// In any direction, after all that was enqueued on the context. Waits.
void copy(ddtree::context const& ctx, void* to, void const* from, std::size_t bytes);

/// An array in the memory of a context.
template <class T>
class array {
 public:
  array(ddtree::context const& ctx, std::size_t count, T value = {})
      : ctx_(ctx), count_(count), data_(static_cast<T*>(allocate(ctx, count * sizeof(T)))) {
    write(std::vector<T>(count, value));
  }
  array(array const&) = delete;
  array& operator=(array const&) = delete;
  ~array() { release(ctx_, data_); }

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  ddtree::workspace as_workspace() const { return {data_, bytes()}; }

  void write(std::vector<T> const& values) { copy(ctx_, data_, values.data(), bytes()); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    copy(ctx_, values.data(), data_, bytes());
    return values;
  }

 private:
  ddtree::context ctx_;
  std::size_t count_;
  T* data_;
};
