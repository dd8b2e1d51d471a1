// SPDX-License-Identifier: Apache-2.0
/// @file sglang.hpp
/// SGLang's buffers: what its target-verify batch reads, and what its verification writes.
///
/// `width` is SGLang's draft_token_num, `depth` its spec_steps. docs/embed/sglang.md says where
/// each call goes. Every call enqueues only: no synchronisation, no allocation, one kernel,
/// capturable.
#ifndef DDTREE_FORMATS_SGLANG_HPP
#define DDTREE_FORMATS_SGLANG_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace sglang {

/// SGLang's TreeMaskMode, with its values. True = attend.
enum class tree_mask : std::int32_t {
  /// bool, flat: request after request, each [width, S + width] row-major, without a gap.
  full = 0,
  /// bool, [batch, width, width]; the context is implicit. What `write_mask` writes as boolean.
  qlen_only = 1,
  /// One word per row, [batch, width]: 1 byte where width <= 8, 2 where <= 16, 4 where <= 32; bit j
  /// is node j. Wider trees are an `invalid_argument`.
  qlen_only_bitpacking = 2,
};

/// The inputs of a target-verify forward, [batch, width] unless noted; null = not wanted. int64 in
/// SGLang unless noted; int32 arrays are as good.
struct verify_buffers {
  /// Token of each node, draft_token and `candidates`; padding rows repeat the root's.
  ids_out draft_token = {};
  /// S + depth. Padding rows have the root's, inactive requests 0.
  ids_out positions = {};
  /// Row of each node in the flat batch, b * width + i, padding rows included.
  ids_out retrieve_index = {};
  /// First child, local, -1 = none.
  ids_out retrieve_next_token = {};
  /// Next sibling, local, -1 = none.
  ids_out retrieve_next_sibling = {};
  /// Parent, local; 0 at the root and at padding rows: what recurrent kernels start a node from.
  ids_out retrieve_parent_token = {};
  /// The mask, and the bytes that it has. Bytes beyond are never written, nor those behind the last
  /// request's.
  void* custom_mask = nullptr;
  index_t custom_mask_bytes = 0;
  tree_mask mode = tree_mask::full;
  /// For `full`: only columns S..S + width - 1 of each row are written, for backends that skip the
  /// context's or a buffer where they are True already.
  bool tree_part_only = false;
  /// [batch + 1], first element of each request's mask in `full` or `qlen_only` form, and the
  /// total.
  ids_out mask_indptr = {};
  /// [batch * width, kv_columns], int32: slots of the nodes that each row sees, from the root to
  /// the row itself, then 0. Padding rows and inactive requests see slot 0. With it a decode kernel
  /// of page size 1 that knows no mask attends over a tree, each row being a request of its own.
  ids_out kv_slots = {};
  /// Entries of a row of kv_slots, at least min(depth + 1, width); 0 = width.
  index_t kv_columns = 0;
  /// [batch * width], int32: how many slots each row sees, 1 or more.
  ids_out kv_lens = {};
};

/// Options of write_verify_buffers.
struct verify_options {
  /// S that an inactive request counts with in the mask: what seq_lens holds for padded requests.
  index_t inactive_len = 1;
};

/// Writes what the target's forward over the tree, and SGLang's own verify kernels, read.
///
/// Siblings stand in rank order. Padding rows see the context and themselves.
///
/// @param shape          batch, budget (and depth for kv_slots), requests are used.
/// @param batch          cache_len is needed for positions, custom_mask and mask_indptr.
/// @param tree           those of token, parent, depth, first_child, next_sibling, ancestors,
///                       num_nodes that the wanted arrays come from.
/// @param out_cache_loc  [batch, width], slot of each row; needed for kv_slots.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_verify_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, draft_tree const& tree,
                                       ids_in out_cache_loc, verify_buffers const& out,
                                       verify_options const& options = {}) noexcept;

/// What SGLang's Python carries on with after verification; null = not wanted. Its verify kernels
/// write the first three as int32.
struct accept_buffers {
  /// [batch * width]: the token after each accepted row, at that row; 0 elsewhere.
  ids_out predicts = {};
  /// [batch, accept_columns]: rows of the accepted nodes in the flat batch, b * width + i, the
  /// root's first; then -1.
  ids_out accept_index = {};
  /// Entries of a row of accept_index, at least depth + 1; 0 = depth + 1.
  index_t accept_columns = 0;
  /// [batch], accepted drafted nodes, root and bonus excluded; -1 for an inactive request, whose
  /// accept_index is all -1. So + 1 is always how many entries of accept_index are not -1.
  ids_out accept_token_num = {};
  /// [batch * (depth + 1)] each, int64: the moves of the KV pool, slot by slot, the accepted rows
  /// of all requests without a gap; then 0 (slot 0 onto itself). Rows already in place are among
  /// them.
  ids_out tgt_cache_loc = {};
  ids_out src_cache_loc = {};
  /// [batch * width], bool: 1 = the row's slot is free after the commit. Page size 1: every row
  /// that is not accepted, nothing having moved. Larger pages: the rows behind the page of the last
  /// committed token, the accepted rows having moved to the front.
  std::uint8_t* evict_mask = nullptr;
  index_t page_size = 1;
};

/// Writes an acceptance as SGLang's verify kernels would have, and the slot moves of its commit.
///
/// Index-only commit (page size 1) without moves: `compact_kv` over req_to_token, a kv_table with
/// `index_only`.
///
/// @param shape          batch, depth, budget and requests are used.
/// @param batch          cache_len is needed for evict_mask where page_size > 1.
/// @param path           path, num_accepted and token (for predicts) are used. An entry that can be
///                       no node gives -1, and no move.
/// @param out_cache_loc  [batch, width], slot of each row; needed for the moves.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_accept_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, accepted const& path,
                                       ids_in out_cache_loc, accept_buffers const& out) noexcept;

/// What a verification by SGLang left.
struct accept_results {
  /// [batch * width].
  ids_in predicts = {};
  /// [batch, accept_columns], global rows.
  ids_in accept_index = {};
  /// Entries of a row of accept_index; 0 = depth + 1.
  index_t accept_columns = 0;
  /// [batch], drafts only.
  ids_in accept_token_num = {};
};

/// Reads an acceptance by SGLang's verify kernels, for `compact_kv` and the other calls after one.
///
/// A path is read up to accept_token_num, depth or accept_columns, and up to its first entry that
/// is no row behind the one before it (flag id_out_of_range); a token outside [0, vocab) counts as
/// 0 (same flag). Inactive requests, and those whose accept_token_num is negative, are inactive in
/// the result.
///
/// @param shape  batch, vocab, depth, budget and requests are used.
/// @param out    all arrays bound but log_prob, which must be null.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status read_accept_results(context const& ctx, round_shape const& shape,
                                      batch_view const& batch, accept_results const& in,
                                      accepted const& out) noexcept;

}  // namespace sglang
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_SGLANG_HPP
