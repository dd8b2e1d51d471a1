// SPDX-License-Identifier: Apache-2.0
/// @file tensorrt_llm.hpp
/// TensorRT-LLM's buffers: what its generation attention reads, and what its acceptance writes.
///
/// `width` is maxDecodingTokens (max_draft_len + 1), `depth` maxDraftPathLen. Integers are int32 in
/// its attention and in the path-based decoders, int64 in its dynamic-tree kernels: an `ids_out`
/// takes either. docs/embed/tensorrt_llm.md says where each call goes. Every call enqueues only: no
/// synchronisation, no allocation, one kernel, capturable.
#ifndef DDTREE_FORMATS_TENSORRT_LLM_HPP
#define DDTREE_FORMATS_TENSORRT_LLM_HPP

#include "ddtree/compact.hpp"
#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/formats/kv_layout.hpp"
#include "ddtree/formats/query_rows.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace tensorrt_llm {

/// The inputs of a generation step, [batch, width] unless noted; null = not wanted.
struct verify_buffers {
  /// [batch], rows of each request, the root included.
  ids_out generation_lengths = {};
  /// [batch + 1], exclusive sums of generation_lengths: first dense row of each request.
  ids_out cu_generation_lengths = {};
  /// Depth, to be added to S; 0 at the root and at padding rows. The positions of the dynamic-tree
  /// kernels too.
  ids_out position_offsets = {};
  /// [batch, width, words], words = ceil(width / 32): bit j % 32 of word j / 32 = node j is
  /// visible; tree-relative, the context implicit. Padding rows see themselves. Padded rows.
  std::uint32_t* packed_mask = nullptr;
  /// [rows, words], the same words for the rows that exist alone, request after request (Hopper's
  /// XQA). Room for batch * width rows.
  std::uint32_t* dense_packed_mask = nullptr;
  /// [batch], first column of the tree in the keys, S; 0 for an inactive request.
  ids_out first_sparse_mask_offset_kv = {};
  /// Token of each node; padding rows repeat the root's.
  ids_out candidates = {};
  /// [batch, width - 1]: the same without the root, draft i being node i + 1.
  ids_out draft_ids = {};
  /// Row in the request (local: i), first child, next sibling; -1 = none.
  ids_out retrieve_index = {};
  ids_out retrieve_next_token = {};
  ids_out retrieve_next_sibling = {};
  /// [batch, width, depth + 1]: every path from the root to a leaf, in the order of the leaves; -1
  /// behind a path, and in the rows behind the last path. All -1 for an inactive request.
  ids_out paths = {};
};

/// Options of write_verify_buffers.
struct verify_options {
  /// What generation_lengths are: node counts (none for an inactive request), or width throughout.
  query_rows rows = query_rows::nodes;
};

/// Writes what the target's forward over the tree, and the engine's own acceptance, read.
///
/// @param shape  batch, depth (for paths), budget, requests are used.
/// @param batch  cache_len is needed for first_sparse_mask_offset_kv.
/// @param tree   those of token, parent, depth, first_child, next_sibling, ancestors, num_nodes
/// that
///               the wanted arrays come from.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_verify_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, draft_tree const& tree,
                                       verify_buffers const& out,
                                       verify_options const& options = {}) noexcept;

/// An acceptance in both of the engine's conventions; null = not wanted.
struct accept_buffers {
  /// [batch, accept_columns]: rows of the accepted nodes, local, the root's 0 first; then -1.
  ids_out accept_index = {};
  /// [batch, accept_columns]: the accepted tokens, then the bonus, then -1.
  ids_out accept_token = {};
  /// Entries of a row of the two, at least depth + 1; 0 = depth + 1.
  index_t accept_columns = 0;
  /// [batch], accepted drafts, root and bonus excluded (dynamic trees); -1 for an inactive request.
  ids_out accept_token_num = {};
  /// [batch], tokens that come out, the bonus *included* (paths): accept_token_num + 1.
  ids_out accepted_lengths = {};
  /// [batch + 1], exclusive sums of the accepted drafts: where each request's are in the list
  /// below.
  ids_out accepted_lengths_cumsum = {};
  /// [batch * depth]: the accepted nodes of all requests without a gap, as drafts (node - 1), the
  /// root left out; then -1. seqAcceptedDraftTokenOffsets and packedAcceptedDraftTokensIndices of
  /// the KV update are this pair.
  ids_out paths_offsets = {};
  /// [batch, indices_columns]: the same by request, -1 behind (the KV update's 2-D form, with
  /// accepted_lengths as its numAcceptedTokens).
  ids_out accepted_indices = {};
  /// Entries of a row (max_draft_len), at least depth; 0 = depth.
  index_t indices_columns = 0;
};

/// Writes an acceptance as the engine's kernels would have.
///
/// @param shape  batch, depth, budget, requests are used.
/// @param path   num_accepted, path and token where an array comes from them. An entry that can be
///               no node gives -1.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_accept_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, accepted const& path,
                                       accept_buffers const& out) noexcept;

/// What the engine's verifyGreedy left.
struct accept_results {
  /// [batch, accept_columns], local rows.
  ids_in accept_index = {};
  /// [batch, accept_columns].
  ids_in accept_token = {};
  /// Entries of a row of the two; 0 = depth + 1.
  index_t accept_columns = 0;
  /// [batch], drafts only.
  ids_in accept_token_num = {};
};

/// Reads an acceptance by the engine's kernels, for `compact_kv` and the other calls after one; a
/// path that is none is held as `sglang::read_accept_results` says.
///
/// @param shape  batch, vocab, depth, budget and requests are used.
/// @param out    all arrays bound but log_prob, which must be null.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status read_accept_results(context const& ctx, round_shape const& shape,
                                      batch_view const& batch, accept_results const& in,
                                      accepted const& out) noexcept;

/// K and V of one layer of a KVBlockArray for `compact_kv`, on the host: blocks
/// [heads, tokens per block, head size], addressed by tables 0 and 1.
///
/// @param layer_base  the primary pool's address plus layer * 2 * extents.page_bytes().
/// @param extents     pages: blocks of K or V from layer_base to the end of the pool.
inline void make_kv_tensors(void* layer_base, kv_extents const& extents,
                            kv_tensor out[2]) noexcept {
  for (std::int32_t k = 0; k < 2; ++k) {
    out[k] = make_kv_tensor(kv_order::hnd, layer_base, extents, 0, k);
  }
}

/// The tables of K and V for these tensors: block offsets int32 [requests, 2, max_blocks]. A block
/// of the secondary pool, marked by the top bit, names no page here: its rows are skipped and
/// flagged.
inline void make_kv_tables(std::int32_t* offsets, index_t max_blocks, index_t tokens_per_block,
                           kv_table out[2]) noexcept {
  for (int k = 0; k < 2; ++k) {
    out[k] = kv_table{};
    out[k].entries = {offsets + k * max_blocks, dtype::i32, 2 * max_blocks};
    out[k].columns = max_blocks;
    out[k].page_size = tokens_per_block;
  }
}

}  // namespace tensorrt_llm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_TENSORRT_LLM_HPP
