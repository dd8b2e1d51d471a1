// SPDX-License-Identifier: Apache-2.0
/// @file flashinfer.hpp
/// FlashInfer's buffers: the index arrays and the custom mask of a batch prefill over paged KV.
///
/// docs/embed/flashinfer.md says where the call goes. It enqueues only: no synchronisation, no
/// allocation, one kernel, capturable.
#ifndef DDTREE_FORMATS_FLASHINFER_HPP
#define DDTREE_FORMATS_FLASHINFER_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/formats/query_rows.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace flashinfer {

/// How the custom mask says True = attend.
enum class mask_form : std::int32_t {
  /// One bit, the lowest of a byte first; bit q * kv_len + k of a request. Rows are not aligned;
  /// every request begins at a byte, and the bits behind its last one are 0.
  packed = 0,
  /// One byte, at the same index.
  boolean = 1,
};

/// What the kernels of BatchPrefillWithPagedKVCacheWrapper read; int32 in FlashInfer; null = not
/// wanted. Request b has q rows and kv_len = S + q tokens, the tree's own included.
struct plan_buffers {
  /// [batch + 1], first query row of each request, and the total.
  ids_out qo_indptr = {};
  /// [batch + 1], first entry of each request in kv_indices, and the total.
  ids_out paged_kv_indptr = {};
  /// [max_pages], pages of all requests without a gap. Entries at or beyond max_pages, and those
  /// behind the last request's, are never written.
  ids_out paged_kv_indices = {};
  index_t max_pages = 0;
  /// [batch], tokens in each request's last page, 1..page size.
  ids_out paged_kv_last_page_len = {};
  /// The mask, and the bytes that it has: bytes beyond, and those behind the last request's, are
  /// never written.
  void* custom_mask = nullptr;
  index_t custom_mask_bytes = 0;
  mask_form form = mask_form::packed;
  /// [batch + 1], first byte of each request's mask, whatever the form: what the kernel reads.
  /// (FlashInfer's plan leaves element counts there when it is handed a packed mask.)
  ids_out mask_indptr = {};
};

/// Options of write_plan_buffers.
struct plan_options {
  query_rows rows = query_rows::width;
  /// Page of a request's tokens that its table does not name, and of inactive requests.
  std::int64_t dummy_page = 0;
};

/// Writes the index arrays and the mask of a prefill over the tree.
///
/// The mask is what `write_mask` says: ancestors and self, and the whole context. Padding rows
/// (query_rows::width) see the context and themselves. An inactive request is a tree of padding on
/// dummy pages without a context (query_rows::width), or no row and one token of the dummy page
/// (query_rows::nodes).
///
/// @param shape  batch, budget, requests are used.
/// @param batch  cache_len is needed.
/// @param tree   ancestors for the mask, num_nodes for query_rows::nodes.
/// @param table  the request's pages, and the page size.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_plan_buffers(context const& ctx, round_shape const& shape,
                                     batch_view const& batch, draft_tree const& tree,
                                     kv_table const& table, plan_buffers const& out,
                                     plan_options const& options = {}) noexcept;

}  // namespace flashinfer
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_FLASHINFER_HPP
