// SPDX-License-Identifier: Apache-2.0
// How engines cut a vocabulary: the base ids and the ids that were added to them later, each filled
// up until every rank has as many columns, so that a row of a rank is
//   base ids, padding, added ids, padding.
#pragma once

#include "ddtree/views.hpp"

#include <algorithm>

struct vocabulary {
  static constexpr ddtree::index_t base = 1003, added = 21, size = base + added;

  explicit vocabulary(ddtree::index_t ranks)
      : base_columns(columns_for(base, ranks)), added_columns(columns_for(added, ranks)) {}

  ddtree::index_t columns() const { return base_columns + added_columns; }

  /// The columns of a rank that are ids. The last ranks have fewer than the others, or none.
  ddtree::vocab_ranges of(ddtree::index_t rank) const {
    return {{part(0, base_columns, rank, 0, base),
             part(base_columns, added_columns, rank, base, added)}};
  }

 private:
  static ddtree::index_t columns_for(ddtree::index_t ids, ddtree::index_t ranks) {
    ddtree::index_t const multiple = 8;
    return (ids + ranks * multiple - 1) / (ranks * multiple) * multiple;
  }
  static ddtree::vocab_range part(ddtree::index_t column, ddtree::index_t columns,
                                  ddtree::index_t rank, ddtree::index_t first_id,
                                  ddtree::index_t ids) {
    ddtree::index_t const begin = std::min(rank * columns, ids);
    ddtree::index_t const end = std::min(begin + columns, ids);
    return {column, end - begin, first_id + begin};
  }

  ddtree::index_t base_columns, added_columns;
};
