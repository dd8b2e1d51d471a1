// SPDX-License-Identifier: Apache-2.0
// build_tree over candidates of logits from N(0, 2.5), and from N(0, 6), whose trees are as deep as
// those of a good drafter. The inputs take turns: a branch predictor learns one tree by heart.
#include "ddtree/build.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr ddtree::index_t vocab = 151936;
constexpr std::int32_t depth = 15;
constexpr std::int32_t max_k = 1024;
constexpr std::size_t requests = 16;

std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

/// The best max_k log-probs of every depth of every request.
std::vector<float> const& log_probs(float sigma) {
  static std::map<float, std::vector<float>> made;
  std::vector<float>& all = made[sigma];
  if (!all.empty()) return all;
  std::mt19937 engine(20260113);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> row(sized(vocab));
  for (std::size_t i = 0; i < requests * depth; ++i) {
    for (float& x : row) x = normal(engine);
    std::partial_sort(row.begin(), row.begin() + max_k, row.end(), std::greater<>());
    float sum = 0.0f;
    for (float const x : row) sum += std::exp(x - row[0]);
    float const log_sum = row[0] + std::log(sum);
    for (std::size_t r = 0; r < max_k; ++r) all.push_back(row[r] - log_sum);
  }
  return all;
}

/// The candidates of a batch that begins with request `first`.
std::vector<float> rows_of(float sigma, std::size_t first, ddtree::round_shape const& shape) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < sized(shape.batch) * depth; ++i) {
    auto const from = (first * depth + i) % (requests * depth) * max_k;
    auto const begin = log_probs(sigma).begin() + static_cast<std::ptrdiff_t>(from);
    rows.insert(rows.end(), begin, begin + shape.top_k);
  }
  return rows;
}

struct tree_arrays {
  explicit tree_arrays(ddtree::round_shape const& s)
      : ints(6, std::vector<std::int32_t>(sized(s.batch * s.width()))),
        log_weight(ints[0].size()),
        ancestors(ints[0].size() * sized(s.words())),
        num_nodes(sized(s.batch)),
        flags(sized(s.batch)) {}

  ddtree::draft_tree view() {
    return {ints[0].data(), ints[1].data(), ints[2].data(),   ints[3].data(),   log_weight.data(),
            ints[4].data(), ints[5].data(), ancestors.data(), num_nodes.data(), flags.data()};
  }

  std::vector<std::vector<std::int32_t>> ints;
  std::vector<float> log_weight;
  std::vector<std::uint32_t> ancestors;
  std::vector<std::int32_t> num_nodes;
  std::vector<std::uint32_t> flags;
};

void build_tree(benchmark::State& state, float sigma) {
  ddtree::round_shape const shape{.batch = state.range(0),
                                  .vocab = vocab,
                                  .depth = depth,
                                  .top_k = static_cast<std::int32_t>(state.range(2)),
                                  .budget = static_cast<std::int32_t>(state.range(1))};
  auto const ctx = ddtree::context::cpu();
  std::vector<std::vector<float>> inputs;
  for (std::size_t r = 0; r < requests; ++r) inputs.push_back(rows_of(sigma, r, shape));
  std::vector<ddtree::token_t> const token(inputs[0].size(), 1);
  std::vector<ddtree::token_t> const root(sized(shape.batch), 1);
  std::vector<std::uint32_t> flags(sized(shape.batch), 0);
  std::vector<unsigned char> memory(ddtree::build_tree_workspace_bytes(ctx, shape));
  tree_arrays tree(shape);
  ddtree::candidates in{const_cast<ddtree::token_t*>(token.data()), nullptr, flags.data()};
  std::size_t turn = 0;
  for (auto _ : state) {
    in.log_prob = inputs[turn++ % requests].data();
    auto const s = ddtree::build_tree(ctx, shape, {}, in, root.data(), tree.view(),
                                      {memory.data(), memory.size()});
    if (!s) return state.SkipWithError(s.message);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * shape.batch * shape.budget);
}

/// Google Benchmark adds the extents.
void series(std::string const& name, float sigma) {
  auto* const b = benchmark::RegisterBenchmark(
      name.c_str(), [sigma](benchmark::State& state) { build_tree(state, sigma); });
  b->ArgNames({"batch", "budget", "k"})->Unit(benchmark::kMicrosecond);
  for (std::int64_t const k : {64, 1024}) {
    for (std::int64_t const budget : {64, 256, 1024, 2047}) b->Args({1, budget, k});
  }
  for (std::int64_t const budget : {64, 256, 1024}) b->Args({64, budget, 64});
}

bool const registered = [] {
  series("build_tree/cpu", 2.5f);
  series("build_tree/cpu/deep", 6.0f);
  return true;
}();

}  // namespace
