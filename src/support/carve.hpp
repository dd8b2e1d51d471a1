// SPDX-License-Identifier: Apache-2.0
// Cuts arrays out of a workspace. The same code computes the size and the pointers, so that the two
// cannot drift: run it over a `carver` without memory to count, over one with memory to use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

class carver {
 public:
  /// Counts only: every pointer taken is null.
  carver() = default;

  explicit carver(workspace memory)
      : begin_(reinterpret_cast<std::uintptr_t>(memory.data)), counting_(false) {}

  /// The next `count` elements, aligned for any access of either backend.
  template <class T>
  T* take(index_t count) {
    std::uintptr_t const at = aligned(begin_ + used_) - begin_;
    used_ = at + static_cast<std::size_t>(count) * sizeof(T);
    return counting_ ? nullptr : reinterpret_cast<T*>(begin_ + at);
  }

  /// What a workspace at any address needs; 0 where nothing was taken.
  std::size_t bytes() const { return used_ == 0 ? 0 : used_ + alignment - 1; }

 private:
  static constexpr std::size_t alignment = 256;
  static std::uintptr_t aligned(std::uintptr_t address) {
    return (address + alignment - 1) / alignment * alignment;
  }

  std::uintptr_t begin_ = 0;
  std::size_t used_ = 0;
  bool counting_ = true;
};

}  // namespace support
}  // namespace v0
}  // namespace ddtree
