// SPDX-License-Identifier: Apache-2.0
// expand against the oracle.
#include "ddtree/expand.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/expand_cases.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::operation;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();
constexpr std::uint32_t no_flags = 0;

}  // namespace

namespace {

void check_random_rows(dtype type, int vocab, int top_k) {
  CAPTURE(static_cast<int>(type), vocab, top_k);
  expand_case c;
  c.type = type;
  c.shape = expand_shape(2, vocab, 2, top_k);
  set_random_rows(c, static_cast<std::uint32_t>(vocab * 7 + top_k));
  check_everywhere(c);
}

}  // namespace

TEST_CASE("expand finds the top_k of random rows and their log-probs", "[expand]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  auto const vocab = GENERATE(1, 2, 7, 15, 16, 17, 63, 64, 65, 1000, 1023, 1024, 1025, 3001);
  auto const top_k = GENERATE(1, 5, 64, 1024);
  check_random_rows(type, vocab, top_k);
}

TEST_CASE("expand finds the top_k of a few random rows", "[expand][small]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  auto const vocab = GENERATE(1, 65, 1025);
  auto const top_k = GENERATE(5, 1024);
  check_random_rows(type, vocab, top_k);
}

TEST_CASE("expand reads rows where their strides say", "[expand][small]") {
  expand_case c;
  c.shape = expand_shape(3, 1001, 4, 20);
  c.type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  set_random_rows(c, 5);
  expand_result const dense = check_everywhere(c);
  SECTION("rows longer than the vocabulary, their padding never read") {
    c.columns = 1003;
    c.row_stride = 1009;
  }
  SECTION("requests further apart than the depth") { c.batch_stride = 7; }
  SECTION("requests that overlap") {
    c.batch_stride = 4;
    c.row_stride = 1001;
  }
  SECTION("a packed buffer, int32 and int64 offsets") {
    c.id_type = GENERATE(dtype::i32, dtype::i64);
    c.row_offset = {{9, 0, 4}};
    c.row_stride = 1024;
  }
  SECTION("a pointer aligned to the element only") { c.shift = 1; }
  // What reads aligned rows may add up in another order: log-probs are held against the oracle.
  expand_result const got = check_everywhere(c);
  CHECK(got.token == dense.token);
  CHECK(got.flags == dense.flags);
}

TEST_CASE("expand addresses rows in 64 bits", "[expand]") {
  // The view begins 3e9 rows of 16 elements before the memory that holds its one row.
  std::vector<float> const x{1.0f, 3.0f, 2.0f};
  std::int64_t const offset = 3'000'000'000;
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    buffer<float> logits(ctx, x);
    buffer<std::int64_t> row_offset(ctx, std::vector<std::int64_t>{offset});
    auto const shape = expand_shape(1, 3, 1, 2);
    candidate_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::expand_workspace_bytes(ctx, shape));
    auto const begin = reinterpret_cast<std::uintptr_t>(logits.data()) -
                       static_cast<std::uintptr_t>(offset) * 16 * sizeof(float);
    ddtree::logits_view draft{reinterpret_cast<void const*>(begin), dtype::f32};
    draft.row_stride = 16;
    draft.row_offset = row_offset.data();
    REQUIRE(ddtree::expand(ctx, shape, {}, draft, out.view(), scratch.as_workspace()));
    CHECK(out.token.values() == std::vector<ddtree::token_t>{1, 2});
  }
}

TEST_CASE("expand orders equal logits by id", "[expand]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  SECTION("all equal") {
    auto const top_k = GENERATE(1, 64, 1024);
    std::vector<float> const x(5000, GENERATE(0.0f, -3.5f, 7.25f));
    auto const got = check_everywhere(one_row(x, top_k, type));
    for (std::size_t rank = 0; rank < got.token.size(); ++rank) {
      REQUIRE(got.token[rank] == static_cast<int>(rank));
    }
  }
  SECTION("-0 and +0") {
    auto const got = check_everywhere(one_row({-0.0f, 0.0f, -1.0f, 0.0f, -0.0f}, 4, type));
    CHECK(got.token == std::vector<ddtree::token_t>{0, 1, 3, 4});
  }
  SECTION("a run of equal values across the cut") {
    std::vector<float> x(4096, -1.0f);
    for (std::size_t i = 100; i < 4096; i += 37) x[i] = 2.0f;
    x[4000] = 3.0f;
    auto const got = check_everywhere(one_row(x, 3, type));
    CHECK(got.token == std::vector<ddtree::token_t>{4000, 100, 137});
  }
  SECTION("few values, many ties, in every chunk") {
    std::mt19937 engine(3);
    std::vector<float> x(20000);
    for (float& value : x) value = static_cast<float>(engine() % 5);
    check_everywhere(one_row(x, GENERATE(1, 64, 700), type));
  }
}

