// SPDX-License-Identifier: Apache-2.0
// expand of long rows, which some variants cut into pieces, sample, and read once.
#include "ddtree/expand.hpp"

#include "support/catch.hpp"
#include "support/expand_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace ddtree_test;

/// Two rows of noise, strides a multiple of 16 bytes.
expand_case long_rows(dtype type, int vocab, int top_k) {
  expand_case c;
  c.type = type;
  c.shape = expand_shape(1, vocab, 2, top_k);
  c.row_stride = (vocab + 15) / 16 * 16;
  set_random_rows(c, static_cast<std::uint32_t>(vocab + top_k));
  return c;
}

void put(expand_case& c, int column, float x) { c.rows[0][sized(column)] = encode(c.type, x); }

}  // namespace

TEST_CASE("expand reads rows of any length", "[expand][small]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  auto const vocab = GENERATE(4095, 4096);
  auto const top_k = GENERATE(1, 64, 1024);
  CAPTURE(static_cast<int>(type), vocab, top_k);
  check_everywhere(long_rows(type, vocab, top_k));
}

TEST_CASE("expand reads long rows of any length", "[expand]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  auto const vocab = GENERATE(8192, 33001, 66001, 131079);
  auto const top_k = GENERATE(1, 64, 1024);
  CAPTURE(static_cast<int>(type), vocab, top_k);
  check_everywhere(long_rows(type, vocab, top_k));
}

TEST_CASE("expand finds large logits wherever they stand in a long row", "[expand]") {
  auto const type = GENERATE(dtype::f32, dtype::bf16);
  int const vocab = 70001;
  auto const top_k = GENERATE(64, 1024);
  expand_case c = long_rows(type, vocab, top_k);
  SECTION("all in one run") {
    auto const begin = GENERATE(0, 255, 35000, vocab - 1100);
    for (int i = 0; i < 1100; ++i) put(c, begin + i, 30.0f + 0.125f * static_cast<float>(i % 64));
  }
  SECTION("in the columns of one thread") {
    for (int column = 40; column + 8 <= vocab; column += 4096) {
      for (int i = 0; i < 8; ++i) put(c, column + i, 20.0f + 0.25f * static_cast<float>(i));
    }
  }
  SECTION("so far above the rest that their exponentials overflow") {
    put(c, GENERATE(1, 3000, 69999, 70000), 250.0f);
  }
  SECTION("all others minus infinity") {
    for (int column = 0; column < vocab; ++column) {
      if (column % 1777 != 0) put(c, column, -std::numeric_limits<float>::infinity());
    }
  }
  SECTION("NaN or infinity somewhere") {
    put(c, GENERATE(0, 31000, 70000),
        GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()));
  }
  SECTION("rising") {
    for (int column = 0; column < vocab; ++column) {
      put(c, column, static_cast<float>(column) / 512.0f);
    }
  }
  SECTION("falling") {
    for (int column = 0; column < vocab; ++column) {
      put(c, column, static_cast<float>(vocab - column) / 512.0f);
    }
  }
  SECTION("all equal, and all but one") {
    for (int column = 0; column < vocab; ++column) put(c, column, 1.5f);
    if (GENERATE(false, true)) put(c, 44444, 9.0f);
  }
  SECTION("integers") {
    for (auto& bits : c.rows[0]) {
      bits = encode(type, static_cast<float>(static_cast<int>(decode(type, bits))));
    }
  }
  check_everywhere(c);
}

TEST_CASE("expand of many rows", "[expand][small]") {
  expand_case c;
  c.type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  c.shape = expand_shape(70, 4096, 10, 8);
  set_random_rows(c, 10);
  check_everywhere(c);
}

TEST_CASE("expand of many long rows", "[expand]") {
  expand_case c;
  c.type = dtype::bf16;
  c.shape = expand_shape(70, 33000, 10, 32);
  set_random_rows(c, 9);
  check_everywhere(c);
}
