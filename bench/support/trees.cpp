// SPDX-License-Identifier: Apache-2.0
#include "support/trees.hpp"

#include "ddtree/build.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>

namespace bench {

namespace {

using ddtree::index_t;
using ddtree::node_t;

// Of a smaller vocabulary than a model's: the best of 32,768 fall off as those of 151,936 do.
constexpr index_t columns = 32768;
constexpr index_t drawn_rows = 240;

/// The log-probs of the best max_top_k of every row.
std::vector<float> const& log_probs(logit_kind kind) {
  static std::map<logit_kind, std::vector<float>> drawn;
  std::vector<float>& all = drawn[kind];
  if (!all.empty()) return all;
  scene host(ddtree::context::cpu(), 1);
  auto* const bits =
      static_cast<std::uint16_t*>(host.logits({kind, ddtree::dtype::bf16, drawn_rows, columns, 7}));
  std::vector<float> row(sized(columns));
  for (index_t r = 0; r < drawn_rows; ++r) {
    std::transform(bits + r * columns, bits + (r + 1) * columns, row.begin(),
                   ddtree::rules::bf16_to_float);
    std::partial_sort(row.begin(), row.begin() + ddtree::max_top_k, row.end(), std::greater<>());
    float sum = 0.0f;
    for (float const x : row) sum += std::exp(x - row[0]);
    float const log_sum = row[0] + std::log(sum);
    for (std::size_t i = 0; i < ddtree::max_top_k; ++i) all.push_back(row[i] - log_sum);
  }
  return all;
}

struct host_candidates {
  std::vector<ddtree::token_t> token;
  std::vector<float> log_prob;
  std::vector<std::uint32_t> flags;
};

host_candidates draw(ddtree::round_shape const& shape, logit_kind kind, int batch_number) {
  host_candidates c;
  auto const& all = log_probs(kind);
  index_t const rows = shape.batch * shape.depth;
  for (index_t i = 0; i < rows; ++i) {
    index_t const from = (batch_number * rows + i) % drawn_rows * ddtree::max_top_k;
    c.log_prob.insert(c.log_prob.end(), all.begin() + from, all.begin() + from + shape.top_k);
    for (std::int32_t r = 0; r < shape.top_k; ++r) {
      c.token.push_back(static_cast<ddtree::token_t>((i * 7919 + r * 104729) % shape.vocab));
    }
  }
  c.flags.assign(sized(shape.batch), 0);
  return c;
}

/// Rows of a tree from its root on, `accepted_nodes` deep or as deep as it goes.
std::vector<node_t> draw_walk(std::vector<node_t> const& parent, std::mt19937& random) {
  std::vector<int> height(parent.size(), 0);
  for (std::size_t i = parent.size() - 1; i > 0; --i) {
    if (parent[i] < 0) continue;  // padding
    int& above = height[sized(parent[i])];
    above = std::max(above, height[i] + 1);
  }
  std::vector<node_t> path{0};
  for (int left = std::min(accepted_nodes, height[0]); left > 0; --left) {
    // Children deep enough to go on; siblings stand in rank order.
    std::vector<node_t> children;
    for (std::size_t i = 1; i < parent.size(); ++i) {
      bool const fits = parent[i] == path.back() && height[i] >= left - 1;
      if (fits) children.push_back(static_cast<node_t>(i));
    }
    bool const best = random() % 4 != 0;
    path.push_back(children[best ? 0 : random() % children.size()]);
  }
  return path;
}

}  // namespace

ddtree::candidates draw_candidates(scene& s, ddtree::round_shape const& shape, logit_kind kind,
                                   int batch_number) {
  auto const c = draw(shape, kind, batch_number);
  return {s.array(c.token), s.array(c.log_prob), s.array(c.flags)};
}

ddtree::draft_tree tree_arrays(scene& s, ddtree::round_shape const& shape) {
  index_t const rows = shape.batch * shape.width();
  ddtree::draft_tree t;
  t.token = s.array<ddtree::token_t>(rows);
  t.parent = s.array<node_t>(rows);
  t.depth = s.array<std::int32_t>(rows);
  t.rank = s.array<std::int32_t>(rows);
  t.log_weight = s.array<float>(rows);
  t.first_child = s.array<node_t>(rows);
  t.next_sibling = s.array<node_t>(rows);
  t.ancestors = s.array<std::uint32_t>(rows * shape.words());
  t.num_nodes = s.array<std::int32_t>(shape.batch);
  t.flags = s.array<std::uint32_t>(shape.batch);
  return t;
}

ddtree::draft_tree draw_trees(scene& s, ddtree::round_shape const& shape) {
  scene host(ddtree::context::cpu(), 1);
  auto const in = draw_candidates(host, shape, logit_kind::peaked, 0);
  auto const built = tree_arrays(host, shape);
  auto const scratch = host.scratch(ddtree::build_tree_workspace_bytes(host.ctx, shape));
  auto* const root = host.filled<ddtree::token_t>(shape.batch, 1);
  auto const status = ddtree::build_tree(host.ctx, shape, {}, in, root, built, scratch);
  if (!status) throw std::runtime_error(status.message);

  auto const move = [&](auto const* array, index_t count) {
    return s.array(host.values(array, count));
  };
  index_t const rows = shape.batch * shape.width();
  return {move(built.token, rows),
          move(built.parent, rows),
          move(built.depth, rows),
          move(built.rank, rows),
          move(built.log_weight, rows),
          move(built.first_child, rows),
          move(built.next_sibling, rows),
          move(built.ancestors, rows * shape.words()),
          move(built.num_nodes, shape.batch),
          move(built.flags, shape.batch)};
}

std::vector<index_t> draw_walks(scene const& s, ddtree::round_shape const& shape,
                                ddtree::draft_tree const& trees) {
  index_t const width = shape.width();
  auto const parent = s.values(trees.parent, shape.batch * width);
  auto const token = s.values(trees.token, shape.batch * width);
  std::mt19937 random(1);
  std::vector<index_t> elements;
  for (index_t root = 0; root < shape.batch * width; root += width) {
    auto const path = draw_walk({parent.begin() + root, parent.begin() + root + width}, random);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      elements.push_back((root + path[i]) * shape.vocab + token[sized(root + path[i + 1])]);
    }
  }
  return elements;
}

}  // namespace bench
