// SPDX-License-Identifier: Apache-2.0
// The arrays that the operations hand to each other, cut out of one piece of memory in the order of
// their structs. Distances within a block depend on the shape alone, so that a block copied to
// another rank has the same layout there.
#pragma once

#include "ddtree/tree.hpp"
#include "support/carve.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

inline candidates carve_candidates(carver& c, round_shape const& s) {
  candidates out;
  out.token = c.take<token_t>(s.batch * s.depth * s.top_k);
  out.log_prob = c.take<float>(s.batch * s.depth * s.top_k);
  out.flags = c.take<std::uint32_t>(s.batch);
  return out;
}

inline draft_tree carve_tree(carver& c, round_shape const& s) {
  index_t const nodes = s.batch * s.width();
  draft_tree out;
  out.token = c.take<token_t>(nodes);
  out.parent = c.take<node_t>(nodes);
  out.depth = c.take<std::int32_t>(nodes);
  out.rank = c.take<std::int32_t>(nodes);
  out.log_weight = c.take<float>(nodes);
  out.first_child = c.take<node_t>(nodes);
  out.next_sibling = c.take<node_t>(nodes);
  out.ancestors = c.take<std::uint32_t>(nodes * s.words());
  out.num_nodes = c.take<std::int32_t>(s.batch);
  out.flags = c.take<std::uint32_t>(s.batch);
  return out;
}

inline accepted carve_accepted(carver& c, round_shape const& s) {
  index_t const rows = s.batch * (index_t{s.depth} + 1);
  accepted out;
  out.path = c.take<node_t>(rows);
  out.num_accepted = c.take<std::int32_t>(s.batch);
  out.token = c.take<token_t>(rows);
  out.bonus = c.take<token_t>(s.batch);
  out.log_prob = c.take<float>(rows);
  out.flags = c.take<std::uint32_t>(s.batch);
  return out;
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