TEST_CASE("expand keeps bf16 ties across the cut by id", "[expand]") {
  expand_case c;
  c.shape = expand_shape(1, 50000, 3, 64);
  c.type = dtype::bf16;
  set_random_rows(c, 77);
  check_everywhere(c);
}

TEST_CASE("expand takes rows in any order of values", "[expand]") {
  auto const top_k = GENERATE(1, 64, 1024);
  std::vector<float> x(30000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 1e-3f;
  SECTION("ascending") {}
  SECTION("descending") { std::reverse(x.begin(), x.end()); }
  SECTION("ascending in steps") {
    for (float& value : x) value = std::floor(value);
  }
  SECTION("organ pipe") { std::reverse(x.begin() + 15000, x.end()); }
  check_everywhere(one_row(x, top_k));
}

TEST_CASE("expand gives the only possible token of a one-hot row the log-prob 0",
          "[expand][small]") {
  std::vector<float> x(3000, -200.0f);
  auto const hot = GENERATE(0, 1023, 1024, 2999);
  x[static_cast<std::size_t>(hot)] = 50.0f;
  auto const got = check_everywhere(one_row(x, 3));
  CHECK(got.token == std::vector<ddtree::token_t>{hot, hot == 0 ? 1 : 0, hot < 2 ? 2 : 1});
  CHECK(got.log_prob(0) == 0.0f);
  CHECK(got.log_prob(1) == -250.0f);
}

TEST_CASE("expand orders by the logit where log-probs round to one value", "[expand][small]") {
  float const next = std::nextafter(1.0f, 2.0f);
  auto const got = check_everywhere(one_row({1.0f, next, 1000.0f, 1.0f}, 4));
  CHECK(got.token == std::vector<ddtree::token_t>{2, 1, 0, 3});
  CHECK(got.log_prob(1) == -999.0f);
  CHECK(got.log_prob(2) == -999.0f);
}

TEST_CASE("expand orders by the logit where scaling makes two values one", "[expand][small]") {
  auto c = one_row({3.0e38f, 3.2e38f, 1.0f, -3.0e38f}, 4);
  c.temperature = 0.5f;
  auto const got = check_everywhere(c);
  CHECK(got.token == std::vector<ddtree::token_t>{1, 0, 2, 3});
  // z is held to the finite range: the first two share the largest float.
  CHECK(got.log_prob(0) == 0.0f);
  CHECK(got.log_prob(1) == 0.0f);
}

TEST_CASE("expand keeps rows of large finite logits apart from infinity", "[expand][small]") {
  SECTION("all at the lower end") {
    auto c = one_row({-3.2e38f, -3.0e38f, -inf}, 3);
    c.temperature = GENERATE(1.0f, 0.5f);
    auto const got = check_everywhere(c);
    CHECK(got.token == std::vector<ddtree::token_t>{1, 0, 0});
    CHECK(got.log_prob(0) == 0.0f);
    CHECK(got.log_prob(2) == -inf);
  }
  SECTION("both ends") {
    auto const got = check_everywhere(one_row({-largest, largest, -inf}, 3));
    CHECK(got.token == std::vector<ddtree::token_t>{1, 0, 0});
    CHECK(got.log_prob(0) == 0.0f);
  }
}

TEST_CASE("expand counts NaN as -inf and +inf as the largest float, and says so", "[expand]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  SECTION("NaN") {
    auto const got = check_everywhere(one_row({quiet_nan, 1.0f, -quiet_nan, 2.0f}, 3, type));
    CHECK(got.token == std::vector<ddtree::token_t>{3, 1, 0});
    CHECK(got.log_prob(2) == -inf);
    CHECK(got.flags[0] == ddtree::flag::draft_nan);
  }
  SECTION("+inf, by id") {
    auto const got = check_everywhere(one_row({1.0f, inf, 2.0f, inf}, 3, type));
    CHECK(got.token == std::vector<ddtree::token_t>{1, 3, 2});
    // ln 2 is nothing beside the largest float.
    CHECK(got.log_prob(0) == 0.0f);
    CHECK(got.log_prob(1) == 0.0f);
    CHECK(got.flags[0] == ddtree::flag::draft_nan);
  }
  SECTION("-inf is ordinary") {
    auto const got = check_everywhere(one_row({-inf, 1.0f, -inf}, 3, type));
    CHECK(got.token == std::vector<ddtree::token_t>{1, 0, 0});
    CHECK(got.log_prob(0) == 0.0f);
    CHECK(got.log_prob(1) == -inf);
    CHECK(got.flags[0] == no_flags);
  }
  SECTION("rows without a finite logit") {
    float const value = GENERATE(-inf, quiet_nan);
    auto const got = check_everywhere(one_row(std::vector<float>(1500, value), 2, type));
    CHECK(got.token == std::vector<ddtree::token_t>{0, 0});
    CHECK(got.log_prob(0) == -inf);
    CHECK(got.log_prob(1) == -inf);
  }
  SECTION("the last element of a row, and only its own request") {
    expand_case c;
    c.type = type;
    c.shape = expand_shape(3, 2049, 2, 4);
    set_random_rows(c, 9);
    c.rows[3][2048] = encode(type, GENERATE(quiet_nan, inf));
    auto const got = check_everywhere(c);
    CHECK(got.flags == std::vector<std::uint32_t>{0, ddtree::flag::draft_nan, 0});
  }
  SECTION("sprinkled") {
    expand_case c;
    c.type = type;
    c.shape = expand_shape(2, 5000, 2, 64);
    set_random_rows(c, 10);
    float const odd[] = {quiet_nan, inf, -inf, -quiet_nan, -0.0f};
    for (auto& row : c.rows) {
      for (std::size_t i = 11; i < row.size(); i += 13) row[i] = encode(type, odd[i % 5]);
    }
    check_everywhere(c);
  }
}

