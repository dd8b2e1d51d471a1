// SPDX-License-Identifier: Apache-2.0
// What SGLang's buffers hold.
#pragma once

#include "ddtree/formats/sglang.hpp"

#include "formats/flat_mask.hpp"
#include "formats/job.hpp"
#include "formats/path.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace sglang {

/// Bytes of a row of the bit-packed mask.
DDTREE_HD constexpr int packed_row_bytes(index_t width) {
  return width <= 8 ? 1 : width <= 16 ? 2 : 4;
}

/// write_verify_buffers. A request's units are its rows, then the pieces of its mask, then its
/// entries of kv_slots.
struct verify_job {
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  ids_in out_cache_loc;
  verify_buffers out;
  verify_options options;

  using sums = formats::sums<1>;  // elements of the mask

  struct request {
    index_t b;
    rules::batch_row at;
    index_t mask_begin;
    byte_range mask_bytes;  // of the whole request
    index_t mask_units;
  };

  index_t requests() const { return shape.batch + (out.mask_indptr.data != nullptr ? 1 : 0); }
  index_t most_units() const {
    index_t const width = shape.width();
    index_t mask = 0;
    if (out.custom_mask != nullptr && !is_packed()) {
      mask = writes_tree_part() ? width * row_pieces()
                                : out.custom_mask_bytes / 16 / larger(shape.batch, 1);
    }
    return width + mask + width * slots_of_row();
  }

  DDTREE_HD sums extent(index_t b) const {
    rules::batch_row const at = rules::find_row(batch, shape.request_rows(), b);
    return {{held_extent(shape.width() * columns_of(at))}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, before.at[0], {}, 0};
    if (b == shape.batch) return r;
    r.at = rules::find_row(batch, shape.request_rows(), b);
    if (out.custom_mask == nullptr || is_packed()) return r;
    index_t const size = shape.width() * columns_of(r.at);
    r.mask_bytes = {static_cast<unsigned char*>(out.custom_mask), r.mask_begin,
                    smaller(r.mask_begin + size, out.custom_mask_bytes)};
    r.mask_units = writes_tree_part() ? shape.width() * row_pieces() : r.mask_bytes.units();
    return r;
  }

  DDTREE_HD index_t units(request const& r) const {
    if (r.b == shape.batch) return 1;
    return shape.width() + r.mask_units + shape.width() * slots_of_row();
  }

  DDTREE_HD void write(request const& r, index_t unit) const {
    if (unit == 0) put(out.mask_indptr, r.b, r.mask_begin);
    if (r.b == shape.batch) return;
    index_t const width = shape.width();
    if (unit < width) {
      write_row(r, unit);
    } else if (unit < width + r.mask_units) {
      write_mask(r, unit - width);
    } else {
      write_slot(r, unit - width - r.mask_units);
    }
  }

 private:
  DDTREE_HD bool is_packed() const { return out.mode == tree_mask::qlen_only_bitpacking; }

  DDTREE_HD bool writes_tree_part() const {
    return out.mode == tree_mask::full && out.tree_part_only;
  }
  /// Units of 16 bytes that the tree's columns of a row overlap at most.
  DDTREE_HD index_t row_pieces() const { return shape.width() / 16 + 2; }

  DDTREE_HD index_t slots_of_row() const {
    return out.kv_slots.data != nullptr ? out.kv_columns : 0;
  }

  /// Columns of the mask before the tree's.
  DDTREE_HD index_t context_of(rules::batch_row const& at) const {
    if (out.mode != tree_mask::full) return 0;
    return at.active ? at.cache_len : options.inactive_len;
  }
  DDTREE_HD index_t columns_of(rules::batch_row const& at) const {
    return context_of(at) + shape.width();
  }

  DDTREE_HD bool is_node(request const& r, index_t i) const {
    return r.at.active && i < tree.num_nodes[r.b];
  }

  DDTREE_HD void write_row(request const& r, index_t i) const {
    index_t const row = r.b * shape.width() + i;
    put_node(out.draft_token, r.b, i, tree.token, row);
    if (out.positions.data != nullptr) {
      put(out.positions, r.b * out.positions.stride + i,
          r.at.active ? r.at.cache_len + tree.depth[row] : 0);
    }
    put(out.retrieve_index, r.b * out.retrieve_index.stride + i, row);
    put_node(out.retrieve_next_token, r.b, i, tree.first_child, row);
    put_node(out.retrieve_next_sibling, r.b, i, tree.next_sibling, row);
    if (out.retrieve_parent_token.data != nullptr) {
      put(out.retrieve_parent_token, r.b * out.retrieve_parent_token.stride + i,
          larger(tree.parent[row], 0));
    }
    if (out.kv_lens.data != nullptr) put(out.kv_lens, row, count_seen(r, i));
    if (is_packed() && out.custom_mask != nullptr) write_packed(r, i);
  }

  DDTREE_HD void write_packed(request const& r, index_t i) const {
    std::uint32_t const bits = rows_of(tree, shape, r.b, 0).columns(i, 0);
    int const bytes = packed_row_bytes(shape.width());
    index_t const first = (r.b * shape.width() + i) * bytes;
    for (int k = 0; k < bytes && first + k < out.custom_mask_bytes; ++k) {
      static_cast<std::uint8_t*>(out.custom_mask)[first + k] =
          static_cast<std::uint8_t>(bits >> 8 * k);
    }
  }

