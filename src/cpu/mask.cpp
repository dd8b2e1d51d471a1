// SPDX-License-Identifier: Apache-2.0
#include "cpu/mask.hpp"

#include "rules/mask.hpp"
#include "rules/views.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

using rules::low_bits;
using rules::overlap;
using span = rules::column_span;

/// Rows of one request that a thread writes at a time.
constexpr index_t rows_per_block = 64;

constexpr index_t max_words = (index_t{max_budget} + 1 + 31) / 32;

/// What a row of the mask shows: a run of the context, and nodes of the tree.
struct visible {
  span context;        // columns
  index_t tree_begin;  // column of node 0
  index_t words;
  std::uint32_t nodes[max_words];

  template <class Body>
  void for_each_node(Body body) const {
    for (index_t k = 0; k < words; ++k) {
      for (std::uint32_t rest = nodes[k]; rest != 0; rest &= rest - 1) {
        body(k * 32 + std::countr_zero(rest));
      }
    }
  }

  /// The mask's word `word` of the row, one bit a column.
  std::uint32_t columns_of(index_t word) const {
    index_t const first = word * 32;
    std::uint32_t const in_context =
        low_bits(context.end - first) & ~low_bits(context.begin - first);
    // The word's nodes straddle two words of `nodes`, as node 0 may stand at any column.
    index_t const k = (first - tree_begin) >> 5;
    index_t const shift = (first - tree_begin) & 31;
    std::uint64_t const pair = std::uint64_t{nodes_at(k + 1)} << 32 | nodes_at(k);
    return in_context | static_cast<std::uint32_t>(pair >> shift);
  }

 private:
  std::uint32_t nodes_at(index_t k) const { return k >= 0 && k < words ? nodes[k] : 0u; }
};

/// Leaves what is in the sliding window of row i.
void hold_to_window(support::write_mask_call const& call, index_t b, index_t i, index_t cache_len,
                    visible& row) {
  index_t const window = rules::held_window(call.out.window);
  std::int32_t const* const depth = call.tree.depth + b * call.shape.width();
  row.context = rules::visible_context(call.out, cache_len, depth[i]);
  row.for_each_node([&](index_t j) {
    if (index_t{depth[i]} - depth[j] >= window) row.nodes[j / 32] &= ~(1u << (j % 32));
  });
}

visible row_of(support::write_mask_call const& call, index_t b, index_t i, index_t cache_len) {
  index_t const width = call.shape.width();
  visible row;
  row.tree_begin = rules::tree_column(call.out, cache_len);
  row.context = {0, row.tree_begin};
  row.words = call.shape.words();
  std::copy_n(call.tree.ancestors + (b * width + i) * row.words, row.words, row.nodes);
  row.nodes[row.words - 1] &= low_bits(width - (row.words - 1) * 32);
  if (call.out.window > 0) hold_to_window(call, b, i, cache_len, row);
  return row;
}

void write_bits(mask_view const& view, visible const& row, span columns, std::uint32_t* out) {
  if (view.region == mask_columns::tree) {
    std::copy_n(row.nodes, row.words, out);  // node 0 stands at column 0, and there is no context
  } else if (columns.begin < columns.end) {
    for (index_t word = columns.begin / 32; word <= (columns.end - 1) / 32; ++word) {
      out[word] = row.columns_of(word) & low_bits(view.columns - word * 32);
    }
  }
}

template <class T>
void write_elements(visible const& row, span columns, T* out, T shown, T masked) {
  span const context = overlap(row.context, columns);
  std::fill(out + columns.begin, out + columns.end, masked);
  std::fill(out + context.begin, out + context.end, shown);
  row.for_each_node([&](index_t j) {
    if (row.tree_begin + j < columns.end) out[row.tree_begin + j] = shown;
  });
}

void write_row(support::write_mask_call const& call, visible const& row, span columns, index_t at) {
  mask_view const& out = call.out;
  if (out.kind == mask_kind::bits) {
    write_bits(out, row, columns, static_cast<std::uint32_t*>(out.data) + at);
  } else if (out.kind == mask_kind::boolean) {
    write_elements<std::uint8_t>(row, columns, static_cast<std::uint8_t*>(out.data) + at, 1, 0);
  } else if (out.type == dtype::f32) {
    write_elements(row, columns, static_cast<float*>(out.data) + at, 0.0f, out.masked_value);
  } else {
    // f16 and bf16 are both two bytes whose zero is 0.
    std::uint16_t const masked = rules::masked_bits(out.type, out.masked_value);
    write_elements<std::uint16_t>(row, columns, static_cast<std::uint16_t*>(out.data) + at, 0,
                                  masked);
  }
}

void write_inputs_of(support::write_verify_inputs_call const& call, index_t b) {
  index_t const width = call.shape.width();
  rules::batch_row const row = rules::find_row(call.batch, call.shape.request_rows(), b);
  index_t const nodes = row.active ? call.tree.num_nodes[b] : 0;
  index_t const unused =
      call.options.padding == padding_slot::dummy ? call.options.dummy_slot : index_t{-1};
  bool const in_sequence = row.active && call.options.padding == padding_slot::in_sequence;
  for (index_t i = 0; i < width; ++i) {
    if (call.out.token.data != nullptr) {
      rules::store_id(call.out.token, b * call.out.token.stride + i,
                      call.tree.token[b * width + i]);
    }
    if (call.out.position.data != nullptr) {
      index_t const position = row.active ? row.cache_len + call.tree.depth[b * width + i] : 0;
      rules::store_id(call.out.position, b * call.out.position.stride + i, position);
    }
    if (call.out.slot.data != nullptr) {
      bool const named = i < nodes || in_sequence;
      index_t const slot =
          named ? rules::verify_slot(call.options, row.request, row.cache_len + i) : unused;
      rules::store_id(call.out.slot, b * call.out.slot.stride + i, slot);
    }
  }
}

}  // namespace

status write_mask(support::write_mask_call const& call) noexcept {
  index_t const width = call.shape.width();
  index_t const blocks = (width + rows_per_block - 1) / rows_per_block;
  index_t const pieces = call.shape.batch * blocks;
  support::parallel_for(call.ctx.threads, pieces, [&](index_t piece, std::int32_t) {
    index_t const b = piece / blocks;
    rules::batch_row const request = rules::find_row(call.batch, call.shape.request_rows(), b);
    index_t const cache_len = request.active ? request.cache_len : 0;
    span const columns = rules::written_columns(call.out, width, cache_len);
    index_t const first = piece % blocks * rows_per_block;
    for (index_t i = first; i < std::min(first + rows_per_block, width); ++i) {
      write_row(call, row_of(call, b, i, cache_len), columns,
                b * call.out.batch_stride + i * call.out.row_stride);
    }
  });
  return {};
}

status write_verify_inputs(support::write_verify_inputs_call const& call) noexcept {
  support::parallel_for(call.ctx.threads, call.shape.batch,
                        [&](index_t b, std::int32_t) { write_inputs_of(call, b); });
  return {};
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