TEST_CASE("expand decodes every f16 and bf16", "[expand]") {
  auto const type = GENERATE(dtype::f16, dtype::bf16);
  // Ids run through the bit patterns in a scattered order.
  expand_case c;
  c.type = type;
  c.shape = expand_shape(1, 65536 / 64, 64 / 4, 1024);
  c.rows.resize(c.row_count());
  for (auto& row : c.rows) row.resize(1024);
  SECTION("finite patterns") {
    for (std::uint32_t part = 0; part < 4; ++part) {
      for (std::uint32_t i = 0; i < 16384; ++i) {
        std::uint32_t const bits = (i * 4 + part) * 40503u & 0xffffu;
        float const x = decode(type, bits);
        // Beyond ±1e4 log-probs say little of the others.
        c.rows[i % 16][i / 16] = std::fabs(x) < 1e4f ? bits : encode(type, -1.0f);
      }
      check_everywhere(c);
    }
  }
  SECTION("all patterns") {
    for (std::uint32_t part = 0; part < 4; ++part) {
      for (std::uint32_t i = 0; i < 16384; ++i) {
        c.rows[i % 16][i / 16] = (i * 4 + part) * 40503u & 0xffffu;
      }
      check_everywhere(c);
    }
  }
}

TEST_CASE("expand at depth 0 writes the flags only", "[expand][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    auto const shape = expand_shape(3, 100, 0, 8);
    buffer<std::uint32_t> flags(ctx, 3);
    REQUIRE(ddtree::expand_workspace_bytes(ctx, shape) == 0);
    REQUIRE(ddtree::expand(ctx, shape, {}, {}, {nullptr, nullptr, flags.data()}, {}));
    CHECK(flags.values() == std::vector<std::uint32_t>{0, 0, 0});
    CHECK(flags.intact());
  }
  expand_case c;
  c.shape = expand_shape(3, 100, 0, 8);
  check_everywhere(c);
  check_shards(c, even_split(100, 2), 50);
}

TEST_CASE("expand of batch 0 takes null arrays", "[expand][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    auto const shape = expand_shape(0, 100, 15, 8);
    CHECK(ddtree::expand(ctx, shape, {}, {}, {}, {}));
    CHECK(ddtree::expand_shard(ctx, shape, {}, {}, {}, {}, {}));
    CHECK(ddtree::expand_merge(ctx, shape, {}, {nullptr, 2, 0}, {}, {}));
  }
}

