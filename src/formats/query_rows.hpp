// SPDX-License-Identifier: Apache-2.0
// How many rows of a request an engine runs.
#pragma once

#include "ddtree/formats/query_rows.hpp"
#include "ddtree/tree.hpp"

#include "rules/hd.hpp"
#include "rules/views.hpp"
#include "rules/walk.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {

DDTREE_HD inline index_t count_rows(query_rows rows, draft_tree const& tree,
                                    round_shape const& shape, rules::batch_row const& at,
                                    index_t b) {
  if (rows == query_rows::width) return shape.width();
  return at.active ? rules::count_nodes(tree, shape, b) : 0;
}

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
