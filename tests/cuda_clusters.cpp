// SPDX-License-Identifier: Apache-2.0
// A device on which no cluster of blocks fits, as a slice of one may be, runs the other variants.
#include "ddtree/accept.hpp"
#include "ddtree/expand.hpp"
#include "ddtree/variants.hpp"

#include "common/cluster.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/expand_cases.hpp"

#include <string>

namespace {

using namespace ddtree_test;
using ddtree::operation;

struct no_clusters {
  no_clusters() { ddtree::cuda::pretend_clusters_fit(0); }
  ~no_clusters() { ddtree::cuda::pretend_clusters_fit(-1); }
};

}  // namespace

TEST_CASE("where no cluster fits, no cluster is chosen, and a forced one enqueues nothing",
          "[expand][accept][small]") {
  no_clusters const pretended;
  ddtree::context const ctx = cuda_context();
  ddtree::round_shape shape = expand_shape(1, 151936, 15, 64);
  shape.budget = 64;
  for (operation const op :
       {operation::expand, operation::accept_greedy, operation::accept_sampled}) {
    CAPTURE(ddtree::name(op));
    REQUIRE(std::string(ddtree::selected(ctx, op, shape)) != "sm90_cluster");
    std::string const forced = std::string(ddtree::name(op)) + "=sm90_cluster";
    REQUIRE(ddtree::selected(ctx.with_variant(forced.c_str()), op, shape) == nullptr);
  }

  expand_case c;
  c.shape = expand_shape(1, 100, 2, 4);
  set_random_rows(c, 1);
  require_expected(c, run_expand(ctx, c));

  buffer<ddtree::token_t> token(ctx, 8);
  buffer<float> log_prob(ctx, 8);
  buffer<std::uint32_t> flags(ctx, 1);
  buffer<float> logits(ctx, 200);
  buffer<unsigned char> scratch(ctx, ddtree::expand_workspace_bytes(ctx, c.shape));
  std::vector<ddtree::token_t> const before = token.values();
  ddtree::status const s = ddtree::expand(
      ctx.with_variant("expand=sm90_cluster"), c.shape, {}, {logits.data(), dtype::f32},
      {token.data(), log_prob.data(), flags.data()}, scratch.as_workspace());
  REQUIRE(s.code == ddtree::errc::unsupported);
  REQUIRE(token.values() == before);
}