TEST_CASE("expand reads nothing of inactive requests", "[expand][small]") {
  expand_case c;
  c.id_type = GENERATE(dtype::i32, dtype::i64);
  c.shape = expand_shape(6, 1030, 2, 9);
  c.shape.requests = 4;
  set_random_rows(c, 21);
  c.request = {{2, -1, 4, 0, 1, 3}};
  c.cache_len = {{17, -1, 0, 1 << 30}};
  // Rows of inactive requests would lie far outside the memory.
  c.row_offset = {{0, 1 << 30, 1 << 30, 2, 1 << 30, 4}};
  c.temperature_by_request = {1.0f, quiet_nan, 0.5f, 2.0f};
  auto const got = check_everywhere(c);
  for (std::size_t const b : {1u, 2u, 4u}) {
    CHECK(got.token[b * 18] == 0);
    CHECK(got.log_prob(b * 18) == -inf);
    CHECK(got.flags[b] == no_flags);
  }
}

TEST_CASE("expand counts a cache length beyond 2^40 as inactive", "[expand][small]") {
  expand_case c;
  c.id_type = dtype::i64;
  c.shape = expand_shape(2, 50, 1, 3);
  set_random_rows(c, 22);
  c.cache_len = {{std::int64_t{1} << 40, (std::int64_t{1} << 40) + 1}};
  auto const got = check_everywhere(c);
  CHECK(got.log_prob(0) > -inf);
  CHECK(got.log_prob(3) == -inf);
}

TEST_CASE("expand divides by the temperature", "[expand]") {
  expand_case c;
  c.shape = expand_shape(8, 2000, 2, 16);
  set_random_rows(c, 31);
  SECTION("one for all") {
    c.temperature = GENERATE(0.5f, 0.7f, 1.0f, 2.0f, 1e-3f, 1e6f);
    check_everywhere(c);
  }
  SECTION("one that does not count is 1") {
    expand_result const plain = check_everywhere(c);
    c.temperature = GENERATE(0.0f, -0.0f, -1.0f, quiet_nan, inf, -inf);
    CHECK(check_everywhere(c) == plain);
  }
  SECTION("a subnormal one") {
    c.temperature = 1e-45f;
    check_everywhere(c);
  }
  SECTION("by request, which takes precedence") {
    c.temperature = 3.0f;
    c.shape.requests = 9;
    c.request = {{8, 7, 6, 5, 4, 3, 2, 1}};
    c.temperature_by_request = {9.0f, 0.0f, -2.0f, quiet_nan, inf, 0.25f, 1.5f, 1.0f, 1e-45f};
    check_everywhere(c);
  }
}

