// SPDX-License-Identifier: Apache-2.0
// The rules give the same bits in device code as on the host.
#include "cuda_rules.hpp"
#include "support/catch.hpp"

TEST_CASE("every rule gives on the device the bits that it gives on the host", "[rules][cuda]") {
  // Odd strides that visit every exponent, sign and low bit.
  constexpr std::uint32_t stride = 2039;
  constexpr std::size_t count = 0x100000000u / stride + 1;
  for (int r = 0; r < ddtree_test::num_rules; ++r) {
    auto const which = static_cast<ddtree_test::rule>(r);
    auto const got = ddtree_test::evaluate_on_device(which, stride, count);
    std::size_t wrong = 0;
    std::uint32_t first_wrong = 0;
    for (std::size_t i = count; i-- > 0;) {
      auto const bits = static_cast<std::uint32_t>(i) * stride;
      if (got[i] == ddtree_test::evaluate(which, bits)) continue;
      ++wrong;
      first_wrong = bits;
    }
    CAPTURE(r, first_wrong);
    CHECK(wrong == 0);
  }
}
