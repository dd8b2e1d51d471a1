// SPDX-License-Identifier: Apache-2.0
// The arrays of candidates, trees and accepted paths in a context's memory, bound as views.
#pragma once

#include "ddtree/tree.hpp"

#include "support/buffer.hpp"

namespace ddtree_test {

inline std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

struct candidate_buffers {
  candidate_buffers(ddtree::context const& ctx, ddtree::round_shape const& s)
      : token(ctx, sized(s.batch * s.depth * s.top_k)),
        log_prob(ctx, token.size()),
        flags(ctx, sized(s.batch)) {}

  ddtree::candidates view() { return {token.data(), log_prob.data(), flags.data()}; }
  bool intact() const { return token.intact() && log_prob.intact() && flags.intact(); }

  buffer<ddtree::token_t> token;
  buffer<float> log_prob;
  buffer<std::uint32_t> flags;
};

struct tree_buffers {
  tree_buffers(ddtree::context const& ctx, ddtree::round_shape const& s)
      : token(ctx, sized(s.batch * s.width())),
        parent(ctx, token.size()),
        depth(ctx, token.size()),
        rank(ctx, token.size()),
        log_weight(ctx, token.size()),
        first_child(ctx, token.size()),
        next_sibling(ctx, token.size()),
        ancestors(ctx, sized(s.batch * s.width() * s.words())),
        num_nodes(ctx, sized(s.batch)),
        flags(ctx, sized(s.batch)) {}

  ddtree::draft_tree view() {
    return {token.data(),      parent.data(),      depth.data(),        rank.data(),
            log_weight.data(), first_child.data(), next_sibling.data(), ancestors.data(),
            num_nodes.data(),  flags.data()};
  }
  bool intact() const {
    return token.intact() && parent.intact() && depth.intact() && rank.intact() &&
           log_weight.intact() && first_child.intact() && next_sibling.intact() &&
           ancestors.intact() && num_nodes.intact() && flags.intact();
  }

  buffer<ddtree::token_t> token;
  buffer<ddtree::node_t> parent;
  buffer<std::int32_t> depth;
  buffer<std::int32_t> rank;
  buffer<float> log_weight;
  buffer<ddtree::node_t> first_child;
  buffer<ddtree::node_t> next_sibling;
  buffer<std::uint32_t> ancestors;
  buffer<std::int32_t> num_nodes;
  buffer<std::uint32_t> flags;
};

struct accepted_buffers {
  accepted_buffers(ddtree::context const& ctx, ddtree::round_shape const& s)
      : path(ctx, sized(s.batch * (s.depth + 1))),
        num_accepted(ctx, sized(s.batch)),
        token(ctx, path.size()),
        bonus(ctx, sized(s.batch)),
        log_prob(ctx, path.size()),
        flags(ctx, sized(s.batch)) {}

  /// With or without log_prob.
  ddtree::accepted view(bool with_log_prob = false) {
    return {path.data(),
            num_accepted.data(),
            token.data(),
            bonus.data(),
            with_log_prob ? log_prob.data() : nullptr,
            flags.data()};
  }
  bool intact() const {
    return path.intact() && num_accepted.intact() && token.intact() && bonus.intact() &&
           log_prob.intact() && flags.intact();
  }

  buffer<ddtree::node_t> path;
  buffer<std::int32_t> num_accepted;
  buffer<ddtree::token_t> token;
  buffer<ddtree::token_t> bonus;
  buffer<float> log_prob;
  buffer<std::uint32_t> flags;
};

}  // namespace ddtree_test