TEST_CASE("expand translates draft ids with a vocab_map", "[expand]") {
  expand_case c;
  c.id_type = GENERATE(dtype::i32, dtype::i64);
  std::mt19937 engine(41);
  SECTION("a smaller drafter") {
    c.shape = expand_shape(2, 50000, 2, 64);
    c.columns = 3001;
    set_random_rows(c, 42, c.columns);
    c.vocab_map.emplace();
    for (index_t id = 0; id < c.columns; ++id) c.vocab_map->push_back(49999 - id * 16);
    check_everywhere(c);
  }
  SECTION("a larger drafter, with tokens that the target lacks") {
    c.shape = expand_shape(2, 900, 2, 64);
    c.columns = 2500;
    c.row_stride = 2600;
    set_random_rows(c, 43, c.columns);
    c.vocab_map.emplace();
    for (index_t id = 0; id < c.columns; ++id) {
      c.vocab_map->push_back(static_cast<std::int64_t>(engine() % 1200) - 300 < 0
                                 ? -1
                                 : static_cast<std::int64_t>(engine() % 900));
    }
    auto const got = check_everywhere(c);
    CHECK(got.flags == std::vector<std::uint32_t>{0, 0});
  }
  SECTION("entries out of range count as -1 and are told") {
    c.shape = expand_shape(1, 10, 1, 4);
    c.set_row(0, {5.0f, 4.0f, 3.0f, 2.0f, 1.0f, 0.0f});
    c.columns = 6;
    c.vocab_map = {{10, 7, -2, 9, -1, 0}};
    auto const got = check_everywhere(c);
    CHECK(got.token == std::vector<ddtree::token_t>{7, 9, 0, 0});
    CHECK(got.log_prob(2) < got.log_prob(1));
    CHECK(got.log_prob(2) > -inf);
    CHECK(got.log_prob(3) == -inf);
    CHECK(got.flags[0] == ddtree::flag::id_out_of_range);
  }
  SECTION("-1 is no error, and NaN there is not met") {
    c.shape = expand_shape(1, 10, 1, 3);
    c.set_row(0, {quiet_nan, 4.0f, inf});
    c.columns = 3;
    c.vocab_map = {{-1, 3, -1}};
    auto const got = check_everywhere(c);
    CHECK(got.token == std::vector<ddtree::token_t>{3, 0, 0});
    CHECK(got.log_prob(0) == 0.0f);
    CHECK(got.flags[0] == no_flags);
  }
  SECTION("two draft ids of one token, equal logits by draft id") {
    c.shape = expand_shape(1, 10, 1, 4);
    c.set_row(0, {1.0f, 1.0f, 1.0f, 1.0f});
    c.columns = 4;
    c.vocab_map = {{6, 2, 6, 1}};
    CHECK(check_everywhere(c).token == std::vector<ddtree::token_t>{6, 2, 6, 1});
  }
  SECTION("columns beyond the map are padding") {
    c.shape = expand_shape(1, 9, 1, 4);
    c.set_row(0, {1.0f, 2.0f, 3.0f});
    c.columns = 7;
    c.vocab_map = {{3, 2, 8}};
    CHECK(check_everywhere(c).token == std::vector<ddtree::token_t>{8, 2, 3, 0});
  }
  SECTION("as many columns as the vocabulary unless said") {
    c.shape = expand_shape(1, 4, 1, 4);
    c.set_row(0, {1.0f, 2.0f, 3.0f, 4.0f});
    c.vocab_map = {{3, 2, 1, 0}};
    CHECK(check_everywhere(c).token == std::vector<ddtree::token_t>{0, 1, 2, 3});
  }
}

TEST_CASE("expand adds the bias of each rank, which never lets ranks rise", "[expand][small]") {
  expand_case c;
  c.shape = expand_shape(2, 3000, 3, 40);
  set_random_rows(c, 51);
  std::mt19937 engine(52);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  c.bias.resize(3 * 40);
  SECTION("one that would reorder") {
    for (float& b : c.bias) b = normal(engine);
    check_everywhere(c);
  }
  SECTION("NaN is 0, infinities are bounded") {
    float const odd[] = {quiet_nan, inf, 0.5f, -0.25f, quiet_nan, quiet_nan};
    for (std::size_t i = 0; i < c.bias.size(); ++i) c.bias[i] = odd[i % 6];
    c.bias[30] = -inf;
    check_everywhere(c);
  }
  SECTION("a large one stops at 0") {
    std::fill(c.bias.begin(), c.bias.end(), 1000.0f);
    auto const got = check_everywhere(c);
    for (std::size_t i = 0; i < got.token.size(); ++i) REQUIRE(got.log_prob(i) == 0.0f);
  }
  SECTION("empty slots stay -inf") {
    auto d = one_row({1.0f, -inf, 2.0f}, 4);
    d.bias = {0.0f, 1.0f, inf, 1000.0f};
    auto const got = check_everywhere(d);
    CHECK(got.log_prob(2) == -inf);
    CHECK(got.log_prob(3) == -inf);
  }
  SECTION("a log-prob below all floats stays -inf") {
    auto d = one_row({-largest, largest}, 2);
    d.bias = {0.0f, inf};
    auto const got = check_everywhere(d);
    CHECK(got.token == std::vector<ddtree::token_t>{1, 0});
    CHECK(got.log_prob(1) == -inf);
  }
}

TEST_CASE("expand gives log-probs within 1e-5 over a whole vocabulary", "[expand]") {
  expand_case c;
  c.shape = expand_shape(1, 151936, 1, 64);
  SECTION("N(0, 2.5)") { set_random_rows(c, 61); }
  SECTION("a wide spread") {
    set_random_rows(c, 62);
    auto x = c.row(0);
    for (float& value : x) value *= 8.0f;
    c.set_row(0, x);
  }
  SECTION("a maximum that rises with every chunk") {
    std::vector<float> x(151936);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 1e-5f;
    c.set_row(0, x);
  }
  SECTION("two values only") {
    std::vector<float> x(151936, 0.0f);
    float const step = GENERATE(0.2f, 0.3466f, 0.9f, 5.0f);
    for (std::size_t i = 1; i < x.size(); ++i) x[i] = -step;
    c.set_row(0, x);
  }
  check_everywhere(c);
}