  DDTREE_HD void write_mask(request const& r, index_t unit) const {
    index_t const context = context_of(r.at);
    index_t const columns = context + shape.width();
    visible_rows const rows = rows_of(tree, shape, r.b, context);
    if (!writes_tree_part()) {
      flat_mask const mask{rows, shape.width(), columns};
      r.mask_bytes.write(unit, [&](index_t k) { return spread(mask_reader(mask, k).next(16)); });
      return;
    }
    index_t const i = unit / row_pieces();
    index_t const begin = r.mask_begin + i * columns + context;
    byte_range const row{r.mask_bytes.data, begin,
                         smaller(begin + shape.width(), r.mask_bytes.end)};
    index_t const piece = unit - i * row_pieces();
    if (piece >= row.units()) return;
    row.write(piece, [&](index_t k) { return spread(rows.columns(i, context + k)); });
  }

  /// Slots that row i sees, itself included.
  DDTREE_HD index_t count_seen(request const& r, index_t i) const {
    if (!is_node(r, i)) return 1;
    index_t const depth = larger(tree.depth[r.b * shape.width() + i], 0);
    return smaller(depth, smaller(shape.depth, shape.width() - 1)) + 1;
  }

  DDTREE_HD void write_slot(request const& r, index_t entry) const {
    index_t const i = entry / out.kv_columns;
    index_t const k = entry - i * out.kv_columns;
    index_t slot = 0;
    index_t up = count_seen(r, i) - 1 - k;  // steps from the row to its k-th ancestor
    if (up >= 0 && is_node(r, i)) {
      index_t node = i;
      for (; up > 0 && node > 0; --up) node = parent_of(r.b, node);
      slot = rules::load_id(out_cache_loc, r.b * out_cache_loc.stride + node);
    }
    put(out.kv_slots, (r.b * shape.width() + i) * out.kv_slots.stride + k, slot);
  }

  /// A row before `node`, whatever the array holds.
  DDTREE_HD index_t parent_of(index_t b, index_t node) const {
    node_t const parent = tree.parent[b * shape.width() + node];
    return parent >= 0 && parent < node ? parent : 0;
  }
};

/// write_accept_buffers. A request's unit u is row u of its tree and entry u of its path; behind
/// the last request the lists of moves are filled up.
struct accept_job {
  round_shape shape;
  batch_view batch;
  accepted path;
  ids_in out_cache_loc;
  accept_buffers out;

  using sums = formats::sums<1>;  // moves

  struct request {
    index_t b;
    rules::accepted_row row;
    index_t first_move;
  };

  index_t requests() const { return shape.batch + (has_moves() ? 1 : 0); }
  index_t most_units() const { return larger(shape.width(), out.accept_columns); }

  DDTREE_HD sums extent(index_t b) const {
    return {{open_path(batch, path, shape, b).count + index_t{1}}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, before.at[0]};
    if (b < shape.batch) r.row = open_path(batch, path, shape, b);
    return r;
  }

  DDTREE_HD index_t units(request const& r) const {
    if (r.b == shape.batch) return shape.batch * path_length() - r.first_move;
    return larger(shape.width(), out.accept_columns);
  }

  DDTREE_HD void write(request const& r, index_t unit) const {
    if (r.b == shape.batch) {
      put(out.tgt_cache_loc, r.first_move + unit, 0);
      put(out.src_cache_loc, r.first_move + unit, 0);
      return;
    }
    if (unit == 0) put(out.accept_token_num, r.b, r.row.count);
    if (unit < out.accept_columns) write_entry(r, unit);
    if (unit <= r.row.count && has_moves()) write_move(r, unit);
    if (unit < shape.width()) write_row(r, unit);
  }

 private:
  DDTREE_HD bool has_moves() const {
    return out.tgt_cache_loc.data != nullptr || out.src_cache_loc.data != nullptr;
  }
  DDTREE_HD index_t path_length() const { return index_t{shape.depth} + 1; }

  DDTREE_HD void write_entry(request const& r, index_t u) const {
    index_t const node = node_at(r.row, shape, u);
    put(out.accept_index, r.b * out.accept_index.stride + u,
        node < 0 ? -1 : r.b * shape.width() + node);
  }

  DDTREE_HD void write_move(request const& r, index_t u) const {
    index_t const node = node_at(r.row, shape, u);
    index_t const first = r.b * out_cache_loc.stride;
    bool const is_move = node >= 0;
    put(out.tgt_cache_loc, r.first_move + u,
        is_move ? rules::load_id(out_cache_loc, first + u) : 0);
    put(out.src_cache_loc, r.first_move + u,
        is_move ? rules::load_id(out_cache_loc, first + node) : 0);
  }

  DDTREE_HD void write_row(request const& r, index_t i) const {
    index_t entry = -1;  // of the path that this row is
    if (out.predicts.data != nullptr || out.evict_mask != nullptr) {
      for (index_t u = 0; u <= r.row.count; ++u) {
        if (node_at(r.row, shape, u) == i) entry = u;
      }
    }
    index_t const row = r.b * shape.width() + i;
    if (out.predicts.data != nullptr) {
      put(out.predicts, row, entry < 0 ? 0 : path.token[r.b * path_length() + entry]);
    }
    if (out.evict_mask != nullptr) {
      bool const is_kept = out.page_size > 1 ? i < kept_rows(r) : entry >= 0;
      out.evict_mask[row] = r.row.count >= 0 && !is_kept ? 1 : 0;
    }
  }

  /// Rows up to the end of the page of the last committed token.
  DDTREE_HD index_t kept_rows(request const& r) const {
    index_t const committed = r.row.at.cache_len + r.row.count + 1;
    return divide_up(committed, out.page_size) * out.page_size - r.row.at.cache_len;
  }
};

}  // namespace sglang
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
