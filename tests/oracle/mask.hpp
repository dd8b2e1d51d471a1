// SPDX-License-Identifier: Apache-2.0
// Masks and verify rows restated: one question per column or row. Nothing of the library is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle::mask {

using number = long long;

/// All rows of a tree, its padding included.
struct tree {
  std::vector<int> parent, depth;
  int num_nodes = 1;
};

enum class region { tree, full, recent };

/// Which columns a mask has and writes.
struct layout {
  region where = region::tree;
  number columns = 0;
  number window = 0;
};

/// [row][column]: the column's node is the row's or an ancestor of it.
inline std::vector<std::vector<bool>> ancestors(tree const& t) {
  std::size_t const width = t.parent.size();
  std::vector<std::vector<bool>> sees(width, std::vector<bool>(width, false));
  for (std::size_t i = 0; i < width; ++i) {
    for (int j = static_cast<int>(i); j >= 0; j = t.parent[static_cast<std::size_t>(j)]) {
      sees[i][static_cast<std::size_t>(j)] = true;
    }
  }
  return sees;
}

/// Columns of a row of the mask.
inline number columns_of(layout const& mask, number width) {
  return mask.where == region::tree ? width : mask.columns;
}

inline bool is_written(layout const& mask, number width, number cache_len, number column) {
  if (column < 0 || column >= columns_of(mask, width)) return false;
  if (mask.where != region::recent) return true;
  number const earlier = mask.window > 0 ? mask.window - 1 : 0;
  return cache_len - width - column <= earlier && column < cache_len + width;
}

/// Whether row i sees a column of the mask. `sees` is what `ancestors` gives.
inline bool is_visible(layout const& mask, tree const& t,
                       std::vector<std::vector<bool>> const& sees, number cache_len, std::size_t i,
                       number column) {
  number const slot = mask.where == region::tree ? cache_len + column : column;
  number const node = slot - cache_len;
  if (node >= static_cast<number>(t.parent.size())) return false;
  auto const j = static_cast<std::size_t>(node < 0 ? 0 : node);
  if (node >= 0 && !sees[i][j]) return false;
  number const position = node < 0 ? slot : cache_len + t.depth[j];
  return mask.window == 0 || cache_len + t.depth[i] - position < mask.window;
}

/// Where slot numbers stand. Without rows a slot is its number.
struct page_table {
  std::vector<std::vector<number>> rows;  // by request
  number page_size = 1;
  number mask = -1;
  number scale = 1;
};

inline number physical_slot(page_table const& table, number capacity, number request, number slot) {
  if (slot >= capacity) return -1;
  if (table.rows.empty()) return slot;
  auto const& row = table.rows[static_cast<std::size_t>(request)];
  auto const column = static_cast<std::size_t>(slot / table.page_size);
  if (column >= row.size()) return -1;
  number const entry = row[column] & table.mask;
  return entry < 0 ? -1 : entry * table.scale * table.page_size + slot % table.page_size;
}

}  // namespace oracle::mask
