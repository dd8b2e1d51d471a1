// SPDX-License-Identifier: Apache-2.0
// expand_shard and expand_merge, together and each alone.
#include "ddtree/expand.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/expand_cases.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::operation;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t no_flags = 0;

}  // namespace

TEST_CASE("expand over shards gives the ids of the unsharded call", "[expand][shards]") {
  expand_case c;
  c.type = GENERATE(dtype::f32, dtype::bf16);
  c.shape = expand_shape(2, 3001, 3, GENERATE(1, 64, 1024));
  set_random_rows(c, 81);
  c.temperature = 0.8f;
  auto const ranks = GENERATE(1, 2, 3, 4, 8);
  CAPTURE(ranks);
  expand_result const whole = check_everywhere(c);
  expand_result const merged = check_shards(c, even_split(3001, ranks), 3001 / ranks + 5);
  CHECK(merged.token == whole.token);
  if (ranks == 1) CHECK(merged == whole);
}

TEST_CASE("expand over shards of every type, with short and long lists",
          "[expand][shards][small]") {
  expand_case c;
  c.type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  c.shape = expand_shape(2, 900, 2, GENERATE(20, 128, 129, 300));
  set_random_rows(c, 85);
  check_shards(c, even_split(900, 2), 453);
}

TEST_CASE("expand over shards of more rows than a device has room for", "[expand][shards][small]") {
  expand_case c;
  c.type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  c.shape = expand_shape(100, 40, 4, 7);
  set_random_rows(c, 86);
  check_shards(c, even_split(40, 3), 14);
}

TEST_CASE("expand over shards takes any cut of the vocabulary", "[expand][shards][small]") {
  expand_case c;
  c.shape = expand_shape(1, 2000, 2, 40);
  set_random_rows(c, 82);
  SECTION("two ranges per rank, in columns with gaps") {
    check_shards(c, {{{{10, 700, 0}, {720, 100, 1900}}}, {{{0, 600, 700}, {601, 600, 1300}}}},
                 1300);
  }
  SECTION("the second range of a rank before its first") {
    check_shards(c, {{{{0, 500, 1500}, {600, 1000, 0}}}, {{{0, 500, 1000}, {}}}}, 1600);
  }
  SECTION("uneven, with an empty rank and one of fewer than top_k ids") {
    check_shards(c, {{{{0, 1963, 0}, {}}}, {}, {{{3, 37, 1963}, {}}}}, 1970);
  }
  SECTION("the ranks in descending order of ids") {
    auto split = even_split(2000, 4);
    std::reverse(split.begin(), split.end());
    check_shards(c, split, 500);
  }
  SECTION("rows further apart, contributions with a gap") {
    c.row_stride = 1100;
    c.batch_stride = 5;
    check_shards(c, even_split(2000, 2), 1000, 48);
  }
  SECTION("an empty rank has no logits") {
    auto const ctx = ddtree::context::cpu();
    buffer<unsigned char> out(ctx, ddtree::expand_shard_bytes(c.shape));
    buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, c.shape));
    REQUIRE(ddtree::expand_shard(ctx, c.shape, {}, {}, {}, {out.data(), out.size()},
                                 scratch.as_workspace()));
    CHECK(out.intact());
  }
}

TEST_CASE("expand over shards orders equal logits by id across ranks", "[expand][shards][small]") {
  auto split = even_split(4000, 4);
  auto c = one_row(std::vector<float>(4000, 1.5f), 70);
  SECTION("all equal") {}
  SECTION("all equal, ranks in descending order") { std::reverse(split.begin(), split.end()); }
  SECTION("all equal, the ranges of a rank in descending order") {
    split = {{{{0, 500, 3500}, {500, 400, 0}}}, {{{0, 900, 400}, {}}}};
    split.push_back({{{0, 1000, 2500}, {}}});
    split.push_back({{{0, 600, 1900}, {600, 600, 1300}}});
  }
  SECTION("few values") {
    std::mt19937 engine(83);
    std::vector<float> x(4000);
    for (float& value : x) value = static_cast<float>(engine() % 40);
    c.set_row(0, x);
  }
  SECTION("-0 and +0") {
    std::vector<float> x(4000, -0.0f);
    for (std::size_t i = 0; i < 4000; i += 3) x[i] = 0.0f;
    c.set_row(0, x);
  }
  CHECK(check_shards(c, split, 1200).token == check_everywhere(c).token);
}

