// SPDX-License-Identifier: Apache-2.0
// Compaction restated: read everything from a copy, then write. Nothing of the library is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace oracle {

using bytes = std::vector<unsigned char>;
using number = long long;

/// One request's accepted nodes, the root included: row path[r] of its tree goes to row r.
struct walk {
  number request = 0;
  number cache_len = 0;
  std::vector<number> path;
};

/// A block table by request; without rows the cache is contiguous, a page per request.
struct page_table {
  std::vector<std::vector<number>> rows;
  number page_size = 1;
  number mask = -1;
  number scale = 1;
};

struct cache_tensor {
  number begin = 0;  // byte of page 0, row 0, head 0
  number page_stride = 0, token_stride = 0, head_stride = 0;
  number pages = 0, heads = 1, row_bytes = 0;
  std::size_t table = 0;
};

/// First byte of a slot's row; none where the table or the tensor ends before it.
inline std::optional<number> find_slot(cache_tensor const& tensor, page_table const& table,
                                       number request, number slot) {
  number page = request;
  if (!table.rows.empty()) {
    auto const& row = table.rows.at(static_cast<std::size_t>(request));
    auto const column = static_cast<std::size_t>(slot / table.page_size);
    if (column >= row.size()) return std::nullopt;
    number const entry = row[column] & table.mask;
    if (entry < 0) return std::nullopt;
    page = entry * table.scale;
    slot %= table.page_size;
  }
  if (slot >= table.page_size || page >= tensor.pages) return std::nullopt;
  return tensor.begin + page * tensor.page_stride + slot * tensor.token_stride;
}

/// What the cache holds afterwards. Sets skipped[i] where walk i met a slot that is not there.
inline bytes compact_cache(bytes const& before, std::vector<cache_tensor> const& tensors,
                           std::vector<page_table> const& tables, std::vector<walk> const& walks,
                           std::vector<bool>* skipped = nullptr) {
  bytes after = before;
  for (cache_tensor const& tensor : tensors) {
    for (std::size_t w = 0; w < walks.size(); ++w) {
      walk const& walk = walks[w];
      page_table const& table = tables.at(tensor.table);
      for (std::size_t r = 1; r < walk.path.size(); ++r) {
        number const node = walk.path[r];
        if (node == static_cast<number>(r)) continue;
        auto const from = find_slot(tensor, table, walk.request, walk.cache_len + node);
        auto const to = find_slot(tensor, table, walk.request, walk.cache_len + number(r));
        if (!from || !to) {
          if (skipped != nullptr) (*skipped)[w] = true;
          continue;
        }
        for (number head = 0; head < tensor.heads; ++head) {
          for (number i = 0; i < tensor.row_bytes; ++i) {
            number const at = head * tensor.head_stride + i;
            after.at(static_cast<std::size_t>(*to + at)) =
                before.at(static_cast<std::size_t>(*from + at));
          }
        }
      }
    }
  }
  return after;
}

/// The entries of a slot list afterwards: of the tree's, those of the path first, then the others.
inline std::vector<number> permute_slots(std::vector<number> const& slots, walk const& walk,
                                         number width) {
  std::vector<number> after(slots.begin(), slots.begin() + walk.cache_len);
  std::vector<bool> taken(static_cast<std::size_t>(width), false);
  number const nodes = std::min(width, static_cast<number>(slots.size()) - walk.cache_len);
  for (number const node : walk.path) {
    after.push_back(slots.at(static_cast<std::size_t>(walk.cache_len + node)));
    taken.at(static_cast<std::size_t>(node)) = true;
  }
  for (number node = 0; node < nodes; ++node) {
    if (taken[static_cast<std::size_t>(node)]) continue;
    after.push_back(slots[static_cast<std::size_t>(walk.cache_len + node)]);
  }
  after.insert(after.end(), slots.begin() + walk.cache_len + nodes, slots.end());
  return after;
}

}  // namespace oracle
