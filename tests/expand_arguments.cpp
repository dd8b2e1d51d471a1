// SPDX-License-Identifier: Apache-2.0
// Workspaces of the expand calls, and what they say of arguments that are not sound.
#include "ddtree/expand.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/expand_cases.hpp"
#include "support/trees.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::errc;
using ddtree::operation;
using ddtree::round_shape;

/// A sound call of each of the three, to be spoilt.
struct sound_calls {
  sound_calls()
      : logits(ctx, std::vector<float>(2 * 2 * 10, 1.0f)),
        out(ctx, shape),
        contribution(ctx, ddtree::expand_shard_bytes(shape)),
        memory(ctx, 1 << 20) {
    draft = {logits.data(), dtype::f32};
    shard = {logits.data(), dtype::f32};
    shard.vocab = 10;
    candidates = out.view();
    to = {contribution.data(), contribution.size()};
    from = {contribution.data(), 1, 0};
    scratch = memory.as_workspace();
  }

  std::string expand() const {
    return message(ddtree::expand(ctx, shape, batch, draft, candidates, scratch, options));
  }
  std::string expand_shard() const {
    return message(ddtree::expand_shard(ctx, shape, batch, shard, ranges, to, scratch, options));
  }
  std::string expand_merge() const {
    return message(ddtree::expand_merge(ctx, shape, batch, from, candidates, scratch, options));
  }
  /// A failed call has written nothing.
  std::string message(ddtree::status const& s) const {
    if (s) return "";
    for (auto const word : out.flags.values()) CHECK(word == poisoned<std::uint32_t>());
    for (auto const byte : contribution.values()) CHECK(byte == poison_byte);
    return s.message;
  }

  ddtree::context ctx = ddtree::context::cpu();
  round_shape shape = expand_shape(2, 10, 2, 3);
  buffer<float> logits;
  candidate_buffers out;
  buffer<unsigned char> contribution;
  buffer<unsigned char> memory;
  ddtree::batch_view batch;
  ddtree::logits_view draft;
  ddtree::logits_view shard;
  ddtree::vocab_ranges ranges{{{0, 10, 0}, {}}};
  ddtree::candidates candidates;
  ddtree::shard_out to;
  ddtree::shard_in from;
  ddtree::workspace scratch;
  ddtree::expand_options options;
};

constexpr ddtree::index_t far = std::numeric_limits<ddtree::index_t>::max();

}  // namespace

TEST_CASE("expand needs no more workspace for a smaller call", "[expand]") {
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    round_shape const base = expand_shape(3, 1000, 5, 32);
    auto const sizes = [&c = ctx](round_shape const& s) {
      return std::vector<std::size_t>{
          ddtree::expand_workspace_bytes(c, s), ddtree::expand_shard_workspace_bytes(c, s),
          ddtree::expand_merge_workspace_bytes(c, s, 4), ddtree::expand_shard_bytes(s)};
    };
    std::vector<round_shape> larger(6, base);
    larger[0].batch = 64;
    larger[1].vocab = 151936;
    larger[2].depth = 31;
    larger[3].top_k = 1024;
    larger[4].budget = 2047;
    larger[5].requests = 1000;
    for (auto const& shape : larger) {
      for (std::size_t i = 0; i < 4; ++i) CHECK(sizes(base)[i] <= sizes(shape)[i]);
    }
    CHECK(ddtree::expand_merge_workspace_bytes(ctx, base, 2) <=
          ddtree::expand_merge_workspace_bytes(ctx, base, 64));
    CHECK(ddtree::expand_shard_bytes(base) % 16 == 0);
    // Nothing for a shape that no call takes.
    round_shape bad = base;
    bad.top_k = 0;
    CHECK(sizes(bad) == std::vector<std::size_t>{0, 0, 0, 0});
    CHECK(ddtree::expand_merge_workspace_bytes(ctx, base, 0) == 0);
  }
}

TEST_CASE("expand works in a workspace at any address", "[expand]") {
  expand_case c;
  c.shape = expand_shape(2, 3000, 3, 16);
  set_random_rows(c, 101);
  for (auto const& [name, ctx] : contexts_for(operation::expand)) {
    CAPTURE(name);
    expand_result const want = run_expand(ctx, c);
    std::vector<float> x;
    for (index_t row = 0; row < 6; ++row) {
      auto const values = c.row(row);
      x.insert(x.end(), values.begin(), values.end());
    }
    buffer<float> logits(ctx, x);
    std::size_t const bytes = ddtree::expand_workspace_bytes(ctx, c.shape);
    for (std::size_t const shift : {1u, 3u, 8u, 64u, 255u}) {
      // Exactly as many bytes as asked for lie before the canary.
      buffer<unsigned char> scratch(ctx, bytes + shift);
      candidate_buffers out(ctx, c.shape);
      REQUIRE(ddtree::expand(ctx, c.shape, {}, {logits.data(), dtype::f32}, out.view(),
                             {scratch.data() + shift, bytes}));
      CHECK(scratch.intact());
      auto const memory = scratch.values();
      for (std::size_t i = 0; i < shift; ++i) REQUIRE(memory[i] == poison_byte);
      CHECK(take(out) == want);
    }
  }
}