TEST_CASE("expand over shards handles rows and requests as the unsharded call",
          "[expand][shards]") {
  expand_case c;
  c.shape = expand_shape(4, 1500, 2, 20);
  set_random_rows(c, 84);
  auto split = even_split(1500, 3);
  SECTION("NaN and infinities on one rank") {
    c.rows[2][700] = encode(dtype::f32, quiet_nan);
    c.rows[5][1499] = encode(dtype::f32, inf);
    auto const got = check_shards(c, split, 500);
    std::uint32_t const met = ddtree::flag::draft_nan;
    CHECK(got.flags == std::vector<std::uint32_t>{0, met, met, 0});
  }
  SECTION("a rank, or a row, without a finite logit") {
    for (std::size_t i = 0; i < 500; ++i) c.rows[1][i] = encode(dtype::f32, -inf);
    for (auto& x : c.rows[3]) x = encode(dtype::f32, -inf);
    auto const got = check_shards(c, split, 500);
    CHECK(got.log_prob(3 * 20) == -inf);
    CHECK(got.token[3 * 20] == 0);
  }
  SECTION("inactive requests") {
    c.shape.requests = 3;
    c.request = {{2, -1, 0, 7}};
    c.row_offset = {{0, 1 << 30, 2, 1 << 30}};
    c.temperature_by_request = {0.5f, quiet_nan, 2.0f};
    check_shards(c, split, 500);
  }
  SECTION("bias") {
    for (int i = 0; i < 40; ++i) c.bias.push_back(static_cast<float>(i % 7) * 0.3f - 1.0f);
    check_shards(c, split, 500);
  }
  SECTION("a vocab_map, indexed by the draft id of the whole vocabulary") {
    c.id_type = GENERATE(dtype::i32, dtype::i64);
    c.shape.vocab = 800;
    c.columns = 1500;
    c.vocab_map.emplace();
    for (std::int64_t id = 0; id < 1500; ++id) c.vocab_map->push_back(id % 3 == 0 ? -1 : id / 2);
    auto const got = check_shards(c, split, 500);
    CHECK(got.token == check_everywhere(c).token);
    c.vocab_map->at(1100) = 800;
    check_shards(c, split, 500);
  }
}

TEST_CASE("expand_shard fills its contribution as documented", "[expand][shards][small]") {
  auto const shape = expand_shape(2, 10, 2, 3);
  // Logits and ids [4 rows, 3], maxima and sums [4], flags [2]: 34 words, filled up to 36.
  REQUIRE(ddtree::expand_shard_bytes(shape) == 36 * 4);
  std::vector<float> const x{1.0f, 3.0f, quiet_nan, 2.0f, -inf, 3.0f, -inf, -inf};
  for (auto const& [name, ctx] : contexts_for(operation::expand_shard)) {
    CAPTURE(name);
    buffer<float> logits(ctx, x);
    buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{0, -1});
    buffer<std::uint32_t> out(ctx, 36);
    buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, shape));
    ddtree::logits_view shard{logits.data(), dtype::f32};
    shard.vocab = 4;
    REQUIRE(ddtree::expand_shard(ctx, shape, {nullptr, request.data()}, shard, {{{0, 4, 5}, {}}},
                                 {out.data(), out.bytes()}, scratch.as_workspace()));
    CHECK(out.intact());
    auto const words = out.values();
    std::vector<std::uint32_t> want;
    for (float const logit : {3.0f, 2.0f, 1.0f, 3.0f, -inf, -inf}) want.push_back(bits_of(logit));
    want.insert(want.end(), 6, bits_of(-inf));
    for (std::uint32_t const id : {6u, 8u, 5u, 6u, 0u, 0u}) want.push_back(id);
    want.insert(want.end(), 6, 0u);
    for (float const max : {3.0f, 3.0f, -inf, -inf}) want.push_back(bits_of(max));
    REQUIRE(std::vector<std::uint32_t>(words.begin(), words.begin() + 28) == want);
    float sum[4];
    std::memcpy(sum, words.data() + 28, sizeof sum);
    CHECK(std::fabs(sum[0] - (1.0 + std::exp(-1.0) + std::exp(-2.0))) < 1e-5);
    CHECK(sum[1] == 1.0f);
    CHECK(sum[2] == 0.0f);
    CHECK(sum[3] == 0.0f);
    CHECK(words[32] == ddtree::flag::draft_nan);
    CHECK(words[33] == 0u);

    // An active row without a finite logit.
    logits.assign(std::vector<float>(8, -inf));
    REQUIRE(ddtree::expand_shard(ctx, shape, {nullptr, request.data()}, shard, {{{0, 4, 5}, {}}},
                                 {out.data(), out.bytes()}, scratch.as_workspace()));
    CHECK(out.values()[24] == bits_of(-inf));
    CHECK(out.values()[28] == bits_of(0.0f));
  }
}

