// SPDX-License-Identifier: Apache-2.0
/// @file transformers.hpp
/// Hugging Face transformers: its tensors are what the core calls write and move already; here are
/// the views that say so. Plain values, nothing is enqueued.
///
/// position_ids, int64 [batch, width], is `verify_inputs::position`; cache_position, int64 [width],
/// is `verify_inputs::slot` of a batch of one with `padding_slot::in_sequence`.
/// docs/embed/transformers.md says where each call goes.
#ifndef DDTREE_FORMATS_TRANSFORMERS_HPP
#define DDTREE_FORMATS_TRANSFORMERS_HPP

#include "ddtree/compact.hpp"
#include "ddtree/formats/kv_layout.hpp"
#include "ddtree/mask.hpp"
#include "ddtree/views.hpp"

#include <cstdint>
#include <limits>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace transformers {

/// The 4-D attention mask, [batch, 1, width, kv_length], for `write_mask`. It is passed through the
/// model as it is.
///
/// @param type       u8 for a mask of bools (sdpa): 1 = attend. f32, f16 or bf16 for an additive
/// one
///                   (eager and sdpa): 0, or the smallest finite number of the type (not -inf,
///                   which would make NaN of a row that is masked in full).
/// @param kv_length  columns: S + width of a dynamic cache, where every request has the same S; the
///                   allocated length of a static one. Columns behind the tree are masked.
/// @param window     of sliding-window layers, whose mask is another one; 0 = none.
inline mask_view make_attention_mask(void* data, dtype type, index_t kv_length,
                                     index_t window = 0) noexcept {
  mask_view mask;
  mask.data = data;
  mask.kind = type == dtype::u8 ? mask_kind::boolean : mask_kind::additive;
  mask.type = type;
  mask.region = mask_columns::full;
  mask.columns = kv_length;
  // Held to the smallest of f16 and bf16 where that is the type.
  mask.masked_value = std::numeric_limits<float>::lowest();
  mask.window = window;
  return mask;
}

/// keys or values of one layer for `compact_kv`, [batch, heads, length, head_dim].
///
/// @param length     rows that a head has in memory: keys.stride(1) / keys.stride(2). A dynamic
/// cache
///                   that was cropped keeps the longer rows of its base; a static one has its
///                   allocated length.
/// @param row_bytes  head_dim * element size.
inline kv_tensor make_kv_tensor(void* data, index_t batch, index_t length, std::int32_t heads,
                                std::int32_t row_bytes) noexcept {
  return formats::make_kv_tensor(kv_order::hnd, data, {batch, length, heads, row_bytes});
}

/// The table of such a cache: request b's rows are those of batch row b, `length` of them.
inline kv_table make_kv_table(index_t length) noexcept {
  kv_table table;
  table.page_size = length;
  return table;
}

}  // namespace transformers
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_TRANSFORMERS_HPP
