// SPDX-License-Identifier: Apache-2.0
// Blocks that meet give the same bits in every run. In a build with DDTREE_RACE_HOOKS they wait for
// odd times before they meet.
#include "support/catch.hpp"
#include "support/expand_cases.hpp"

#include <random>
#include <vector>

namespace {

using namespace ddtree_test;

constexpr int runs = 200;
constexpr int vocab = 140000;  // a cluster of 8 blocks

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
