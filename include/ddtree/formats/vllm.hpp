// SPDX-License-Identifier: Apache-2.0
/// @file vllm.hpp
/// vLLM's buffers: the packed rows of a verify step, what its sampler would have put out, and where
/// recurrent states stand.
///
/// docs/embed/vllm.md says where each call goes. Every call enqueues only: no synchronisation, no
/// allocation, one kernel, capturable.
///
/// Some buffers are what the core calls write already. `qq_bias`, float32 [batch, width, width], is
/// `write_mask` as additive f32 of region tree (0 or -inf); a visibility of [batch, width, width]
/// bools is the same as boolean.
#ifndef DDTREE_FORMATS_VLLM_HPP
#define DDTREE_FORMATS_VLLM_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/formats/kv_layout.hpp"
#include "ddtree/formats/query_rows.hpp"
#include "ddtree/mask.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace vllm {

/// The rows of a verify step, packed: request b has its rows from query_start_loc[b] on. Null = not
/// wanted.
struct verify_buffers {
  /// [batch + 1], first row of each request, and the total. int32 in vLLM. The first `batch`
  /// entries are the row_offset of a `logits_view` over the packed rows.
  ids_out query_start_loc = {};
  /// [batch], S + the request's rows: this step's tokens included. 0 for an inactive request.
  /// int32.
  ids_out seq_lens = {};
  /// [max_rows] each: token, S + depth (the rotary position, int64), and the physical slot of slot
  /// number S + i (int64; `verify_slots` says what padding gets). Rows behind the last request's
  /// are token 0, position 0, slot -1.
  ids_out input_ids = {};
  ids_out positions = {};
  ids_out slot_mapping = {};
  /// [max_rows], batch row that each row belongs to, and its node there; -1 behind the last.
  ids_out row_request = {};
  ids_out row_node = {};
  /// Rows that the packed arrays have; 0 = batch * width. Rows beyond are left out, and
  /// query_start_loc is held to it.
  index_t max_rows = 0;
};

/// Options of write_verify_buffers.
struct verify_options {
  query_rows rows = query_rows::nodes;
  /// Block table, capacity, and the slot of padding rows (query_rows::width), as for
  /// `write_verify_inputs`. An attention kernel reads the rows behind the last node as keys,
  /// masked: `padding_slot::in_sequence` keeps them finite.
  ddtree::verify_options slots = {};
};

/// Writes the rows that the target runs. Inactive requests have no row (query_rows::nodes), or rows
/// of token 0, position 0 and a slot of -1 or the dummy (query_rows::width).
///
/// @param shape  batch, budget, requests are used.
/// @param batch  cache_len is needed for seq_lens, positions and slot_mapping.
/// @param tree   those of token, depth, num_nodes that the wanted arrays come from.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_verify_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, draft_tree const& tree,
                                       verify_buffers const& out,
                                       verify_options const& options = {}) noexcept;

/// First row of each request among rows packed by node count: row_offset[b], [batch], for a
/// `logits_view`, `rows_view` or `bitmask_view` over packed rows. Inactive requests have none.
///
/// @param tree  num_nodes is used.
DDTREE_API status write_row_offsets(context const& ctx, round_shape const& shape,
                                    batch_view const& batch, draft_tree const& tree,
                                    ids_out row_offset) noexcept;

/// What vLLM carries on with after sampling; null = not wanted.
struct output_buffers {
  /// [batch, output_columns], int32: accepted tokens, then the bonus, then -1.
  ids_out output_token_ids = {};
  /// Entries of a row (max_spec_len + 1), at least depth + 1; 0 = depth + 1.
  index_t output_columns = 0;
  /// [batch], int32: tokens that were put out, the bonus included; 0 for an inactive request.
  ids_out num_sampled_tokens = {};
  /// [batch], int32: num_nodes - 1 - accepted drafts; 0 for an inactive request.
  ids_out num_rejected_tokens = {};
  /// [batch], int32: as num_sampled_tokens, but 1 for an inactive request: recurrent layers read
  /// the state of column num_accepted_tokens - 1.
  ids_out num_accepted_tokens = {};
  /// [requests], for compact_state with a from_node_stride of 0: the block that holds the state of
  /// the last accepted node, and that of column num_accepted_tokens - 1. The latter is -1 (nothing
  /// to copy) where they are the same. Left alone for inactive requests.
  ids_out state_from = {};
  ids_out state_to = {};
};

/// Writes an acceptance as vLLM's rejection sampler puts its own out.
///
/// @param shape               batch, depth, budget, requests are used.
/// @param tree                num_nodes, for num_rejected_tokens.
/// @param path                num_accepted, and token or path where an array comes from it.
/// @param spec_state_indices  [batch, width], block of each node's state; needed for state_from and
///                            state_to.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_output_buffers(context const& ctx, round_shape const& shape,
                                       batch_view const& batch, draft_tree const& tree,
                                       accepted const& path, ids_in spec_state_indices,
                                       output_buffers const& out) noexcept;

/// vLLM's generations of a layer's KV cache.
enum class kv_cache_layout : std::int32_t {
  /// [2, blocks, ...]: all of K, then all of V.
  kv_first = 0,
  /// [blocks, 2, ...]: K and V alternate by block.
  block_first = 1,
  /// One row holds both, [..., 2 * head_size] (K first); MLA's latent rows too. One tensor.
  packed = 2,
};

/// The tensors of one layer for `compact_kv`, on the host. Layers that share storage: once.
///
/// @param order         nhd or hnd as the strides say (vLLM's HND is a stride order: the shape does
///                      not tell).
/// @param kv            the layer's data pointer.
/// @param extents       blocks, block size of the kernel (it may be smaller than the allocator's),
///                      heads, and bytes of one head's row: of K or of V, of both where packed.
/// @param block_stride  bytes from block to block of K; 0 = dense for the layout. Given where
/// layers
///                      alternate within one allocation.
/// @return how many were written, 1 or 2.
inline int make_kv_tensors(kv_cache_layout layout, kv_order order, void* kv,
                           kv_extents const& extents, kv_tensor out[2], index_t block_stride = 0,
                           std::int32_t table = 0) noexcept {
  bool const alternates = layout == kv_cache_layout::block_first;
  index_t const dense = extents.page_bytes() * (alternates ? 2 : 1);
  index_t const stride = block_stride != 0 ? block_stride : dense;
  out[0] = make_kv_tensor(order, kv, extents, stride, table);
  if (layout == kv_cache_layout::packed) return 1;
  index_t const to_v = alternates ? extents.page_bytes() : extents.pages * stride;
  out[1] = make_kv_tensor(order, static_cast<char*>(kv) + to_v, extents, stride, table);
  return 2;
}

}  // namespace vllm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_VLLM_HPP
