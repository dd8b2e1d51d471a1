// SPDX-License-Identifier: Apache-2.0
// Blocks that meet give the same bits in every run. In a build with DDTREE_RACE_HOOKS they wait for
// odd times before they meet.
#include "support/accept_cases.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/expand_cases.hpp"

#include <random>
#include <vector>

namespace {

using namespace ddtree_test;

constexpr int runs = 200;
constexpr int vocab = 140000;  // a cluster of 8 blocks

/// One request whose parameters are `how`, its walk 10 nodes at most.
accepted_request accept_once(ddtree::context const& ctx, oracle::accept::tree const& tree,
                             std::vector<float> const& logits,
                             oracle::accept::parameters const& how, bool with_log_prob) {
  ddtree::round_shape shape;
  shape.vocab = 20000;
  shape.depth = 5;
  shape.budget = 9;
  tree_batch trees(ctx, shape, {tree});
  logits_buffer target(ctx, logits, ddtree::dtype::bf16);
  sampling_buffers parameters(ctx, {how});
  buffer<std::int64_t> cache_len(ctx, std::vector<std::int64_t>{100});
  buffer<unsigned char> scratch(ctx, ddtree::accept_sampled_workspace_bytes(ctx, shape));
  accepted_buffers out(ctx, shape);
  ddtree::batch_view batch;
  batch.cache_len = cache_len.data();
  REQUIRE(ddtree::accept_sampled(ctx, shape, batch, trees.view(), target.view(), parameters.view(),
                                 out.view(with_log_prob), scratch.as_workspace()));
  return read_accepted(out, shape, with_log_prob)[0];
}

}  // namespace

TEST_CASE("expand gives the same bits in 200 runs", "[expand][races]") {
  expand_case c;
  c.type = ddtree::dtype::bf16;
  c.shape = expand_shape(1, vocab, 2, GENERATE(64, 1024));
  set_random_rows(c, 81);
  if (GENERATE(false, true)) {
    std::mt19937 engine(82);
    std::vector<float> x(vocab);
    for (auto& value : x) value = static_cast<float>(engine() % 3);
    c.set_row(1, x);
  }
  for (auto const& [name, ctx] : contexts_for(ddtree::operation::expand)) {
    CAPTURE(name);
    expand_result const first = run_expand(ctx, c);
    require_expected(c, first);
    for (int run = 1; run < runs; ++run) {
      CAPTURE(run);
      REQUIRE(run_expand(ctx, c) == first);
    }
  }
}

TEST_CASE("accept gives the same bits in 200 runs", "[accept][races]") {
  random_engine random(83);
  oracle::accept::tree const tree = random_tree(random, 10, 5, 20000);
  std::vector<float> logits;
  for (int node = 0; node < 10; ++node) {
    std::vector<float> x = random_logits(random, 20000);
    if (node < tree.size()) {
      for (int const child : tree.children(node)) x[sized(tree.token[sized(child)])] += 12.0f;
    }
    logits.insert(logits.end(), x.begin(), x.end());
  }
  oracle::accept::parameters how;
  how.temperature = GENERATE(0.0f, 1.0f);
  how.top_k = GENERATE(0, 50);
  how.top_p = GENERATE(1.0f, 0.9f);
  CAPTURE(how.temperature, how.top_k, how.top_p);
  accepted_request const expected = accept_once(ddtree::context::cpu(), tree, logits, how, false);
  for (auto const& [name, ctx] : contexts_for(ddtree::operation::accept_sampled)) {
    CAPTURE(name);
    REQUIRE(accept_once(ctx, tree, logits, how, false) == expected);
    accepted_request const first = accept_once(ctx, tree, logits, how, true);
    for (int run = 1; run < runs; ++run) {
      CAPTURE(run);
      REQUIRE(accept_once(ctx, tree, logits, how, true) == first);
    }
  }
}
