// SPDX-License-Identifier: Apache-2.0
// Memory for a test, in the memory space of a context, with a canary at each end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

namespace ddtree_test {

inline constexpr std::size_t canary_bytes = 256;
inline constexpr unsigned char canary_byte = 0xC5;
inline constexpr unsigned char poison_byte = 0xA7;

/// An array of T that a call reads or writes. Fresh elements are poisoned, so that what a call does
/// not write shows; `intact()` tells whether anything was written outside the array.
template <class T>
class buffer {
 public:
  buffer(ddtree::context const&, std::size_t count)
      : count_(count), memory_(canary_bytes, canary_byte) {
    memory_.resize(canary_bytes + bytes(), poison_byte);
    memory_.resize(canary_bytes + bytes() + canary_bytes, canary_byte);
  }
  buffer(ddtree::context const& ctx, std::vector<T> const& values) : buffer(ctx, values.size()) {
    assign(values);
  }

  /// Where the array stands, in the context's memory.
  T* data() { return reinterpret_cast<T*>(memory_.data() + canary_bytes); }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

  void assign(std::vector<T> const& values) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  void poison() {
    for (std::size_t i = 0; i < bytes(); ++i) memory_[canary_bytes + i] = poison_byte;
  }

  /// A copy on the host.
  std::vector<T> values() const {
    std::vector<T> out(count_);
    if (count_ != 0) std::memcpy(out.data(), memory_.data() + canary_bytes, bytes());
    return out;
  }

  bool intact() const {
    for (std::size_t i = 0; i < canary_bytes; ++i) {
      if (memory_[i] != canary_byte || memory_[memory_.size() - 1 - i] != canary_byte) return false;
    }
    return true;
  }

  ddtree::workspace as_workspace() { return {data(), bytes()}; }

 private:
  std::size_t count_;
  std::vector<unsigned char> memory_;
};

/// The value that a fresh buffer holds everywhere.
template <class T>
T poisoned() {
  T value;
  std::memset(&value, poison_byte, sizeof(T));
  return value;
}

}  // namespace ddtree_test
