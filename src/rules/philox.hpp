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

DDTREE_HD constexpr philox_counter philox4x32(philox_counter c, philox_key k) noexcept {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = static_cast<std::uint64_t>(0xd2511f53u) * c.word[0];
    std::uint64_t const b = static_cast<std::uint64_t>(0xcd9e8d57u) * c.word[2];
    c = {{static_cast<std::uint32_t>(b >> 32) ^ c.word[1] ^ k.word[0],
          static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ c.word[3] ^ k.word[1],
          static_cast<std::uint32_t>(a)}};
    // Weyl sequence of the golden ratio and of sqrt(3) - 1.
    k = {{k.word[0] + 0x9e3779b9u, k.word[1] + 0xbb67ae85u}};
  }
  return c;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
