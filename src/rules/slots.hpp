// SPDX-License-Identifier: Apache-2.0
// Where a slot number of a request stands in the KV tensors.
#pragma once

#include "rules/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace rules {

/// A physical place: row `row` of page `page`. Not `found` where the slot is outside the table.
struct place {
  index_t page = 0;
  index_t row = 0;
  bool found = false;
};

/// Masked entries beyond it name no page; entry_scale, held to max_entry_scale by the API, cannot
/// make them overflow.
inline constexpr index_t max_page_unit = index_t{1} << 40;
inline constexpr index_t max_entry_scale = index_t{1} << 20;

/// Of a power of two.
DDTREE_HD inline int log2_of(index_t power) {
#if defined(__CUDA_ARCH__)
  return __ffsll(power) - 1;
#else
  return __builtin_ctzll(static_cast<unsigned long long>(power));
#endif
}

DDTREE_HD inline place locate(kv_table const& table, index_t request, index_t slot) {
  if (slot < 0) return {};
  if (table.entries.data == nullptr) return {request, slot, slot < table.page_size};
  // Page sizes are mostly powers of two, and a division is what a look-up costs most of.
  index_t const size = table.page_size;
  bool const is_power = (size & (size - 1)) == 0;
  index_t const column = is_power ? slot >> log2_of(size) : slot / size;
  if (column >= table.columns) return {};
  index_t const entry = load_id(table.entries, request * table.entries.stride + column);
  index_t const unit = entry & table.entry_mask;
  if (unit < 0 || unit > max_page_unit) return {};
  return {unit * table.entry_scale, slot - column * size, true};
}

/// The row of a slot in tensors seen as [pages * page_size] rows; -1 where there is none.
DDTREE_HD inline index_t physical_slot(kv_table const& table, index_t request, index_t slot) {
  place const at = locate(table, request, slot);
  if (!at.found || at.page > (index_t{1} << 62) / table.page_size) return -1;
  return at.page * table.page_size + at.row;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
