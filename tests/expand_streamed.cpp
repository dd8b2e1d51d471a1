// SPDX-License-Identifier: Apache-2.0
// expand of long rows, which some variants cut into pieces, sample, and read once.
#include "ddtree/expand.hpp"

#include "support/catch.hpp"
#include "support/expand_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
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
  auto const top_k = GENERATE(64, 1024);
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

TEST_CASE("expand reads a row by two blocks", "[expand][small]") {
  // The shortest rows that variants cut.
  check_everywhere(long_rows(dtype::bf16, 32768, 64));
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

namespace {

/// Columns of `count` equal values in a row of `vocab`, as runs or far apart.
std::vector<int> columns_of_equals(std::string const& where, int count, int vocab) {
  int const eighth = vocab / 8;  // what a block of a cluster has
  int begin = 0, step = 1;
  if (where == "last") begin = vocab - count;
  if (where == "within a block's range") begin = 3 * eighth + (eighth - count) / 2;
  if (where == "across two blocks' ranges") begin = 5 * eighth - count / 2;
  if (where == "everywhere") step = vocab / count;
  std::vector<int> columns;
  for (int i = 0; i < count; ++i) columns.push_back(begin + i * step);
  return columns;
}

void check_equals_across_the_cut(dtype type, int vocab, int count, int top_k, int larger) {
  for (char const* where :
       {"first", "last", "within a block's range", "across two blocks' ranges", "everywhere"}) {
    CAPTURE(static_cast<int>(type), vocab, count, top_k, larger, where);
    expand_case c = long_rows(type, vocab, top_k);
    for (int const column : columns_of_equals(where, count, vocab)) put(c, column, 20.0f);
    // Those above the equals stand where none of these is.
    for (int i = 0, column = 1; i < larger; ++column) {
      if (decode(type, c.rows[0][sized(column)]) >= 20.0f) continue;
      put(c, column, 24.0f + static_cast<float>(i % 8));
      ++i;
    }
    check_everywhere(c);
  }
}

}  // namespace

TEST_CASE("expand cuts equal values by id, wherever in a row they stand", "[expand][small]") {
  check_equals_across_the_cut(dtype::bf16, 4096, 300, 64, GENERATE(0, 63));
}

TEST_CASE("expand cuts equal values by id, wherever in a long row they stand", "[expand]") {
  auto const count = GENERATE(300, 3000);
  auto const top_k = GENERATE(64, 1024);
  int const larger = count == 300 ? top_k - 1 : 0;
  check_equals_across_the_cut(dtype::bf16, 140000, count, top_k, larger);
}

TEST_CASE("expand of values that rise and fall by one ulp", "[expand]") {
  auto const vocab = GENERATE(16384, 140000);
  auto const top_k = GENERATE(64, 1024);
  auto const falling = GENERATE(false, true);
  CAPTURE(vocab, top_k, falling);
  expand_case c = long_rows(dtype::bf16, vocab, top_k);
  for (int column = 0; column < vocab; ++column) {
    auto const step = static_cast<std::uint32_t>(column % 16384);
    c.rows[0][sized(column)] = 0x41F0u - (falling ? step : 16383u - step);  // up to 30
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
