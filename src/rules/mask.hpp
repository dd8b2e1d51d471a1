// SPDX-License-Identifier: Apache-2.0
// Which columns of a mask are written, which are visible, and what a masked one holds; and the slot
// of a verify row.
#pragma once

#include "ddtree/mask.hpp"

#include "rules/arith.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/hd.hpp"
#include "rules/slots.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

/// Half-open range of columns.
struct column_span {
  index_t begin;
  index_t end;
};

DDTREE_HD constexpr column_span overlap(column_span a, column_span b) noexcept {
  index_t const end = a.end < b.end ? a.end : b.end;
  index_t const begin = a.begin > b.begin ? a.begin : b.begin;
  return {begin < end ? begin : end, end};
}

/// The first n bits of a word.
DDTREE_HD constexpr std::uint32_t low_bits(index_t n) noexcept {
  return n <= 0 ? 0u : n >= 32 ? ~0u : (1u << n) - 1u;
}

/// Longer windows than any position are all alike, and need no 64-bit overflow.
DDTREE_HD constexpr index_t held_window(index_t window) noexcept {
  return window < 2 * max_cache_len ? window : 2 * max_cache_len;
}

/// Column of node 0.
DDTREE_HD constexpr index_t tree_column(mask_view const& out, index_t cache_len) noexcept {
  return out.region == mask_columns::tree ? 0 : cache_len;
}

/// How far before the tree a `recent` write begins: the tree of the last write lies in it, and a
/// row there saw nothing that lies more than a window before that tree.
DDTREE_HD constexpr index_t recent_reach(index_t width, index_t window) noexcept {
  return width + (window > 1 ? held_window(window) - 1 : 0);
}

/// The columns that a call writes for a request of this cache length.
DDTREE_HD constexpr column_span written_columns(mask_view const& out, index_t width,
                                                index_t cache_len) noexcept {
  if (out.region == mask_columns::tree) return {0, width};
  if (out.region == mask_columns::full) return {0, out.columns};
  return overlap({0, out.columns},
                 {cache_len - recent_reach(width, out.window), cache_len + width});
}

/// The context that a row of this depth sees.
DDTREE_HD constexpr column_span visible_context(mask_view const& out, index_t cache_len,
                                                index_t depth) noexcept {
  index_t const begin = out.window > 0 ? cache_len + depth - held_window(out.window) + 1 : 0;
  return {begin > 0 ? begin : 0, tree_column(out, cache_len)};
}

/// The bits of a masked column where they are f16 or bf16. A finite value stays finite, held to the
/// largest: -inf in a row that is masked in full would make NaN.
DDTREE_HD inline std::uint16_t masked_bits(dtype type, float value) noexcept {
  std::uint16_t const bits = type == dtype::f16 ? float_to_f16(value) : float_to_bf16(value);
  std::uint16_t const largest = type == dtype::f16 ? 0x7bffu : 0x7f7fu;
  bool const is_finite = value >= -largest_float && value <= largest_float;
  bool const has_overflowed = is_finite && (bits & 0x7fffu) > largest;
  return has_overflowed ? static_cast<std::uint16_t>((bits & 0x8000u) | largest) : bits;
}

/// The physical slot of slot number `slot`, or -1.
DDTREE_HD inline index_t verify_slot(verify_options const& options, index_t request, index_t slot) {
  if (options.capacity.data != nullptr && slot >= load_id(options.capacity, request)) return -1;
  if (options.table.entries.data == nullptr) return slot;
  return physical_slot(options.table, request, slot);
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
