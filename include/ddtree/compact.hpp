// SPDX-License-Identifier: Apache-2.0
/// @file compact.hpp
/// Commit: the rows of accepted nodes move to the front of the tree's slots.
#ifndef DDTREE_COMPACT_HPP
#define DDTREE_COMPACT_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {

/// One tensor of a KV cache. Row (page, row in page, head) starts at base + page * page_stride +
/// row * token_stride + head * head_stride and has row_bytes bytes; all strides are in bytes and
/// may be negative. NHD and HND, K and V apart or interleaved, MLA latent rows (heads = 1), fp8 and
/// fp4 rows and their scale tensors are all of this form; layouts whose token has no byte rows
/// (scales at the end of a page) are not.
struct kv_tensor {
  void* base = nullptr;
  index_t page_stride = 0;
  index_t token_stride = 0;
  index_t head_stride = 0;
  /// Pages of the tensor; rows of a page at or beyond it are skipped and flagged.
  index_t pages = 0;
  std::int32_t heads = 1;
  /// Bytes of one head's row of one token.
  std::int32_t row_bytes = 0;
  /// Which of the cache's tables addresses it, 0..3.
  std::int32_t table = 0;
  std::int32_t reserved = 0;
};

/// Every tensor and table of a KV cache, so that one launch serves all layers and cache groups.
///
/// Slots of one request must be pairwise distinct and no two requests may share a destination page
/// (pages below S may be shared); otherwise the contents are undefined, yet nothing outside the
/// described memory is touched. Layers that share storage must be given once.
struct kv_cache {
  /// [num_tensors], in the context's memory.
  kv_tensor const* tensors = nullptr;
  index_t num_tensors = 0;
  kv_table table[4] = {{}, {}, {}, {}};
};

/// Moves the KV rows of accepted nodes: slot S + path[r] to S + r, r = 1..num_accepted, in place.
///
/// Rows below S and rows already in place are neither looked up nor written; a chain moves nothing.
/// Sources never lie before destinations (path[r] >= r), and all rows up to a chunk of 16 are read
/// before they are written, so that no scratch is needed. A row whose slot is outside its table or
/// tensor, or whose tensor has no base, no heads, no bytes or no such table, is skipped (flag
/// slot_out_of_range in accepted.flags).
///
/// Tables with `index_only` (page size 1) are permuted instead: of the entries S..S + width - 1 the
/// accepted ones come first, the others after them in their old order; no slot is lost or doubled
/// (entries after S + path[num_accepted] stay where they are). Tensors of such a table are not
/// moved. Where S + path[num_accepted] is outside the table's columns, nothing of that request and
/// table is permuted (flag slot_out_of_range).
///
/// The path is not trusted, here and in the calls below: num_accepted is held to depth, and an
/// entry path[r] outside [r, width) is skipped (flag id_out_of_range for both). An index_only table
/// is not permuted where the path does not rise strictly.
///
/// Requests whose num_accepted is negative, and inactive rows, are left alone. Enqueues only.
///
/// @param shape  batch, depth, budget and requests are used.
/// @param batch  cache_len is needed: S, as before `advance`.
/// @param path   path, num_accepted are read; flags are updated.
/// @return `invalid_argument`, `unsupported`, `unsupported_device`.
DDTREE_API status compact_kv(context const& ctx, round_shape const& shape, batch_view const& batch,
                             accepted const& path, kv_cache const& cache) noexcept;

/// Copies the rows of the root and the accepted nodes, row (b, path[r]) to row (b, r), r =
/// 0..num_accepted, of hidden states that feed the drafter, or of logits.
///
/// `to` may be `from` (in place, with the same strides and offsets) or memory that does not overlap
/// it. row_bytes must agree. Rows of `to` after num_accepted are left alone. A negative row_offset
/// skips its request (flag slot_out_of_range).
DDTREE_API status compact_rows(context const& ctx, round_shape const& shape,
                               batch_view const& batch, accepted const& path, rows_view const& from,
                               rows_view const& to) noexcept;

/// One recurrent state tensor (SSM state, convolution window) with a state per tree node.
struct state_tensor {
  /// State of node i of source slot s: from + s * from_slot_stride + i * from_node_stride.
  void const* from = nullptr;
  index_t from_slot_stride = 0;
  index_t from_node_stride = 0;
  index_t from_slots = 0;
  /// Live state of slot s: to + s * to_slot_stride. Strides are in bytes.
  void* to = nullptr;
  index_t to_slot_stride = 0;
  index_t to_slots = 0;
  /// Bytes of one state.
  index_t bytes = 0;
};

/// The recurrent states of all layers.
struct state_view {
  /// [num_tensors], in the context's memory.
  state_tensor const* tensors = nullptr;
  index_t num_tensors = 0;
  /// [requests], source slot of each request; null = the batch row b.
  ids_in from_slot = {};
  /// [requests], destination slot; -1 = skip. Null = the request's own index.
  ids_in to_slot = {};
  /// [batch], which entry of the path to take, 0 = the root; -1 = skip. Null = num_accepted, the
  /// last accepted node.
  ids_in take = {};
};

/// Copies the state of node path[take] of each request to its destination slot. May be called
/// twice, for the live slot and for a checkpoint.
///
/// A slot outside its tensor, a take outside [-1, num_accepted] and a tensor without memory or
/// bytes are skipped (flag slot_out_of_range). Source and destination must not overlap.
DDTREE_API status compact_state(context const& ctx, round_shape const& shape,
                                batch_view const& batch, accepted const& path,
                                state_view const& state) noexcept;

/// cache_len[request] += num_accepted + 1 for every active request; other entries are left alone,
/// as is an entry that is outside [0, 2^40] itself.
///
/// @param path       num_accepted is read, held to depth. No flag is set.
/// @param cache_len  [requests], read and written; usually the array of batch.cache_len.
DDTREE_API status advance(context const& ctx, round_shape const& shape, batch_view const& batch,
                          accepted const& path, ids_out cache_len) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_COMPACT_HPP
