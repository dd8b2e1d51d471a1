// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011), with the constants of their Random123 library.
#pragma once

#include "rules/hd.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

struct philox_counter {
  std::uint32_t word[4];
};
struct philox_key {
  std::uint32_t word[2];
};

/// The upper half of a product. Of the 64-bit product of two words nvcc adds up zeros.
DDTREE_HD constexpr std::uint32_t high_product(std::uint32_t a, std::uint32_t b) noexcept {
#if defined(__CUDA_ARCH__)
  return __umulhi(a, b);
#else
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(a) * b) >> 32);
#endif
}

DDTREE_HD constexpr philox_counter philox4x32(philox_counter c, philox_key k) noexcept {
  for (int round = 0; round < 10; ++round) {
    constexpr std::uint32_t m0 = 0xd2511f53u, m1 = 0xcd9e8d57u;
    c = {{high_product(m1, c.word[2]) ^ c.word[1] ^ k.word[0], m1 * c.word[2],
          high_product(m0, c.word[0]) ^ c.word[3] ^ k.word[1], m0 * c.word[0]}};
    // Weyl sequence of the golden ratio and of sqrt(3) - 1.
    k = {{k.word[0] + 0x9e3779b9u, k.word[1] + 0xbb67ae85u}};
  }
  return c;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
