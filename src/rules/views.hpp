// SPDX-License-Identifier: Apache-2.0
// How the views of the public headers address memory. Strides have been resolved by the API: none
// is 0 for "dense" any more.
#pragma once

#include "ddtree/views.hpp"
#include "rules/hd.hpp"

namespace ddtree {
inline namespace v0 {
namespace rules {

/// Longest cache that a request may have; entries beyond it mark the request inactive. Far above
/// any real length, and low enough that no sum or product with it overflows.
inline constexpr index_t max_cache_len = index_t{1} << 40;

/// Element i of an array of ids.
DDTREE_HD inline index_t load_id(ids_in const& ids, index_t i) {
  return ids.type == dtype::i64 ? static_cast<std::int64_t const*>(ids.data)[i]
                                : static_cast<std::int32_t const*>(ids.data)[i];
}

DDTREE_HD inline void store_id(ids_out const& ids, index_t i, index_t value) {
  if (ids.type == dtype::i64) {
    static_cast<std::int64_t*>(ids.data)[i] = value;
  } else {
    static_cast<std::int32_t*>(ids.data)[i] = static_cast<std::int32_t>(value);
  }
}

/// Index of row (b, i) of a logits_view, rows_view or bitmask_view, in rows.
template <class View>
DDTREE_HD inline index_t row_index(View const& view, index_t b, index_t i) {
  index_t const first =
      view.row_offset.data != nullptr ? load_id(view.row_offset, b) : b * view.batch_stride;
  return first + i;
}

/// What stands in a row of the batch.
struct batch_row {
  index_t request = 0;
  index_t cache_len = 0;  // 0 where the array is not bound
  bool active = false;
};

/// Looks row b up. Reads the per-request arrays only where the request is in range.
DDTREE_HD inline batch_row find_row(batch_view const& batch, index_t request_rows, index_t b) {
  batch_row row;
  row.request = batch.request.data != nullptr ? load_id(batch.request, b) : b;
  if (row.request < 0 || row.request >= request_rows) return row;
  if (batch.cache_len.data != nullptr) {
    index_t const length = load_id(batch.cache_len, row.request);
    if (length < 0 || length > max_cache_len) return row;
    row.cache_len = length;
  }
  row.active = true;
  return row;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
