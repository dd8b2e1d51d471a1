// SPDX-License-Identifier: Apache-2.0
// build_tree over candidates of logits of several kinds, which take turns: a branch predictor
// learns one tree by heart. link_tree over the same trees.
#include "ddtree/build.hpp"

#include "cases.hpp"
#include "support/names.hpp"
#include "support/series.hpp"
#include "support/trees.hpp"

#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::index_t;

ddtree::round_shape shape_of(index_t batch, std::int32_t budget, std::int32_t top_k) {
  return {.batch = batch, .vocab = 151936, .depth = 15, .top_k = top_k, .budget = budget};
}

double candidate_bytes(ddtree::round_shape const& s) {
  return static_cast<double>(s.batch * (s.depth * s.top_k * 8 + 8));
}
/// Seven numbers a node, its ancestor bits, two numbers a tree.
double tree_bytes(ddtree::round_shape const& s) {
  return static_cast<double>(s.batch * (s.width() * (7 + s.words()) + 2) * 4);
}

work make_build(scene& s, ddtree::round_shape const& shape, logit_kind kind) {
  std::vector<ddtree::candidates> in;
  for (int i = 0; i < s.copies; ++i) in.push_back(draw_candidates(s, shape, kind, i));
  auto* const root = s.filled<ddtree::token_t>(shape.batch, 1);
  auto const out = tree_arrays(s, shape);
  auto const scratch = s.scratch(ddtree::build_tree_workspace_bytes(s.ctx, shape));
  return {{candidate_bytes(shape), tree_bytes(shape)}, [=, ctx = s.ctx](int copy) {
            return ddtree::build_tree(ctx, shape, {}, in[sized(copy)], root, out, scratch);
          }};
}

work make_link(scene& s, ddtree::round_shape const& shape) {
  auto const made = draw_trees(s, shape);
  auto const out = tree_arrays(s, shape);
  ddtree::tree_nodes const in{made.parent, made.token, made.num_nodes, made.log_weight};
  double const read = static_cast<double>(shape.batch * (shape.width() * 12 + 4));
  return {{read, tree_bytes(shape)},
          [=, ctx = s.ctx](int) { return ddtree::link_tree(ctx, shape, {}, in, out); }};
}

void build_series(place where, ddtree::round_shape const& shape, logit_kind kind) {
  std::string const name =
      labels({{"batch", shape.batch}, {"budget", shape.budget}, {"k", shape.top_k}}) + suffix(kind);
  add(ddtree::operation::build_tree, {where, name, shape, candidate_bytes(shape),
                                      [=](scene& s) { return make_build(s, shape, kind); }});
}

void link_series(ddtree::round_shape const& shape) {
  std::string const name = labels({{"batch", shape.batch}, {"budget", shape.budget}});
  add(ddtree::operation::link_tree,
      {place::gpu, name, shape, 0, [=](scene& s) { return make_link(s, shape); }});
}

}  // namespace

void add_build_cases() {
  for (logit_kind const kind : {logit_kind::normal, logit_kind::wide, logit_kind::peaked}) {
    for (std::int32_t const budget : {64, 256, 1024}) {
      build_series(place::both, shape_of(1, budget, 64), kind);
      build_series(place::both, shape_of(64, budget, 64), kind);
    }
    build_series(place::both, shape_of(1, 2047, 64), kind);
    build_series(place::both, shape_of(1, 1024, 1024), kind);
  }
  for (index_t const batch : {1, 64}) {
    for (std::int32_t const budget : {64, 1024}) link_series(shape_of(batch, budget, 64));
  }
}

}  // namespace bench