TEST_CASE("expand_shard looks at no logits of a rank without columns", "[expand][shards][small]") {
  auto const shape = expand_shape(2, 10, 2, 3);
  for (auto const& [name, ctx] : contexts_for(operation::expand_shard)) {
    CAPTURE(name);
    buffer<std::int64_t> row_offset(ctx, std::vector<std::int64_t>{std::int64_t{1} << 60, -7});
    buffer<std::uint32_t> out(ctx, 36);
    buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, shape));
    ddtree::logits_view shard;
    shard.vocab = 4;  // columns that are not this rank's
    shard.row_offset = row_offset.data();
    REQUIRE(ddtree::expand_shard(ctx, shape, {}, shard, {}, {out.data(), out.bytes()},
                                 scratch.as_workspace()));
    CHECK(out.intact());
    auto const words = out.values();
    std::vector<std::uint32_t> want(12, bits_of(-inf));
    want.insert(want.end(), 12, 0u);
    want.insert(want.end(), 4, bits_of(-inf));
    want.insert(want.end(), 6, 0u);  // sums and flags
    CHECK(std::vector<std::uint32_t>(words.begin(), words.begin() + 34) == want);
  }
}

TEST_CASE("expand_merge stays in range whatever a contribution holds", "[expand][shards][small]") {
  auto const shape = expand_shape(3, 50, 2, 8);
  std::size_t const words = ddtree::expand_shard_bytes(shape) / 4;
  std::mt19937 engine(91);
  for (auto const& [name, ctx] : contexts_for(operation::expand_merge)) {
    CAPTURE(name);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::uint32_t> noise(3 * words);
      for (auto& word : noise) word = static_cast<std::uint32_t>(engine());
      buffer<std::uint32_t> all(ctx, noise);
      candidate_buffers out(ctx, shape);
      buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, shape, 3));
      buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{1, -1, 0});
      REQUIRE(ddtree::expand_merge(ctx, shape, {nullptr, request.data()}, {all.data(), 3, 0},
                                   out.view(), scratch.as_workspace()));
      REQUIRE(out.intact());
      for (auto const token : out.token.values()) REQUIRE((token >= 0 && token < 50));
      for (float const p : out.log_prob.values()) REQUIRE(p <= 0.0f);
      for (std::size_t i = 16; i < 32; ++i) {
        REQUIRE(out.token.values()[i] == 0);
        REQUIRE(out.log_prob.values()[i] == -inf);
      }
      REQUIRE(out.flags.values()[1] == no_flags);
      auto const known = ddtree::flag::draft_nan | ddtree::flag::id_out_of_range;
      for (auto const flags : out.flags.values()) REQUIRE((flags & ~known) == no_flags);
    }
  }
}

TEST_CASE("expand_merge takes the best of lists in any order", "[expand][shards][small]") {
  // Two ranks, one row; and what one rank sent stands there twice, as after a wrong gather.
  auto const shape = expand_shape(1, 4000, 1, GENERATE(6, 100, 1024));
  auto const top_k = sized(shape.top_k);
  bool const repeats = GENERATE(false, true);
  std::mt19937 engine(92);
  for (auto const& [name, ctx] : contexts_for(operation::expand_merge)) {
    CAPTURE(name, top_k, repeats);
    std::vector<std::pair<float, std::int32_t>> best;
    std::vector<std::vector<std::uint32_t>> sent;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      std::vector<std::uint32_t> words(ddtree::expand_shard_bytes(shape) / 4, 0);
      for (std::size_t i = 0; i < top_k; ++i) {
        auto const logit = static_cast<float>(engine() % 50);
        std::int32_t const id = 2 * static_cast<std::int32_t>(i) + rank;
        words[i] = bits_of(logit);
        words[top_k + i] = static_cast<std::uint32_t>(id);
        if (repeats && rank == 1) continue;
        for (int copy = 0; copy < (repeats ? 2 : 1); ++copy) best.emplace_back(-logit, id);
      }
      words[2 * top_k] = bits_of(50.0f);
      words[2 * top_k + 1] = bits_of(1.0f);
      sent.push_back(words);
    }
    std::vector<std::uint32_t> gathered = sent[0];
    gathered.insert(gathered.end(), sent[repeats ? 0 : 1].begin(), sent[repeats ? 0 : 1].end());
    buffer<std::uint32_t> all(ctx, gathered);
    candidate_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, shape, 2));
    REQUIRE(
        ddtree::expand_merge(ctx, shape, {}, {all.data(), 2}, out.view(), scratch.as_workspace()));
    std::sort(best.begin(), best.end());
    std::vector<ddtree::token_t> want;
    for (std::size_t i = 0; i < top_k; ++i) want.push_back(best[i].second);
    CHECK(out.token.values() == want);
  }
}

