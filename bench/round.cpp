// SPDX-License-Identifier: Apache-2.0
// The library's part of a whole round, greedy, with a bit mask and no KV cache. The target follows
// the most probable draft for up to three tokens.
#include "ddtree/round.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr ddtree::index_t vocab = 151936;

std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

/// Logits, N(0, 2.5).
std::vector<float> normal_logits(ddtree::index_t rows) {
  std::mt19937 engine(20260113);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> x(sized(rows * vocab));
  for (float& value : x) value = normal(engine);
  return x;
}

struct bench_round {
  explicit bench_round(std::int32_t budget)
      : shape{.vocab = vocab, .budget = budget},
        draft_logits(normal_logits(shape.depth)),
        target_logits(normal_logits(shape.width())),
        ids(sized(3 * shape.width())),
        mask_words(sized(shape.width() * shape.words())),
        memory(ddtree::decoding_round::bytes(ddtree::context::cpu(), shape)) {
    created = ddtree::decoding_round::create(ddtree::context::cpu(), shape,
                                             {memory.data(), memory.size()}, &round);
    mask.data = mask_words.data();
  }

  ddtree::status draft() {
    std::int32_t* const p = ids.data();
    return round.draft({&cache_len}, {draft_logits.data()}, round.accepted_.bonus,
                       {p, p + shape.width(), p + 2 * shape.width()}, mask);
  }

  ddtree::status play() {
    cache_len = 100;
    round.accepted_.bonus[0] = 1;
    auto s = draft();
    if (s) s = round.accept({&cache_len}, {target_logits.data()});
    if (s) s = round.commit({&cache_len}, {}, &cache_len);
    return s;
  }

  /// Makes the target say the first child's token at the first three nodes of its path.
  void follow_draft() {
    ddtree::node_t node = 0;
    for (int i = 0; i < 3 && round.tree.first_child[node] >= 0; ++i) {
      ddtree::node_t const child = round.tree.first_child[node];
      target_logits[sized(node * vocab + round.tree.token[child])] = 100.0f;
      node = child;
    }
  }

  ddtree::round_shape shape;
  std::vector<float> draft_logits, target_logits;
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> mask_words;
  std::vector<unsigned char> memory;
  ddtree::mask_view mask;
  std::int32_t cache_len = 100;
  ddtree::status created;
  ddtree::decoding_round round;
};

void greedy(benchmark::State& state, std::int32_t budget) {
  bench_round b(budget);
  ddtree::status s = b.created;
  if (s) s = b.play();
  if (!s) return state.SkipWithError(s.message);
  b.follow_draft();
  for (auto _ : state) {
    s = b.play();
    if (!s) return state.SkipWithError(s.message);
    benchmark::ClobberMemory();
  }
  state.counters["accepted"] = b.round.accepted_.num_accepted[0];
}

bool const registered = [] {
  for (std::int32_t budget : {0, 64, 256}) {
    std::string const name =
        "round/cpu/dtype:f32/batch:1/vocab:151936/k:64/budget:" + std::to_string(budget);
    benchmark::RegisterBenchmark(name.c_str(), greedy, budget)->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
