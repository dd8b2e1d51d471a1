// SPDX-License-Identifier: Apache-2.0
// What TensorRT-LLM's buffers hold.
#pragma once

#include "ddtree/formats/tensorrt_llm.hpp"

#include "formats/flat_mask.hpp"
#include "formats/job.hpp"
#include "formats/path.hpp"
#include "formats/query_rows.hpp"
#include "rules/views.hpp"
#include "rules/walk.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace tensorrt_llm {

/// write_verify_buffers. A request's units are the words of its mask, row by row, then its rows
/// once more for the paths.
struct verify_job {
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  verify_buffers out;
  verify_options options;

  using sums = formats::sums<1>;  // rows

  struct request {
    index_t b;
    rules::batch_row at;
    index_t first_row;
    index_t rows;
  };

  index_t requests() const {
    return shape.batch + (out.cu_generation_lengths.data != nullptr ? 1 : 0);
  }
  index_t most_units() const {
    return shape.width() * (shape.words() + (out.paths.data != nullptr ? 1 : 0));
  }

  DDTREE_HD sums extent(index_t b) const {
    rules::batch_row const at = rules::find_row(batch, shape.request_rows(), b);
    return {{count_rows(options.rows, tree, shape, at, b)}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, before.at[0], 0};
    if (b == shape.batch) return r;
    r.at = rules::find_row(batch, shape.request_rows(), b);
    r.rows = count_rows(options.rows, tree, shape, r.at, b);
    return r;
  }

  DDTREE_HD index_t units(request const& r) const {
    if (r.b == shape.batch) return 1;
    return shape.width() * (shape.words() + (out.paths.data != nullptr ? 1 : 0));
  }

  DDTREE_HD void write(request const& r, index_t unit) const {
    if (unit == 0) put(out.cu_generation_lengths, r.b, r.first_row);
    if (r.b == shape.batch) return;
    if (unit == 0) write_request(r);
    index_t const words = shape.width() * shape.words();
    if (unit >= words) {
      write_path_rows(r, unit - words);
      return;
    }
    write_word(r, unit);
    if (unit % shape.words() == 0) write_row(r, unit / shape.words());
  }

 private:
  DDTREE_HD void write_request(request const& r) const {
    put(out.generation_lengths, r.b, r.rows);
    put(out.first_sparse_mask_offset_kv, r.b, r.at.cache_len);
  }

  DDTREE_HD void write_word(request const& r, index_t unit) const {
    if (out.packed_mask == nullptr && out.dense_packed_mask == nullptr) return;
    index_t const words = shape.words();
    index_t const i = unit / words;
    index_t const k = unit - i * words;
    std::uint32_t const bits = rows_of(tree, shape, r.b, 0).columns(i, k * 32);
    if (out.packed_mask != nullptr) out.packed_mask[(r.b * shape.width() + i) * words + k] = bits;
    if (out.dense_packed_mask != nullptr && i < r.rows) {
      out.dense_packed_mask[(r.first_row + i) * words + k] = bits;
    }
  }

  DDTREE_HD void write_row(request const& r, index_t i) const {
    index_t const row = r.b * shape.width() + i;
    put_node(out.position_offsets, r.b, i, tree.depth, row);
    put_node(out.candidates, r.b, i, tree.token, row);
    if (i > 0) put_node(out.draft_ids, r.b, i - 1, tree.token, row);
    put(out.retrieve_index, r.b * out.retrieve_index.stride + i, i);
    put_node(out.retrieve_next_token, r.b, i, tree.first_child, row);
    put_node(out.retrieve_next_sibling, r.b, i, tree.next_sibling, row);
  }

