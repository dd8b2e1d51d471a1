// SPDX-License-Identifier: Apache-2.0
// Memory for a test, in the memory space of a context, with a canary at each end.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include "support/device.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace ddtree_test {

inline constexpr std::size_t canary_bytes = 256;
inline constexpr unsigned char canary_byte = 0xC5;
inline constexpr unsigned char poison_byte = 0xA7;

/// An array of T that a call reads or writes. Fresh elements are poisoned, so that what a call does
/// not write shows; `intact()` tells whether anything was written outside the array.
template <class T>
class buffer {
 public:
  buffer(ddtree::context const& ctx, std::size_t count)
      : ctx_(ctx),
        count_(count),
        memory_(static_cast<unsigned char*>(allocate(ctx, bytes() + 2 * canary_bytes))) {
    std::memset(memory_, canary_byte, canary_bytes);
    std::memset(memory_ + canary_bytes + bytes(), canary_byte, canary_bytes);
    poison();
  }
  buffer(ddtree::context const& ctx, std::vector<T> const& values) : buffer(ctx, values.size()) {
    assign(values);
  }
  buffer(buffer const& other) : buffer(other.ctx_, other.values()) {}
  /// The array stays where it is; `other` has none any more.
  buffer(buffer&& other) noexcept
      : ctx_(other.ctx_), count_(other.count_), memory_(std::exchange(other.memory_, nullptr)) {}
  buffer& operator=(buffer other) {
    std::swap(ctx_, other.ctx_);
    std::swap(count_, other.count_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~buffer() {
    if (memory_ != nullptr) release(ctx_, memory_);
  }

  /// Where the array stands, in memory that the context's backend and the host share. A look at it
  /// after a call needs `wait_for`.
  T* data() { return reinterpret_cast<T*>(memory_ + canary_bytes); }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

  void assign(std::vector<T> const& values) {
    wait_for(ctx_);
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  void poison() {
    wait_for(ctx_);
    std::memset(memory_ + canary_bytes, poison_byte, bytes());
  }

  /// A copy of what stands there when all that was enqueued is done.
  std::vector<T> values() const {
    wait_for(ctx_);
    std::vector<T> out(count_);
    if (count_ != 0) std::memcpy(out.data(), memory_ + canary_bytes, bytes());
    return out;
  }

  bool intact() const {
    wait_for(ctx_);
    unsigned char const* const behind = memory_ + canary_bytes + bytes();
    for (std::size_t i = 0; i < canary_bytes; ++i) {
      if (memory_[i] != canary_byte || behind[i] != canary_byte) return false;
    }
    return true;
  }

  ddtree::workspace as_workspace() { return {data(), bytes()}; }

 private:
  ddtree::context ctx_;
  std::size_t count_;
  unsigned char* memory_;
};

/// The value that a fresh buffer holds everywhere.
template <class T>
T poisoned() {
  T value;
  std::memset(&value, poison_byte, sizeof(T));
  return value;
}

}  // namespace ddtree_test