TEST_CASE("expand names the argument at fault", "[expand]") {
  sound_calls call;
  std::string want;
  SECTION("shape.batch") {
    call.shape.batch = 65536;
    want = "expand: shape.batch outside [0, 65535]";
  }
  SECTION("shape.vocab") {
    call.shape.vocab = 0;
    want = "expand: shape.vocab outside [1, 4194304]";
  }
  SECTION("shape.depth") {
    call.shape.depth = 32;
    want = "expand: shape.depth outside [0, 31]";
  }
  SECTION("shape.top_k") {
    call.shape.top_k = 1025;
    want = "expand: shape.top_k outside [1, 1024]";
  }
  SECTION("threads") {
    call.ctx.threads = 0;
    want = "expand: context.threads < 1";
  }
  SECTION("request") {
    call.batch.request = {call.logits.data(), dtype::f32};
    want = "expand: batch.request is neither i32 nor i64";
  }
  SECTION("data") {
    call.draft.data = nullptr;
    want = "expand: draft.data is null";
  }
  SECTION("type") {
    call.draft.type = dtype::i32;
    want = "expand: draft.type is not f32, f16 or bf16";
  }
  SECTION("vocab too large") {
    call.draft.vocab = ddtree::max_vocab + 1;
    want = "expand: draft.vocab outside [0, 4194304]";
  }
  SECTION("vocab too small") {
    call.draft.vocab = 9;
    want = "expand: draft.vocab < shape.vocab";
  }
  SECTION("row_stride") {
    call.draft.row_stride = 9;
    want = "expand: draft.row_stride shorter than a row";
  }
  SECTION("batch_stride") {
    call.draft.batch_stride = -1;
    want = "expand: draft.batch_stride < 0";
  }
  SECTION("row_offset") {
    call.draft.row_offset = {call.logits.data(), dtype::u8};
    want = "expand: draft.row_offset is neither i32 nor i64";
  }
  SECTION("vocab_map") {
    call.options.vocab_map = {call.logits.data(), dtype::bf16};
    want = "expand: options.vocab_map is neither i32 nor i64";
  }
  SECTION("draft_vocab") {
    call.options.vocab_map = {call.logits.data(), dtype::i32};
    call.options.draft_vocab = 11;
    want = "expand: draft.vocab < options.draft_vocab";
  }
  SECTION("token") {
    call.candidates.token = nullptr;
    want = "expand: out.token is null";
  }
  SECTION("log_prob") {
    call.candidates.log_prob = nullptr;
    want = "expand: out.log_prob is null";
  }
  SECTION("flags") {
    call.candidates.flags = nullptr;
    want = "expand: out.flags is null";
  }
  SECTION("workspace too small") {
    call.scratch.bytes = ddtree::expand_workspace_bytes(call.ctx, call.shape) - 1;
    want = "expand: workspace.bytes too small";
  }
  SECTION("no workspace") {
    call.scratch.data = nullptr;
    want = "expand: workspace.data is null";
  }
  CHECK(call.expand() == want);
}