TEST_CASE("expand_merge outlives one token sent by all ranks in every slot", "[expand][shards]") {
  auto const shape = expand_shape(1, 50, 1, 1024);
  index_t const ranks = 8;
  std::vector<std::uint32_t> words(ddtree::expand_shard_bytes(shape) / 4, 0);
  std::fill_n(words.begin(), 1024, bits_of(2.0f));
  std::fill_n(words.begin() + 1024, 1024, 3u);
  words[2048] = bits_of(2.0f);
  words[2049] = bits_of(1.0f);
  for (auto const& [name, ctx] : contexts_for(operation::expand_merge)) {
    CAPTURE(name);
    std::vector<std::uint32_t> gathered;
    for (index_t r = 0; r < ranks; ++r) gathered.insert(gathered.end(), words.begin(), words.end());
    buffer<std::uint32_t> all(ctx, gathered);
    candidate_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, shape, ranks));
    REQUIRE(ddtree::expand_merge(ctx, shape, {}, {all.data(), ranks}, out.view(),
                                 scratch.as_workspace()));
    CHECK(out.token.values() == std::vector<ddtree::token_t>(1024, 3));
  }
}

TEST_CASE("expand_shard looks at nothing of an unused range but its count",
          "[expand][shards][small]") {
  auto const shape = expand_shape(1, 10, 1, 3);
  index_t const far = std::numeric_limits<index_t>::max();
  std::vector<float> const x{1.0f, 3.0f, 2.0f};
  for (auto const& [name, ctx] : contexts_for(operation::expand_shard)) {
    CAPTURE(name);
    buffer<float> logits(ctx, x);
    ddtree::logits_view shard{logits.data(), dtype::f32};
    shard.vocab = 3;
    std::vector<std::vector<std::uint32_t>> sent;
    for (ddtree::vocab_range const unused :
         {ddtree::vocab_range{}, {far, 0, far}, {-far, 0, -far}, {far, 0, -far}}) {
      for (bool const first : {false, true}) {
        ddtree::vocab_ranges ranges{{{0, 3, 5}, unused}};
        if (first) std::swap(ranges.range[0], ranges.range[1]);
        buffer<std::uint32_t> out(ctx, ddtree::expand_shard_bytes(shape) / 4);
        buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, shape));
        REQUIRE(ddtree::expand_shard(ctx, shape, {}, shard, ranges, {out.data(), out.bytes()},
                                     scratch.as_workspace()));
        sent.push_back(out.values());
        sent.back().resize(9);  // what fills it up is not written
        CHECK(sent.back() == sent.front());
      }
    }
    CHECK(sent.front()[3] == 6u);
  }
}

TEST_CASE("expand_merge ends a row at an id that nobody drafted", "[expand][shards][small]") {
  // One rank, one row of six slots; the map has eight entries.
  auto const shape = expand_shape(1, 50, 1, 6);
  std::vector<std::int64_t> const map{40, 41, 42, 43, 44, 45, 46, 47};
  for (auto const& [name, ctx] : contexts_for(operation::expand_merge)) {
    for (bool const mapped : {false, true}) {
      std::int32_t const id_end = mapped ? 8 : 50;
      for (std::int32_t const damaged : {id_end, -1, std::numeric_limits<std::int32_t>::max()}) {
        CAPTURE(name, mapped, damaged);
        std::vector<float> const logits{5, 4, 3, 2, 1, 0};
        std::vector<std::int32_t> const ids{id_end - 1, 0, damaged, 3, 4, 5};
        float const max_and_sum[] = {5, 2};
        std::vector<std::uint32_t> words(ddtree::expand_shard_bytes(shape) / 4, 0);
        std::memcpy(&words[0], logits.data(), 24);
        std::memcpy(&words[6], ids.data(), 24);
        std::memcpy(&words[12], max_and_sum, 8);
        buffer<std::uint32_t> all(ctx, words);
        buffer<std::int64_t> map_memory(ctx, map);
        buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, shape, 1));
        candidate_buffers out(ctx, shape);
        ddtree::expand_options options;
        if (mapped) options.vocab_map = map_memory.data();
        options.draft_vocab = 8;
        REQUIRE(ddtree::expand_merge(ctx, shape, {}, {all.data(), 1, 0}, out.view(),
                                     scratch.as_workspace(), options));
        std::vector<ddtree::token_t> want{49, 0, 0, 0, 0, 0};
        if (mapped) want = {47, 40, 0, 0, 0, 0};
        CHECK(out.token.values() == want);
        CHECK(out.log_prob.values()[1] > -inf);
        CHECK(out.log_prob.values()[2] == -inf);
        CHECK(out.flags.values()[0] == ddtree::flag::id_out_of_range);
      }
    }
  }
}
