// SPDX-License-Identifier: Apache-2.0
// write_mask and write_verify_inputs over random trees.
#include "ddtree/mask.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

using ddtree::mask_columns;
using ddtree::mask_kind;

std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

/// Trees whose nodes hang from one of the 40 rows before them, at most 15 deep.
struct trees {
  explicit trees(ddtree::round_shape const& s)
      : token(sized(s.batch * s.width()), 1),
        depth(token.size(), 0),
        ancestors(token.size() * sized(s.words()), 0),
        num_nodes(sized(s.batch), s.budget + 1) {
    std::mt19937 engine(20260113);
    auto const width = sized(s.width());
    auto const words = sized(s.words());
    for (std::size_t at = 0; at < token.size(); ++at) {
      std::size_t const i = at % width;
      std::size_t parent = at;
      if (i > 0) parent -= 1 + engine() % std::min<std::size_t>(i, 40);
      if (i > 0 && depth[parent] == 15) parent = at - i;
      if (i > 0) depth[at] = depth[parent] + 1;
      for (std::size_t w = 0; w < words; ++w) {
        ancestors[at * words + w] = ancestors[parent * words + w];
      }
      ancestors[at * words + i / 32] |= 1u << (i % 32);
    }
  }

  ddtree::draft_tree view() {
    ddtree::draft_tree t;
    t.token = token.data();
    t.depth = depth.data();
    t.ancestors = ancestors.data();
    t.num_nodes = num_nodes.data();
    return t;
  }

  std::vector<ddtree::token_t> token;
  std::vector<std::int32_t> depth;
  std::vector<std::uint32_t> ancestors;
  std::vector<std::int32_t> num_nodes;
};

ddtree::round_shape shape_of(benchmark::State const& state) {
  return {.batch = state.range(0),
          .vocab = 1000,
          .budget = static_cast<std::int32_t>(state.range(1) - 1)};
}

void write_mask(benchmark::State& state, mask_kind kind, ddtree::dtype type, mask_columns region) {
  auto const shape = shape_of(state);
  auto const ctx = ddtree::context::cpu();
  trees tree(shape);
  std::vector<std::int32_t> const cache_len(sized(shape.batch), 3001);
  ddtree::mask_view out;
  out.kind = kind;
  out.type = type;
  out.region = region;
  out.columns = region == mask_columns::tree ? 0 : 4096;
  ddtree::index_t const columns = region == mask_columns::tree ? shape.width() : out.columns;
  ddtree::index_t const row_bytes = kind == mask_kind::bits      ? (columns + 31) / 32 * 4
                                    : kind == mask_kind::boolean ? columns
                                                                 : columns * 2;
  std::vector<std::uint32_t> memory(sized(shape.batch * shape.width() * row_bytes / 4 + 1));
  out.data = memory.data();
  for (auto _ : state) {
    auto const s = ddtree::write_mask(ctx, shape, {cache_len.data(), nullptr}, tree.view(), out);
    if (!s) return state.SkipWithError(s.message);
    benchmark::ClobberMemory();
  }
  if (region != mask_columns::recent) {
    state.SetBytesProcessed(state.iterations() * shape.batch * shape.width() * row_bytes);
  }
}

void write_verify_inputs(benchmark::State& state) {
  auto const shape = shape_of(state);
  auto const ctx = ddtree::context::cpu();
  trees tree(shape);
  std::vector<std::int32_t> const cache_len(sized(shape.batch), 3001);
  std::vector<std::int32_t> const table(sized(shape.batch * 256), 5);
  std::vector<std::int64_t> position(tree.token.size());
  std::vector<std::int64_t> slot(tree.token.size());
  std::vector<std::int32_t> token(tree.token.size());
  ddtree::verify_options options;
  options.table.entries = {const_cast<std::int32_t*>(table.data()), ddtree::dtype::i32};
  options.table.columns = 256;
  options.table.page_size = 16;
  for (auto _ : state) {
    auto const s =
        ddtree::write_verify_inputs(ctx, shape, {cache_len.data(), nullptr}, tree.view(),
                                    {token.data(), position.data(), slot.data()}, options);
    if (!s) return state.SkipWithError(s.message);
    benchmark::ClobberMemory();
  }
}

/// Google Benchmark adds the extents.
template <class Body>
void series(char const* name, Body body) {
  auto* const b = benchmark::RegisterBenchmark(name, body);
  b->ArgNames({"batch", "width"})->Unit(benchmark::kMicrosecond);
  b->Args({1, 65})->Args({64, 65})->Args({1, 1025})->Args({64, 1025});
}

void mask_series(char const* name, mask_kind kind, ddtree::dtype type, mask_columns region) {
  series(name, [=](benchmark::State& state) { write_mask(state, kind, type, region); });
}

bool const registered = [] {
  using ddtree::dtype;
  mask_series("write_mask/cpu/bits/tree", mask_kind::bits, dtype::u8, mask_columns::tree);
  mask_series("write_mask/cpu/bits/recent", mask_kind::bits, dtype::u8, mask_columns::recent);
  mask_series("write_mask/cpu/bool/tree", mask_kind::boolean, dtype::u8, mask_columns::tree);
  mask_series("write_mask/cpu/bf16/tree", mask_kind::additive, dtype::bf16, mask_columns::tree);
  mask_series("write_mask/cpu/bf16/recent", mask_kind::additive, dtype::bf16, mask_columns::recent);
  series("write_verify_inputs/cpu/page_size:16", write_verify_inputs);
  return true;
}();

}  // namespace
