// SPDX-License-Identifier: Apache-2.0
// What every walk down a tree starts from, and what it goes by.
#pragma once

#include "ddtree/accept.hpp"
#include "ddtree/tree.hpp"

#include "rules/hd.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

/// A row of the batch as acceptance sees it: also inactive where nothing may be emitted.
struct accept_row {
  batch_row at;
  index_t remaining = 0;  // 1 or more where active
};

template <class Call>
DDTREE_HD accept_row find_accept_row(Call const& call, index_t b) {
  accept_row row{find_row(call.batch, call.shape.request_rows(), b)};
  if (!row.at.active) return row;
  ids_in const& remaining = call.options.remaining;
  // Without a limit there is none that a tree could reach.
  row.remaining =
      remaining.data != nullptr ? load_id(remaining, row.at.request) : index_t{max_depth} + 1;
  row.at.active = row.remaining > 0;
  return row;
}

/// Rows of request b's tree, whatever the array holds.
DDTREE_HD inline std::int32_t count_nodes(draft_tree const& tree, round_shape const& shape,
                                          index_t b) {
  std::int32_t const given = tree.num_nodes[b];
  std::int32_t const width = shape.budget + 1;
  return given < 1 ? 1 : given < width ? given : width;
}

/// What the target says at a node.
struct target_token {
  token_t token = 0;      // in [0, vocab)
  bool can_match = true;  // false: the walk ends here, whatever the tree holds
  std::uint32_t flags = 0;
  float log_prob = 0.0f;
};

/// A token that the engine sampled.
DDTREE_HD inline target_token target_from_id(index_t id, index_t vocab) {
  target_token target;
  if (id >= 0 && id < vocab) {
    target.token = static_cast<token_t>(id);
  } else {
    target.can_match = false;
    target.flags = flag::id_out_of_range;
  }
  return target;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
