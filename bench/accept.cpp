// SPDX-License-Identifier: Apache-2.0
// The accept calls over seven rows, as many as a walk visits in a typical round.
#include "ddtree/accept.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr ddtree::index_t vocab = 151936;
constexpr ddtree::index_t rows = 7;

/// Logits of all rows, N(0, 2.5).
std::vector<float> const& target_logits() {
  static std::vector<float> const logits = [] {
    std::mt19937 engine(20260113);
    std::normal_distribution<float> normal(0.0f, 2.5f);
    std::vector<float> x(static_cast<std::size_t>(rows * vocab));
    for (float& value : x) value = normal(engine);
    return x;
  }();
  return logits;
}

template <class T>
std::vector<T> of_rows(T value) {
  return std::vector<T>(static_cast<std::size_t>(rows), value);
}

/// Requests whose tree is the root alone: a row each.
struct roots {
  std::vector<ddtree::token_t> token = of_rows(0);
  std::vector<ddtree::node_t> none = of_rows(-1);
  std::vector<std::int32_t> num_nodes = of_rows(1);
  std::vector<std::uint32_t> flags = of_rows(0u);

  ddtree::draft_tree view() {
    ddtree::draft_tree t;
    t.token = token.data();
    t.parent = t.first_child = t.next_sibling = none.data();
    t.num_nodes = num_nodes.data();
    t.flags = flags.data();
    return t;
  }
};

struct filters {
  float temperature = 1.0f;
  std::int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  bool log_prob = false;
};

void run(benchmark::State& state, filters const& f) {
  ddtree::round_shape const shape{.batch = rows, .vocab = vocab, .depth = 0, .budget = 0};
  auto const ctx = ddtree::context::cpu();
  roots trees;
  auto const temperature = of_rows(f.temperature), top_p = of_rows(f.top_p),
             min_p = of_rows(f.min_p);
  auto const top_k = of_rows(f.top_k);
  auto const seed = of_rows(std::int64_t{1}), cache_len = of_rows(std::int64_t{100});
  ddtree::sampling how;
  how.temperature = temperature.data();
  how.top_k = top_k.data();
  how.top_p = top_p.data();
  how.min_p = min_p.data();
  how.seed = seed.data();
  ddtree::batch_view batch;
  batch.cache_len = cache_len.data();
  std::vector<unsigned char> block(ddtree::accepted_bytes(shape)),
      memory(ddtree::accept_sampled_workspace_bytes(ctx, shape));
  ddtree::accepted out;
  if (!ddtree::bind_accepted(shape, {block.data(), block.size()}, &out)) return;
  if (!f.log_prob) out.log_prob = nullptr;
  for (auto _ : state) {
    auto const s = ddtree::accept_sampled(ctx, shape, batch, trees.view(),
                                          {target_logits().data(), ddtree::dtype::f32}, how, out,
                                          {memory.data(), memory.size()});
    if (!s) return state.SkipWithError(s.message);
    benchmark::DoNotOptimize(out.bonus);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * rows * vocab);
  state.SetBytesProcessed(state.iterations() * rows * vocab * 4);
}

void series(char const* op, char const* more, filters const& f) {
  std::string const name = std::string(op) + "/cpu/dtype:f32/rows:7/vocab:151936" + more;
  benchmark::RegisterBenchmark(name.c_str(), run, f)->Unit(benchmark::kMillisecond);
}

bool const registered = [] {
  series("accept_greedy", "", {.temperature = 0.0f});
  series("accept_greedy", "/log_prob:1", {.temperature = 0.0f, .log_prob = true});
  series("accept_sampled", "", {});
  series("accept_sampled", "/k:50/p:0.9", {.top_k = 50, .top_p = 0.9f});
  series("accept_sampled", "/k:1000", {.top_k = 1000});
  series("accept_sampled", "/p:0.9", {.top_p = 0.9f});
  series("accept_sampled", "/min_p:0.05", {.min_p = 0.05f});
  return true;
}();

}  // namespace