TEST_CASE("expand_shard names the argument at fault", "[expand][shards]") {
  sound_calls call;
  std::string want;
  SECTION("type") {
    call.shard.type = dtype::u8;
    want = "expand_shard: shard.type is not f32, f16 or bf16";
  }
  SECTION("negative columns") {
    call.shard.vocab = -1;
    want = "expand_shard: shard.vocab < 0";
  }
  SECTION("columns not given") {
    call.shard.vocab = 0;
    want = "expand_shard: shard.vocab is not given";
  }
  SECTION("data") {
    call.shard.data = nullptr;
    want = "expand_shard: shard.data is null";
  }
  SECTION("row_stride") {
    call.shard.row_stride = 9;
    want = "expand_shard: shard.row_stride shorter than a row";
  }
  SECTION("batch_stride") {
    call.shard.batch_stride = -1;
    want = "expand_shard: shard.batch_stride < 0";
  }
  SECTION("row_offset") {
    call.shard.row_offset = {call.logits.data(), dtype::u8};
    want = "expand_shard: shard.row_offset is neither i32 nor i64";
  }
  SECTION("negative range") {
    call.ranges.range[1].count = -1;
    want = "expand_shard: ranges.count < 0";
  }
  SECTION("range beyond the columns") {
    call.ranges =
        GENERATE(ddtree::vocab_ranges{{{1, 10, 0}, {}}}, ddtree::vocab_ranges{{{-1, 10, 0}, {}}},
                 ddtree::vocab_ranges{{{far, 10, 0}, {}}}, ddtree::vocab_ranges{{{0, far, 0}, {}}});
    want = "expand_shard: ranges beyond shard.vocab";
  }
  SECTION("range beyond the vocabulary") {
    call.ranges =
        GENERATE(ddtree::vocab_ranges{{{0, 10, 1}, {}}}, ddtree::vocab_ranges{{{0, 10, -1}, {}}},
                 ddtree::vocab_ranges{{{0, 10, far}, {}}});
    want = "expand_shard: ranges beyond the vocabulary";
  }
  SECTION("range beyond the draft vocabulary, with a vocab_map") {
    call.options.vocab_map = {call.logits.data(), dtype::i32};
    call.options.draft_vocab = 12;
    call.ranges.range[0].global_begin = 3;
    want = "expand_shard: ranges beyond the vocabulary";
  }
  SECTION("a vocab_map of unknown length") {
    call.options.vocab_map = {call.logits.data(), dtype::i32};
    want = "expand_shard: options.draft_vocab is not given";
  }
  SECTION("ranges of the same ids") {
    call.ranges = {{{0, 5, 0}, {5, 5, 4}}};
    want = "expand_shard: ranges overlap";
  }
  SECTION("no output") {
    call.to.data = nullptr;
    want = "expand_shard: out.data is null";
  }
  SECTION("output not aligned") {
    call.to.data = call.contribution.data() + 4;
    want = "expand_shard: out.data is not aligned to 16 bytes";
  }
  SECTION("output too small") {
    call.to.bytes -= 1;
    want = "expand_shard: out.bytes too small";
  }
  SECTION("workspace") {
    call.scratch.bytes = ddtree::expand_shard_workspace_bytes(call.ctx, call.shape) - 1;
    want = "expand_shard: workspace.bytes too small";
  }
  CHECK(call.expand_shard() == want);
}

TEST_CASE("expand_merge names the argument at fault", "[expand][shards]") {
  sound_calls call;
  std::string want;
  SECTION("a vocab_map of unknown length") {
    call.options.vocab_map = {call.logits.data(), dtype::i32};
    want = "expand_merge: options.draft_vocab is not given";
  }
  SECTION("draft_vocab") {
    call.options.draft_vocab = GENERATE(index_t{-1}, ddtree::max_vocab + 1);
    want = "expand_merge: options.draft_vocab outside [0, 4194304]";
  }
  SECTION("ranks") {
    call.from.ranks = 0;
    want = "expand_merge: all_ranks.ranks < 1";
  }
  SECTION("data") {
    call.from.data = nullptr;
    want = "expand_merge: all_ranks.data is null";
  }
  SECTION("alignment") {
    call.from.data = call.contribution.data() + 8;
    want = "expand_merge: all_ranks.data is not aligned to 16 bytes";
  }
  SECTION("stride too short") {
    call.from.rank_stride_bytes = GENERATE(16, -16);
    want = "expand_merge: all_ranks.rank_stride_bytes shorter than a contribution";
  }
  SECTION("stride not aligned") {
    call.from.rank_stride_bytes = static_cast<index_t>(ddtree::expand_shard_bytes(call.shape)) + 4;
    want = "expand_merge: all_ranks.rank_stride_bytes is not a multiple of 16";
  }
  SECTION("out") {
    call.candidates.flags = nullptr;
    want = "expand_merge: out.flags is null";
  }
  SECTION("workspace") {
    call.scratch.bytes = ddtree::expand_merge_workspace_bytes(call.ctx, call.shape, 1) - 1;
    want = "expand_merge: workspace.bytes too small";
  }
  CHECK(call.expand_merge() == want);
}

TEST_CASE("expand tells what it cannot run", "[expand]") {
  sound_calls call;
  CHECK(call.expand().empty());
  sound_calls other;
  auto const code = [&] {
    return ddtree::expand(other.ctx, other.shape, other.batch, other.draft, other.candidates,
                          other.scratch)
        .code;
  };
  SECTION("a workspace too small has a code of its own") {
    other.scratch.bytes = 0;
    CHECK(code() == errc::workspace_too_small);
  }
  SECTION("a variant that does not exist") {
    other.ctx = other.ctx.with_variant("expand=imagined");
    CHECK(code() == errc::invalid_argument);
  }
  SECTION("the CPU variant by name") {
    other.ctx = other.ctx.with_variant("expand=cpu");
    CHECK(code() == errc::ok);
    CHECK(ddtree::selected(other.ctx, operation::expand, other.shape) == std::string("cpu"));
  }
}
