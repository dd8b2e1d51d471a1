// SPDX-License-Identifier: Apache-2.0
// The paper's best-first search (arXiv 2604.12989, Algorithm 1) over exact weights, and the links
// of trees made elsewhere.
#include "cpu/build.hpp"

#include "cpu/frontier.hpp"
#include "rules/build.hpp"
#include "rules/views.hpp"
#include "rules/weight.hpp"
#include "support/carve.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

using rules::growth;
using rules::rank_path;
using rules::weight_t;

/// A row that is linked from nowhere and links nowhere.
void write_alone(draft_tree const& tree, index_t i, token_t token, float log_weight) {
  tree.token[i] = token;
  tree.parent[i] = -1;
  tree.depth[i] = 0;
  tree.rank[i] = -1;
  tree.log_weight[i] = log_weight;
  tree.first_child[i] = -1;
  tree.next_sibling[i] = -1;
}

void write_root(draft_tree const& tree, index_t token, index_t vocab, std::uint32_t& flags) {
  bool const is_id = token >= 0 && token < vocab;
  if (!is_id) flags |= flag::id_out_of_range;
  write_alone(tree, 0, is_id ? static_cast<token_t>(token) : 0, 0.0f);
}

/// What follows from the nodes: the padding, and the ancestors of every row.
void finish(draft_tree const& tree, round_shape const& shape, index_t num_nodes,
            std::uint32_t flags) {
  index_t const width = shape.width();
  index_t const words = shape.words();
  for (index_t i = num_nodes; i < width; ++i) {
    write_alone(tree, i, tree.token[0], rules::minus_infinity);
  }
  for (index_t i = 0; i < width; ++i) {
    std::uint32_t* const row = tree.ancestors + i * words;
    if (tree.parent[i] >= 0) {
      std::copy_n(tree.ancestors + tree.parent[i] * words, words, row);
    } else {
      std::fill_n(row, words, 0u);
    }
    row[i / 32] |= 1u << (i % 32);
  }
  *tree.num_nodes = static_cast<std::int32_t>(num_nodes);
  *tree.flags = flags;
}

void write_inactive(draft_tree const& tree, round_shape const& shape) {
  write_alone(tree, 0, 0, 0.0f);
  finish(tree, shape, 1, 0);
}

/// The candidates of a request that the search may use: of each row the ranks before its cut.
class candidate_rows {
 public:
  candidate_rows(support::build_tree_call const& call, index_t b, growth const& most)
      : top_k_(call.shape.top_k),
        token_(call.in.token + b * call.shape.depth * top_k_),
        log_prob_(call.in.log_prob + b * call.shape.depth * top_k_) {
    // Rank r comes after r siblings, so it cannot be selected where r >= most.nodes.
    index_t const ranks = std::min(top_k_, most.nodes);
    for (index_t d = 1; d <= most.depth; ++d) ranks_[d] = usable(d, ranks, call.shape.vocab);
  }

  /// For depths from 1 to max_depth + 1; past the request's own depth there is none.
  bool has(index_t depth, index_t rank) const { return rank < ranks_[depth]; }

  weight_t weight(index_t depth, index_t rank) const {
    return rules::weight(log_prob_[(depth - 1) * top_k_ + rank]);
  }
  token_t token(index_t depth, index_t rank) const { return token_[(depth - 1) * top_k_ + rank]; }

  bool cut() const { return cut_; }

 private:
  index_t usable(index_t depth, index_t ranks, index_t vocab) {
    token_t const* const token = token_ + (depth - 1) * top_k_;
    float const* const log_prob = log_prob_ + (depth - 1) * top_k_;
    float before = 0.0f;
    index_t r = 0;
    for (; r < ranks && rules::is_usable(token[r], log_prob[r], before, vocab); ++r) {
      before = log_prob[r];
    }
    cut_ = cut_ || (r < ranks && rules::is_cut_at(log_prob[r]));
    return r;
  }

  index_t top_k_;
  token_t const* token_;
  float const* log_prob_;
  index_t ranks_[max_depth + 2] = {};  // by depth, from 1 on
  bool cut_ = false;
};

