// SPDX-License-Identifier: Apache-2.0
// build_tree on a GPU gives the trees of the CPU, bit for bit, from candidates that the GPU made.
#include "ddtree/build.hpp"
#include "ddtree/expand.hpp"

#include "support/catch.hpp"
#include "support/words.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::round_shape;

/// Candidates on the host.
struct candidate_values {
  std::vector<ddtree::token_t> token;
  std::vector<float> log_prob;
  std::vector<std::uint32_t> flags;
};

/// A call of build_tree on the host. A limit that is empty is not bound.
struct build_batch {
  round_shape shape;
  candidate_values from;
  std::vector<std::int32_t> root, budget, max_depth;
  std::vector<std::int64_t> request, cache_len, capacity, max_position;
  std::int32_t seed_depth = 0;
  float min_log_weight = -std::numeric_limits<float>::infinity();
};

std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

template <class T>
std::vector<T> many(std::mt19937& random, index_t count, std::int64_t low, std::int64_t high) {
  std::vector<T> out;
  for (index_t i = 0; i < count; ++i) out.push_back(static_cast<T>(between(random, low, high)));
  return out;
}

build_batch random_batch(std::mt19937& random) {
  build_batch c;
  bool const is_large = between(random, 0, 19) == 0;
  round_shape& s = c.shape;
  s.batch = is_large ? 250 : 1000;
  s.vocab = between(random, 300, 2000);
  s.depth = static_cast<std::int32_t>(between(random, 1, 15));
  s.budget = static_cast<std::int32_t>(is_large ? between(random, 257, 1024)
                                                : between(random, 8, 256));
  s.top_k = static_cast<std::int32_t>(between(random, 1, std::min(s.budget, 400)));
  c.root = many<std::int32_t>(random, s.batch, -1, s.vocab);
  c.request = many<std::int64_t>(random, s.batch, 0, s.batch - 1);
  for (auto& r : c.request) r = between(random, 0, 30) == 0 ? -1 : r;
  c.cache_len = many<std::int64_t>(random, s.batch, 0, 5000);
  if (between(random, 0, 2) == 0) c.budget = many<std::int32_t>(random, s.batch, -1, s.budget + 5);
  if (between(random, 0, 2) == 0) c.max_depth = many<std::int32_t>(random, s.batch, 0, s.depth);
  if (between(random, 0, 4) == 0) c.capacity = many<std::int64_t>(random, s.batch, 0, 8000);
  if (between(random, 0, 4) == 0) c.max_position = many<std::int64_t>(random, s.batch, 0, 8000);
  if (between(random, 0, 2) == 0) c.seed_depth = static_cast<std::int32_t>(between(random, 1, 16));
  if (between(random, 0, 4) == 0)
    c.min_log_weight = -0.5f * static_cast<float>(between(random, 1, 40));
  return c;
}

candidate_values expand(context const& ctx, round_shape const& shape,
                        std::vector<unsigned char> const& rows, dtype type) {
  std::size_t const slots = sized(shape.batch * shape.depth * shape.top_k);
  device_array<unsigned char> logits(ctx, rows);
  device_array<ddtree::token_t> token(ctx, slots);
  device_array<float> log_prob(ctx, slots);
  device_array<std::uint32_t> flags(ctx, sized(shape.batch));
  device_array<unsigned char> scratch(ctx, ddtree::expand_workspace_bytes(ctx, shape));
  ddtree::logits_view draft;
  draft.data = logits.data();
  draft.type = type;
  auto const status =
      ddtree::expand(ctx, shape, {}, draft, {token.data(), log_prob.data(), flags.data()},
                     scratch.as_workspace());
  CAPTURE(status.message);
  REQUIRE(status);
  return {token.values(), log_prob.values(), flags.values()};
}

/// An array of ids that is bound where it has values.
template <class T>
ddtree::ids_in bound(device_array<T>& ids) {
  if (ids.size() == 0) return {};
  return ids.data();
}

words build(context const& ctx, build_batch const& c, tree_words& out) {
  device_array<ddtree::token_t> token(ctx, c.from.token);
  device_array<float> log_prob(ctx, c.from.log_prob);
  device_array<std::uint32_t> flags(ctx, c.from.flags);
  device_array<std::int32_t> root(ctx, c.root), budget(ctx, c.budget), max_depth(ctx, c.max_depth);
  device_array<std::int64_t> request(ctx, c.request), cache_len(ctx, c.cache_len);
  device_array<std::int64_t> capacity(ctx, c.capacity), max_position(ctx, c.max_position);
  device_array<unsigned char> scratch(ctx, ddtree::build_tree_workspace_bytes(ctx, c.shape));
  ddtree::build_options options;
  options.budget = bound(budget);
  options.max_depth = bound(max_depth);
  options.capacity = bound(capacity);
  options.max_position = bound(max_position);
  options.seed_depth = c.seed_depth;
  options.min_log_weight = c.min_log_weight;
  auto const status = ddtree::build_tree(
      ctx, c.shape, {cache_len.data(), request.data()},
      {token.data(), log_prob.data(), flags.data()}, root.data(), out.view(),
      scratch.as_workspace(), options);
  CAPTURE(status.message);
  REQUIRE(status);
  return out.values();
}

}  // namespace

TEST_CASE("build_tree gives the CPU's trees bit for bit, 100,000 of them from the GPU's candidates",
          "[build][cuda]") {
  context const gpu = cuda_context();
  context const cpu = context::cpu(threads_here());
  std::mt19937 random(20260101);
  index_t trees = 0;
  for (std::uint64_t seed = 1; trees < 100000; ++seed) {
    build_batch c = random_batch(random);
    dtype const type = std::vector{dtype::bf16, dtype::f32, dtype::f16}[seed % 3];
    float const deviation = std::vector{0.5f, 2.5f, 8.0f, 2.5f}[seed % 4];
    auto const rows = hashed_rows(seed, sized(c.shape.batch * c.shape.depth),
                                  sized(c.shape.vocab), type, deviation,
                                  [](std::size_t, std::vector<float>&) {});
    c.from = expand(gpu, c.shape, rows, type);
    tree_words on_gpu(gpu, c.shape), on_cpu(cpu, c.shape);
    words const got = build(gpu, c, on_gpu);
    words const expected = build(cpu, c, on_cpu);
    auto const at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    CAPTURE(seed, c.shape.depth, c.shape.top_k, c.shape.budget,
            on_gpu.place(static_cast<std::size_t>(at)));
    REQUIRE(got == expected);
    trees += c.shape.batch;
  }
  CHECK(trees >= 100000);
}
