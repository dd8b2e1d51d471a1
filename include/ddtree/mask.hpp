// SPDX-License-Identifier: Apache-2.0
/// @file mask.hpp
/// What the target's forward pass over the tree needs: the attention mask and the input rows.
#ifndef DDTREE_MASK_HPP
#define DDTREE_MASK_HPP

#include <cstdint>
#include <limits>

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// How a mask says "visible".
enum class mask_kind : std::int32_t {
  /// 32-bit words, bit c % 32 of word c / 32 set = column c visible. `type` is not used.
  bits = 0,
  /// One byte per column, 1 = visible. `type` is u8.
  boolean = 1,
  /// One number per column, 0 = visible, otherwise `masked_value`. `type` is f32, f16 or bf16.
  additive = 2,
};

/// Which columns of a row a mask has, and which of them are written.
enum class mask_columns : std::int32_t {
  /// Column j is node j: [width, width]. The context is implicit.
  tree = 0,
  /// Column c is KV slot c: the context 0..S-1, the tree at S..S+width-1, then masked columns up
  /// to `columns`. All are written.
  full = 1,
  /// Columns as in `full`, but only max(0, S - width)..S + width - 1 are written (with a window the
  /// range starts window - 1 columns earlier; for bits whole words that overlap it). Enough in a
  /// persistent buffer whose rows were last written, by `full` or `recent`, for the same request at
  /// most `width` committed tokens ago: every column that changed since lies in that range.
  recent = 2,
};

/// A mask to write, [batch, width, columns]. Strides let it be the engine's own persistent buffer.
struct mask_view {
  void* data = nullptr;
  mask_kind kind = mask_kind::bits;
  dtype type = dtype::u8;
  mask_columns region = mask_columns::tree;
  /// Columns of a row for `full` and `recent`; columns beyond are never written, but for the rest of
  /// the last word of bits, which is 0. Not used for `tree`.
  index_t columns = 0;
  /// Words (bits) or elements from row to row; 0 = dense: the words or elements of a row.
  index_t row_stride = 0;
  /// Words or elements from request to request; 0 = width * row_stride.
  index_t batch_stride = 0;
  /// Value of a masked column for `additive`, rounded to `type`: -inf, or a large negative number
  /// where a fully masked row must not give NaN. A finite value stays finite, held to the largest
  /// of the type.
  float masked_value = -std::numeric_limits<float>::infinity();
  /// Sliding window: a column is visible only if its position is less than `window` back from the
  /// row's (context column c has position c, node j has S + depth[j]). 0 = none.
  index_t window = 0;
};

/// Writes the ancestor-or-self visibility of each tree row.
///
/// Row i sees column j of the tree where the ancestor bit is set, and (full, recent) the context
/// columns 0..S-1, both within the window. Padding rows see themselves and the context, as a row
/// of depth 0. A row of an inactive request is written as if S were 0. Every byte of the named
/// region is written every time, whatever it held.
///
/// @param batch  cache_len is needed for `full` and `recent`.
/// @param tree   ancestors is used, depth too where there is a window.
/// @return `invalid_argument`, `unsupported`, `unsupported_device`.
DDTREE_API status write_mask(context const& ctx, round_shape const& shape, batch_view const& batch,
                             draft_tree const& tree, mask_view const& out) noexcept;

/// The target's input rows, [batch, width] each; null = not wanted.
struct verify_inputs {
  /// Token of each row; padding rows repeat the root's.
  ids_out token = {};
  /// S + depth: siblings share a position. Padding rows have the root's; inactive requests 0.
  ids_out position = {};
  /// Where the row's keys and values go; see `verify_options`.
  ids_out slot = {};
};

/// What stands in `slot` for padding rows.
enum class padding_slot : std::int32_t {
  /// -1, which engines skip.
  minus_one = 0,
  /// `verify_options::dummy_slot`, a row that nothing reads.
  dummy = 1,
  /// The slot after the tree, S + i, as for a node; -1 where it is outside capacity or table.
  in_sequence = 2,
};

/// Options of write_verify_inputs.
struct verify_options {
  padding_slot padding = padding_slot::minus_one;
  /// Used with `padding_slot::dummy`, also for all rows of inactive requests (which otherwise
  /// have -1: a stale table may point at another request's pages).
  std::int64_t dummy_slot = 0;
  /// [requests], KV rows allocated; a slot number S + i at or beyond it is written as -1. Null =
  /// no limit.
  ids_in capacity = {};
  /// Null entries = `slot` holds the slot number S + i. Otherwise it holds the physical slot,
  /// page * page_size + row, and -1 where S + i or its entry is outside the table.
  kv_table table = {};
};

/// Writes the token, position and slot of each verify row.
///
/// @param batch  cache_len is needed where position or slot is wanted.
/// @param tree   token, depth and num_nodes are used.
/// @return `invalid_argument`, `unsupported`, `unsupported_device`.
DDTREE_API status write_verify_inputs(context const& ctx, round_shape const& shape,
                                      batch_view const& batch, draft_tree const& tree,
                                      verify_inputs const& out,
                                      verify_options const& options = {}) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_MASK_HPP