TEST_CASE("expand takes the largest vocabulary", "[expand]") {
  auto const vocab = static_cast<std::size_t>(ddtree::max_vocab);
  std::vector<float> x(vocab);
  for (std::size_t i = 0; i < vocab; ++i) x[i] = static_cast<float>(i % 4096) * 1e-3f;
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    auto const shape = expand_shape(1, ddtree::max_vocab, 1, 3);
    buffer<float> logits(ctx, x);
    candidate_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::expand_workspace_bytes(ctx, shape));
    REQUIRE(ddtree::expand(ctx, shape, {}, {logits.data(), dtype::f32}, out.view(),
                           scratch.as_workspace()));
    CHECK(out.token.values() == std::vector<ddtree::token_t>{4095, 8191, 12287});
    // 1024 times a geometric sum of 4096 terms.
    double const q = std::exp(-1e-3);
    double const lse = std::log(1024.0 * (1.0 - std::pow(q, 4096)) / (1.0 - q));
    CHECK(std::fabs(out.log_prob.values()[0] + lse) < 2e-5);
  }
}

TEST_CASE("expand gives a request the same bits alone and anywhere in a batch", "[expand]") {
  expand_case batch;
  batch.type = GENERATE(dtype::f32, dtype::bf16);
  batch.shape = expand_shape(5, 5003, 3, 32);
  set_random_rows(batch, 71);
  batch.temperature_by_request = {1.0f, 0.7f, 1.3f, 0.7f, 1.0f};
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    expand_result const together = run_expand(ctx, batch);
    for (std::size_t b = 0; b < 5; ++b) {
      CAPTURE(b);
      expand_case alone = batch;
      alone.shape.batch = 1;
      alone.shape.requests = 5;
      alone.request = {{static_cast<std::int64_t>(b)}};
      alone.rows.assign(batch.rows.begin() + static_cast<int>(b) * 3,
                        batch.rows.begin() + static_cast<int>(b) * 3 + 3);
      alone.row_stride = 5003 + static_cast<index_t>(b);
      alone.shift = static_cast<index_t>(b % 2);
      expand_result const single = run_expand(ctx, alone);
      for (std::size_t i = 0; i < single.token.size(); ++i) {
        REQUIRE(single.token[i] == together.token[b * 96 + i]);
        REQUIRE(single.log_prob_bits[i] == together.log_prob_bits[b * 96 + i]);
      }
    }
  }
}

TEST_CASE("expand gives the first ranks whatever top_k is", "[expand]") {
  expand_case c;
  c.shape = expand_shape(1, 9000, 2, 1024);
  set_random_rows(c, 72);
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    expand_result const all = run_expand(ctx, c);
    for (int const top_k : {1, 2, 63, 500}) {
      expand_case fewer = c;
      fewer.shape.top_k = top_k;
      expand_result const some = run_expand(ctx, fewer);
      for (std::size_t row = 0; row < 2; ++row) {
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(top_k); ++rank) {
          std::size_t const at = row * static_cast<std::size_t>(top_k) + rank;
          REQUIRE(some.token[at] == all.token[row * 1024 + rank]);
          REQUIRE(some.log_prob_bits[at] == all.log_prob_bits[row * 1024 + rank]);
        }
      }
    }
  }
}

TEST_CASE("expand gives the same bits with any number of threads", "[expand]") {
  expand_case c;
  c.shape = expand_shape(4, 4001, 5, 48);
  set_random_rows(c, 73);
  c.rows[7][9] = encode(dtype::f32, quiet_nan);
  expand_result const one = run_expand(ddtree::context::cpu(), c);
  CHECK(run_expand(ddtree::context::cpu(3), c) == one);
  CHECK(run_expand(ddtree::context::cpu(100), c) == one);
  auto const split = even_split(4001, 3);
  expand_result const merged = run_shards(ddtree::context::cpu(), c, split, 2000);
  CHECK(run_shards(ddtree::context::cpu(3), c, split, 2000) == merged);
}