  /// The path that ends at node i, at its place among those of the leaves; and row i where there is
  /// no path for it.
  DDTREE_HD void write_path_rows(request const& r, index_t i) const {
    index_t const nodes = r.at.active ? rules::count_nodes(tree, shape, r.b) : 0;
    index_t before = 0;
    index_t leaves = 0;
    for (index_t j = 0; j < nodes; ++j) {
      if (j == i) before = leaves;
      leaves += is_leaf(r.b, j, nodes) ? 1 : 0;
    }
    if (i >= leaves) write_path(r.b, i, -1);
    if (i < nodes && is_leaf(r.b, i, nodes)) write_path(r.b, before, i);
  }

  DDTREE_HD bool is_leaf(index_t b, index_t node, index_t nodes) const {
    node_t const child = tree.first_child[b * shape.width() + node];
    return child <= node || child >= nodes;
  }

  /// From the root to `node`, -1 = no path.
  DDTREE_HD void write_path(index_t b, index_t row, index_t node) const {
    index_t const length = index_t{shape.depth} + 1;
    index_t const first = (b * shape.width() + row) * out.paths.stride;
    index_t last = -1;
    if (node >= 0) last = smaller(larger(tree.depth[b * shape.width() + node], 0), shape.depth);
    for (index_t u = length - 1; u >= 0; --u) {
      put(out.paths, first + u, u > last ? -1 : node);
      if (u > last || node == 0) continue;
      node_t const parent = tree.parent[b * shape.width() + node];
      node = parent >= 0 && parent < node ? parent : 0;
    }
  }
};

/// write_accept_buffers. A request's unit u is entry u of its rows; behind the last request the
/// packed list is filled up.
struct accept_job {
  round_shape shape;
  batch_view batch;
  accepted path;
  accept_buffers out;

  using sums = formats::sums<1>;  // accepted drafts

  struct request {
    index_t b;
    rules::accepted_row row;
    index_t first_draft;
  };

  index_t requests() const { return shape.batch + 1; }
  index_t most_units() const { return larger(out.accept_columns, out.indices_columns); }

  DDTREE_HD sums extent(index_t b) const {
    return {{larger(open_path(batch, path, shape, b).count, 0)}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, before.at[0]};
    if (b < shape.batch) r.row = open_path(batch, path, shape, b);
    return r;
  }

  DDTREE_HD index_t units(request const& r) const {
    if (r.b == shape.batch) return larger(shape.batch * shape.depth - r.first_draft, 1);
    return larger(out.accept_columns, out.indices_columns);
  }

  DDTREE_HD void write(request const& r, index_t u) const {
    if (u == 0) put(out.accepted_lengths_cumsum, r.b, r.first_draft);
    if (r.b == shape.batch) {
      index_t const entry = r.first_draft + u;
      if (entry < shape.batch * shape.depth) put(out.paths_offsets, entry, -1);
      return;
    }
    if (u == 0) {
      put(out.accept_token_num, r.b, r.row.count);
      put(out.accepted_lengths, r.b, r.row.count + index_t{1});
    }
    if (u < out.accept_columns) write_entry(r, u);
    write_draft(r, u);
  }

 private:
  DDTREE_HD void write_entry(request const& r, index_t u) const {
    if (out.accept_index.data != nullptr) {
      put(out.accept_index, r.b * out.accept_index.stride + u, node_at(r.row, shape, u));
    }
    if (out.accept_token.data != nullptr) {
      index_t const length = index_t{shape.depth} + 1;
      put(out.accept_token, r.b * out.accept_token.stride + u,
          u <= r.row.count ? path.token[r.b * length + u] : -1);
    }
  }

  /// Entry u of the accepted drafts, which is entry u + 1 of the path.
  DDTREE_HD void write_draft(request const& r, index_t u) const {
    if (out.paths_offsets.data == nullptr && out.accepted_indices.data == nullptr) return;
    index_t const node = node_at(r.row, shape, u + 1);
    index_t const draft = node < 0 ? -1 : node - 1;
    if (u < r.row.count) put(out.paths_offsets, r.first_draft + u, draft);
    if (u < out.indices_columns) {
      put(out.accepted_indices, r.b * out.accepted_indices.stride + u, draft);
    }
  }
};

}  // namespace tensorrt_llm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
