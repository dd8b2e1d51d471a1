// SPDX-License-Identifier: Apache-2.0
// expand, and what it is measured against: a log-softmax of every row, then std::partial_sort.
#include "ddtree/expand.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr ddtree::index_t vocab = 151936;
constexpr std::int32_t rows = 15;

/// Logits of all rows, N(0, 2.5).
std::vector<float> const& draft_logits() {
  static std::vector<float> const logits = [] {
    std::mt19937 engine(20260113);
    std::normal_distribution<float> normal(0.0f, 2.5f);
    std::vector<float> x(static_cast<std::size_t>(rows * vocab));
    for (float& value : x) value = normal(engine);
    return x;
  }();
  return logits;
}

/// The same as bf16, cut off.
std::vector<std::uint16_t> draft_logits_bf16() {
  std::vector<std::uint16_t> x;
  for (float const value : draft_logits()) {
    x.push_back(static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, value) >> 16));
  }
  return x;
}

void count(benchmark::State& state, std::size_t element_bytes) {
  auto const elements = state.iterations() * rows * vocab;
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * static_cast<std::int64_t>(element_bytes));
}

void run_expand(benchmark::State& state, void const* logits, ddtree::dtype type) {
  ddtree::round_shape const shape{
      .vocab = vocab, .depth = rows, .top_k = static_cast<std::int32_t>(state.range(0))};
  auto const ctx = ddtree::context::cpu();
  std::vector<unsigned char> memory(ddtree::expand_workspace_bytes(ctx, shape));
  std::vector<ddtree::token_t> token(static_cast<std::size_t>(rows * shape.top_k));
  std::vector<float> log_prob(token.size());
  std::uint32_t flags = 0;
  for (auto _ : state) {
    auto const s =
        ddtree::expand(ctx, shape, {}, {logits, type}, {token.data(), log_prob.data(), &flags},
                       {memory.data(), memory.size()});
    if (!s) return state.SkipWithError(s.message);
    benchmark::DoNotOptimize(log_prob.data());
    benchmark::ClobberMemory();
  }
  count(state, type == ddtree::dtype::f32 ? 4 : 2);
}

void expand_f32(benchmark::State& state) {
  run_expand(state, draft_logits().data(), ddtree::dtype::f32);
}

void expand_bf16(benchmark::State& state) {
  auto const logits = draft_logits_bf16();
  run_expand(state, logits.data(), ddtree::dtype::bf16);
}

/// One row the plain way: maximum, sum of exponentials, log-probs, and the best k ids.
void log_softmax_top_k(float const* x, std::int64_t k, std::vector<float>& log_prob,
                       std::vector<std::int32_t>& ids) {
  float max = x[0];
  for (ddtree::index_t i = 1; i < vocab; ++i) max = std::max(max, x[i]);
  float sum = 0.0f;
  for (ddtree::index_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - max);
  float const lse = max + std::log(sum);
  for (std::size_t i = 0; i < log_prob.size(); ++i) log_prob[i] = x[i] - lse;
  std::iota(ids.begin(), ids.end(), 0);
  auto const value = [&](std::int32_t id) { return log_prob[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), [&](std::int32_t a, std::int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
}

void baseline(benchmark::State& state) {
  std::vector<float> log_prob(static_cast<std::size_t>(vocab));
  std::vector<std::int32_t> ids(log_prob.size());
  for (auto _ : state) {
    for (ddtree::index_t row = 0; row < rows; ++row) {
      log_softmax_top_k(draft_logits().data() + row * vocab, state.range(0), log_prob, ids);
      benchmark::DoNotOptimize(log_prob.data());
      benchmark::DoNotOptimize(ids.data());
      benchmark::ClobberMemory();
    }
  }
  count(state, 4);
}

/// Google Benchmark adds the k.
void series(char const* name, void (*body)(benchmark::State&)) {
  benchmark::RegisterBenchmark(name, body)
      ->ArgName("k")
      ->Arg(64)
      ->Arg(1)
      ->Arg(1024)
      ->Unit(benchmark::kMillisecond);
}

bool const registered = [] {
  series("expand/cpu/dtype:f32/rows:15/vocab:151936", expand_f32);
  series("expand/baseline_log_softmax_partial_sort/dtype:f32/rows:15/vocab:151936", baseline);
  series("expand/cpu/dtype:bf16/rows:15/vocab:151936", expand_bf16);
  return true;
}();

}  // namespace