/// What a worker needs for one tree, [width] each: a step of the search takes one node off the
/// frontier and adds two at most.
struct search_memory {
  next_node* frontier;
  rank_path* path;
};

search_memory carve(support::carver& memory, support::build_tree_call const& call) {
  index_t const threads = std::min(call.ctx.threads, support::max_threads);
  index_t const rows = std::min(threads, call.shape.batch) * call.shape.width();
  search_memory all;
  all.frontier = memory.take<next_node>(rows);
  all.path = memory.take<rank_path>(rows);
  return all;
}

/// Grows one tree from its root.
class search {
 public:
  search(candidate_rows const& rows, draft_tree const& tree, search_memory const& memory)
      : rows_(rows), tree_(tree), path_(memory.path), frontier_(memory.frontier, memory.path) {
    path_[0] = {};
  }

  void run(growth const& most, index_t seed_depth, weight_t lowest) {
    index_t seeds = 0;
    while (seeds < std::min(seed_depth, most.nodes) && rows_.has(seeds + 1, 0)) ++seeds;
    index_t others = most.nodes - seeds;
    next_node seed = {0, 0, 0, 0, -1};  // the deepest one in the tree; at first the root
    node_t seed_row = 0;

    if (rows_.has(1, 0)) frontier_.push(first_child(seed, seed_row));
    while (others > 0 && !frontier_.empty() && frontier_.first().weight >= lowest) {
      next_node const best = frontier_.first();
      node_t const row = append(best);
      advance(best, row);
      if (best.rank == 0 && best.from == seed_row && best.depth <= seeds) {
        seed = best;
        seed_row = row;
      } else {
        --others;
      }
    }
    // Nodes leave the frontier in the exact order, so a seed that has not is behind all that have;
    // and the next seed, an extension, is behind this one.
    while (seed.depth < seeds) {
      seed = first_child(seed, seed_row);
      seed_row = append(seed);
    }
  }

  index_t num_nodes() const { return num_nodes_; }
  std::int32_t highest_rank() const { return highest_rank_; }

 private:
  next_node first_child(next_node const& n, node_t row) const {
    std::int32_t const depth = n.depth + 1;
    return {n.weight + rows_.weight(depth, 0), frontier::first_word(n.path, depth), row, depth, 0};
  }

  next_node right_sibling(next_node const& n, node_t row) const {
    weight_t const step = rows_.weight(n.depth, n.rank + 1) - rows_.weight(n.depth, n.rank);
    return {n.weight + step, frontier::first_word(n.path, n.depth), row, n.depth, n.rank + 1};
  }

  /// Puts the two nodes that `n`, now in the tree, opens in its place.
  void advance(next_node const& n, node_t row) {
    if (rows_.has(n.depth, n.rank + 1)) {
      frontier_.replace_first(right_sibling(n, row));
    } else {
      frontier_.drop_first();
    }
    if (rows_.has(n.depth + 1, 0)) frontier_.push(first_child(n, row));
  }

  node_t append(next_node const& n) {
    auto const row = static_cast<node_t>(num_nodes_++);
    write_alone(tree_, row, rows_.token(n.depth, n.rank), rules::to_log_weight(n.weight));
    tree_.parent[row] = n.rank == 0 ? n.from : tree_.parent[n.from];
    tree_.depth[row] = n.depth;
    tree_.rank[row] = n.rank;
    (n.rank == 0 ? tree_.first_child : tree_.next_sibling)[n.from] = row;
    path_[row] = frontier_.path_of(n);
    highest_rank_ = std::max(highest_rank_, n.rank);
    return row;
  }

  candidate_rows const& rows_;
  draft_tree const& tree_;
  rank_path* path_;
  frontier frontier_;
  index_t num_nodes_ = 1;
  std::int32_t highest_rank_ = -1;
};

