// SPDX-License-Identifier: Apache-2.0
// The walk that every accept call does: down the tree along the target's own tokens.
#pragma once

#include "ddtree/accept.hpp"

#include "rules/views.hpp"
#include "rules/walk.hpp"

#include <algorithm>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {

using rules::accept_row;
using rules::count_nodes;
using rules::find_accept_row;
using rules::target_token;

/// The links of one request's tree. Nodes stand behind their parents and siblings in rank order, so
/// that an index which does not rise is corrupt; it counts as -1.
class tree_links {
 public:
  tree_links(draft_tree const& tree, round_shape const& shape, index_t b)
      : token_(tree.token + b * shape.width()),
        first_child_(tree.first_child + b * shape.width()),
        next_sibling_(tree.next_sibling + b * shape.width()),
        num_nodes_(count_nodes(tree, shape, b)) {}

  /// The first child in rank order with this token, or -1.
  node_t find_child(node_t node, token_t token, std::uint32_t& flags) const {
    node_t child = follow(first_child_[node], node, flags);
    while (child >= 0 && token_[child] != token) {
      child = follow(next_sibling_[child], child, flags);
    }
    return child;
  }

 private:
  node_t follow(node_t link, node_t from, std::uint32_t& flags) const {
    if (link > from && link < num_nodes_) return link;
    if (link != -1) flags |= flag::id_out_of_range;
    return -1;
  }

  token_t const* token_;
  node_t const* first_child_;
  node_t const* next_sibling_;
  std::int32_t num_nodes_;
};

/// What a walk found; as it starts, what is written for an inactive request.
struct walk_result {
  walk_result() {
    std::fill(path, path + rows, -1);
    std::fill(token, token + rows, -1);
  }

  static constexpr std::int32_t rows = max_depth + 1;
  node_t path[rows];
  token_t token[rows];
  float log_prob[rows] = {};
  std::int32_t num_accepted = -1;
  token_t bonus = -1;
  std::uint32_t flags = 0;
};

inline bool is_stop(accept_options const& options, index_t request, token_t token) {
  if (options.stop_tokens.data == nullptr) return false;
  index_t const first = request * options.stop_tokens.stride;
  for (index_t i = 0; i < options.stop_tokens_per_request; ++i) {
    if (rules::load_id(options.stop_tokens, first + i) == token) return true;
  }
  return false;
}

/// Follows the tokens that target_at(node, depth) gives. It is asked for the rows on the path only.
template <class Call, class TargetAt>
walk_result follow_target(Call const& call, index_t b, accept_row const& row, TargetAt target_at) {
  tree_links const tree(call.tree, call.shape, b);
  walk_result w;
  w.flags = call.tree.flags[b];
  std::int32_t depth = 0;
  for (node_t node = 0; node >= 0;) {
    target_token const target = target_at(node, depth);
    w.path[depth] = node;
    w.token[depth] = target.token;
    w.log_prob[depth] = target.log_prob;
    w.flags |= target.flags;
    if (!target.can_match) break;
    if (is_stop(call.options, row.at.request, target.token)) {
      w.flags |= flag::stopped;
      break;
    }
    if (depth == call.shape.depth) break;
    node = tree.find_child(node, target.token, w.flags);
    if (node < 0) break;
    if (depth + 1 == row.remaining) {
      w.flags |= flag::limit_reached;
      break;
    }
    ++depth;
  }
  w.num_accepted = depth;
  w.bonus = w.token[depth];
  return w;
}

template <class Call>
void store_mirror(Call const& call, index_t b, accept_row const& row, walk_result const& w) {
  accept_mirror const& mirror = call.options.mirror;
  if (mirror.token.data != nullptr) {
    for (index_t i = 0; i <= call.shape.depth; ++i) {
      rules::store_id(mirror.token, b * mirror.token.stride + i, w.token[i]);
    }
  }
  if (mirror.bonus.data != nullptr) rules::store_id(mirror.bonus, b, w.bonus);
  if (mirror.num_accepted.data != nullptr) rules::store_id(mirror.num_accepted, b, w.num_accepted);
  if (mirror.new_cache_len.data != nullptr && row.at.active) {
    rules::store_id(mirror.new_cache_len, row.at.request, row.at.cache_len + w.num_accepted + 1);
  }
}

template <class Call>
void store(Call const& call, index_t b, accept_row const& row, walk_result const& w) {
  accepted const& out = call.out;
  index_t const rows = index_t{call.shape.depth} + 1;
  std::copy_n(w.path, rows, out.path + b * rows);
  std::copy_n(w.token, rows, out.token + b * rows);
  if (out.log_prob != nullptr) std::copy_n(w.log_prob, rows, out.log_prob + b * rows);
  out.num_accepted[b] = w.num_accepted;
  out.bonus[b] = w.bonus;
  out.flags[b] = w.flags;
  store_mirror(call, b, row, w);
}

/// Request b's acceptance. target_at: (accept_row, node, depth) to target_token.
template <class Call, class TargetAt>
void accept_request(Call const& call, index_t b, TargetAt target_at) {
  accept_row const row = find_accept_row(call, b);
  walk_result result;
  if (row.at.active) {
    result = follow_target(call, b, row, [&](node_t node, std::int32_t depth) {
      return target_at(row.at, node, depth);
    });
  }
  store(call, b, row, result);
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
