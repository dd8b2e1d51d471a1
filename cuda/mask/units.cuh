// SPDX-License-Identifier: Apache-2.0
// What 16 aligned bytes of a mask hold: the most that a thread stores at once.
#pragma once

#include "ddtree/mask.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline constexpr int unit_bytes = 16;

template <class Type>
inline constexpr int elements_of_unit = unit_bytes / static_cast<int>(sizeof(Type));

/// A byte per column, 1 where it is visible.
struct byte_columns {
  using type = std::uint8_t;

  __device__ uint4 unit(std::uint32_t visible) const {
    return {word(visible), word(visible >> 4), word(visible >> 8), word(visible >> 12)};
  }

 private:
  /// Four bits, a byte each: the factor puts bit k at 8k and at places that the mask drops.
  static __device__ std::uint32_t word(std::uint32_t bits) {
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
  }
};

/// A number per column: 0 where it is visible, otherwise `masked`.
template <class Type>
struct value_columns {
  using type = Type;
  std::uint32_t masked;  // its bits

  __device__ uint4 unit(std::uint32_t visible) const {
    constexpr int per_word = 4 / static_cast<int>(sizeof(type));
    return {word(visible), word(visible >> per_word), word(visible >> 2 * per_word),
            word(visible >> 3 * per_word)};
  }

 private:
  __device__ std::uint32_t word(std::uint32_t bits) const {
    std::uint32_t const low = (bits & 1u) != 0 ? 0u : masked;
    if constexpr (sizeof(type) == 4) return low;
    return low | ((bits & 2u) != 0 ? 0u : masked) << 16;
  }
};

/// The elements from `begin` to `end` of the unit that is to stand at `out`.
template <class Type>
__device__ void store_elements(Type* out, uint4 const& unit, int begin, int end) {
  if (begin == 0 && end == elements_of_unit<Type>) {
    *reinterpret_cast<uint4*>(out) = unit;
    return;
  }
  constexpr int per_word = 4 / static_cast<int>(sizeof(Type));
  std::uint32_t const words[] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    int const first = w * per_word;
    if (begin <= first && first + per_word <= end) {
      reinterpret_cast<std::uint32_t*>(out)[w] = words[w];
      continue;
    }
#pragma unroll
    for (int k = 0; k < per_word; ++k) {
      bool const is_inside = begin <= first + k && first + k < end;
      if (is_inside) out[first + k] = static_cast<Type>(words[w] >> 8 * sizeof(Type) * k);
    }
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