void build_one(support::build_tree_call const& call, index_t b, search_memory const& memory) {
  draft_tree const tree = rules::tree_of(call.out, call.shape, b);
  rules::batch_row const row = rules::find_row(call.batch, call.shape.request_rows(), b);
  if (!row.active) return write_inactive(tree, call.shape);

  std::uint32_t flags = call.in.flags[b];
  write_root(tree, rules::load_id(call.root, b), call.shape.vocab, flags);
  growth const most = rules::growth_of(call.shape, call.options, row);
  candidate_rows const rows(call, b, most);
  search best_first(rows, tree, memory);
  best_first.run(most, call.options.seed_depth, rules::min_weight(call.options.min_log_weight));

  if (most.length_limited) flags |= flag::length_limited;
  if (rows.cut()) flags |= flag::candidates_cut;
  if (best_first.highest_rank() == call.shape.top_k - 1) flags |= flag::top_k_limited;
  finish(tree, call.shape, best_first.num_nodes(), flags);
}

/// Copies the nodes of request b up to the first that is not sound; returns how many there are.
index_t copy_nodes(support::link_tree_call const& call, index_t b, draft_tree const& tree,
                   std::uint32_t& flags) {
  index_t const given = rules::load_id(call.in.num_nodes, b);
  index_t const num_nodes = std::clamp(given, index_t{1}, call.shape.width());
  if (given != num_nodes) flags |= flag::id_out_of_range;
  for (index_t i = 1; i < num_nodes; ++i) {
    index_t const parent = rules::load_id(call.in.parent, b * call.in.parent.stride + i);
    index_t const token = rules::load_id(call.in.token, b * call.in.token.stride + i);
    if (parent < 0 || parent >= i || token < 0 || token >= call.shape.vocab) {
      flags |= flag::id_out_of_range;
      return i;
    }
    if (tree.depth[parent] == call.shape.depth) {
      flags |= flag::length_limited;
      return i;
    }
    float const log_weight =
        call.in.log_weight != nullptr ? call.in.log_weight[b * call.shape.width() + i] : 0.0f;
    write_alone(tree, i, static_cast<token_t>(token), log_weight);
    tree.parent[i] = static_cast<node_t>(parent);
    tree.depth[i] = tree.depth[parent] + 1;
  }
  return num_nodes;
}

void link_siblings(draft_tree const& tree, index_t num_nodes) {
  // From the last row to the first, each node is put before the siblings already linked.
  for (auto i = static_cast<node_t>(num_nodes - 1); i > 0; --i) {
    node_t& first = tree.first_child[tree.parent[i]];
    tree.next_sibling[i] = first;
    first = i;
  }
  // From the first to the last, so that a node knows its rank when its right sibling asks for it.
  for (index_t i = 0; i < num_nodes; ++i) {
    if (tree.first_child[i] >= 0) tree.rank[tree.first_child[i]] = 0;
    if (tree.next_sibling[i] >= 0) tree.rank[tree.next_sibling[i]] = tree.rank[i] + 1;
  }
}

void link_one(support::link_tree_call const& call, index_t b) {
  draft_tree const tree = rules::tree_of(call.out, call.shape, b);
  rules::batch_row const row = rules::find_row(call.batch, call.shape.request_rows(), b);
  if (!row.active) return write_inactive(tree, call.shape);

  std::uint32_t flags = 0;
  index_t const root = rules::load_id(call.in.token, b * call.in.token.stride);
  write_root(tree, root, call.shape.vocab, flags);
  index_t const num_nodes = copy_nodes(call, b, tree, flags);
  link_siblings(tree, num_nodes);
  finish(tree, call.shape, num_nodes, flags);
}

}  // namespace

std::size_t build_tree_workspace(support::build_tree_call const& call) noexcept {
  support::carver counter;
  carve(counter, call);
  return counter.bytes();
}

status build_tree(support::build_tree_call const& call) noexcept {
  support::carver memory(call.scratch);
  search_memory const all = carve(memory, call);
  support::parallel_for(call.ctx.threads, call.shape.batch, [&](index_t b, std::int32_t worker) {
    index_t const at = worker * call.shape.width();
    build_one(call, b, {all.frontier + at, all.path + at});
  });
  return {};
}

status link_tree(support::link_tree_call const& call) noexcept {
  support::parallel_for(call.ctx.threads, call.shape.batch,
                        [&](index_t b, std::int32_t) { link_one(call, b); });
  return {};
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
