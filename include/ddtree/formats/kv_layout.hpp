// SPDX-License-Identifier: Apache-2.0
/// @file kv_layout.hpp
/// The KV layouts that engines share, as the `kv_tensor` that `compact_kv` takes. Plain arithmetic
/// on the host: fill the table once, copy it to the device, keep it.
#ifndef DDTREE_FORMATS_KV_LAYOUT_HPP
#define DDTREE_FORMATS_KV_LAYOUT_HPP

#include "ddtree/compact.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {

/// Order of tokens and heads in a page.
enum class kv_order : std::int32_t {
  /// [page_size, heads, row]
  nhd = 0,
  /// [heads, page_size, row]
  hnd = 1,
};

/// Extents of K or V of one layer.
struct kv_extents {
  index_t pages = 0;
  index_t page_size = 1;
  std::int32_t heads = 1;
  /// Bytes of one head's row of one token.
  std::int32_t row_bytes = 0;

  constexpr index_t page_bytes() const noexcept { return page_size * heads * row_bytes; }
};

/// K or V, or rows that hold both: pages of the given order.
///
/// @param page_stride  bytes from page to page; 0 = dense. K and V that alternate by page, as
///                     [pages, 2, ...], are two tensors of stride 2 * page_bytes().
/// @param table        which of the cache's tables addresses it.
constexpr kv_tensor make_kv_tensor(kv_order order, void* base, kv_extents const& extents,
                                   index_t page_stride = 0, std::int32_t table = 0) noexcept {
  kv_tensor t;
  bool const is_nhd = order == kv_order::nhd;
  t.base = base;
  t.page_stride = page_stride != 0 ? page_stride : extents.page_bytes();
  t.token_stride = is_nhd ? index_t{extents.heads} * extents.row_bytes : extents.row_bytes;
  t.head_stride = is_nhd ? extents.row_bytes : extents.page_size * extents.row_bytes;
  t.pages = extents.pages;
  t.heads = extents.heads;
  t.row_bytes = extents.row_bytes;
  t.table = table;
  return t;
}

}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_KV_LAYOUT_HPP
