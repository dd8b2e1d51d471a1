// SPDX-License-Identifier: Apache-2.0
// What the tree of a request may be made of: how far it may grow, and which candidates count.
#pragma once

#include "ddtree/build.hpp"
#include "ddtree/tree.hpp"

#include "rules/hd.hpp"
#include "rules/views.hpp"
#include "rules/weight.hpp"

namespace ddtree {
inline namespace v0 {
namespace rules {

/// The arrays of request b alone.
DDTREE_HD inline draft_tree tree_of(draft_tree const& all, round_shape const& shape, index_t b) {
  index_t const width = index_t{shape.budget} + 1;
  index_t const at = b * width;
  draft_tree one;
  one.token = all.token + at;
  one.parent = all.parent + at;
  one.depth = all.depth + at;
  one.rank = all.rank + at;
  one.log_weight = all.log_weight + at;
  one.first_child = all.first_child + at;
  one.next_sibling = all.next_sibling + at;
  one.ancestors = all.ancestors + at * ((width + 31) / 32);
  one.num_nodes = all.num_nodes + b;
  one.flags = all.flags + b;
  return one;
}

/// How far a request's tree may grow.
struct growth {
  index_t nodes;  // the root not counted
  index_t depth;
  bool length_limited;
};

/// A parameter of a request, held to [0, most]; `most` where it is off.
DDTREE_HD inline index_t held(ids_in const& ids, index_t request, index_t most) {
  if (ids.data == nullptr) return most;
  index_t const value = load_id(ids, request);
  return value < 0 ? 0 : value < most ? value : most;
}

/// Holds `most` to what is left of a limit past S + used.
DDTREE_HD inline void hold_to_length(ids_in const& limit, batch_row const& row, index_t used,
                                     index_t& most, bool& limited) {
  if (limit.data == nullptr) return;
  // -1 stands for every negative limit: none leaves room, and the difference cannot overflow.
  index_t const given = load_id(limit, row.request);
  index_t const room = (given < 0 ? -1 : given) - row.cache_len - used;
  if (room >= most) return;
  limited = true;
  most = room < 0 ? 0 : room;
}

DDTREE_HD inline growth growth_of(round_shape const& shape, build_options const& options,
                                  batch_row const& row) {
  growth most{held(options.budget, row.request, shape.budget),
              held(options.max_depth, row.request, shape.depth), false};
  hold_to_length(options.capacity, row, 1, most.nodes, most.length_limited);
  hold_to_length(options.max_position, row, 0, most.depth, most.length_limited);
  most.depth = most.depth < most.nodes ? most.depth : most.nodes;
  return most;
}

/// Whether a candidate may be selected; `before` is the log-prob of the rank before, 0 for the
/// first. A row is read up to the first that may not. NaN compares false.
DDTREE_HD inline bool is_usable(token_t token, float log_prob, float before, index_t vocab) {
  return log_prob <= before && log_prob >= lowest_log_prob && token >= 0 && token < vocab;
}

/// Whether a row that ends at this candidate was cut, rather than simply ending.
DDTREE_HD inline bool is_cut_at(float log_prob) { return !(log_prob < lowest_log_prob); }

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
