// SPDX-License-Identifier: Apache-2.0
// The accepted path as the calls after an acceptance read it. It may come from anywhere (another
// rank, a broadcast, the engine), so that every value is checked before it becomes an address.
#pragma once

#include "ddtree/tree.hpp"

#include "rules/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace rules {

struct accepted_row {
  batch_row at;
  node_t const* path = nullptr;  // [depth + 1]; null where the call has none
  std::int32_t count = -1;  // accepted nodes, at most depth; negative = leave the request alone
  std::uint32_t flags = 0;
};

/// The row of a request that is active, and whose num_accepted says so many.
DDTREE_HD inline accepted_row accepted_by(batch_row const& at, node_t const* path,
                                          std::int32_t num_accepted, round_shape const& shape) {
  bool const is_long = num_accepted > shape.depth;
  return {at, path, is_long ? shape.depth : num_accepted, is_long ? flag::id_out_of_range : 0u};
}

/// Looks row b up. Reads nothing of an inactive request.
DDTREE_HD inline accepted_row find_accepted(batch_view const& batch, accepted const& from,
                                            round_shape const& shape, index_t b) {
  batch_row const at = find_row(batch, shape.request_rows(), b);
  if (!at.active) return {at};
  node_t const* const path =
      from.path != nullptr ? from.path + b * (index_t{shape.depth} + 1) : nullptr;
  return accepted_by(at, path, from.num_accepted[b], shape);
}

/// Whether entry r of a path may name this node: a path rises from 0 by at least one per entry, so
/// that no source lies before its destination.
DDTREE_HD inline bool is_on_path(node_t node, std::int32_t r, round_shape const& shape) {
  return node >= r && node < shape.width();
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
