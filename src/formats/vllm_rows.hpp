// SPDX-License-Identifier: Apache-2.0
// What vLLM's buffers hold.
#pragma once

#include "ddtree/formats/vllm.hpp"

#include "formats/job.hpp"
#include "formats/path.hpp"
#include "formats/query_rows.hpp"
#include "rules/mask.hpp"
#include "rules/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace vllm {

/// write_verify_buffers. A request's unit is a row; behind the last request the packed arrays are
/// filled up.
struct verify_job {
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  verify_buffers out;
  verify_options options;
  bool has_total;  // query_start_loc has an entry behind the last request

  using sums = formats::sums<1>;  // rows

  struct request {
    index_t b;
    rules::batch_row at;
    index_t first_row;
    index_t rows;
  };

  index_t requests() const { return shape.batch + 1; }
  index_t most_units() const { return shape.width(); }

  DDTREE_HD sums extent(index_t b) const {
    rules::batch_row const at = rules::find_row(batch, shape.request_rows(), b);
    return {{count_rows(options.rows, tree, shape, at, b)}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, smaller(before.at[0], out.max_rows), out.max_rows - before.at[0]};
    if (b == shape.batch) return r;
    r.at = rules::find_row(batch, shape.request_rows(), b);
    r.rows = count_rows(options.rows, tree, shape, r.at, b);
    return r;
  }

  DDTREE_HD index_t units(request const& r) const { return larger(r.rows, 1); }

  DDTREE_HD void write(request const& r, index_t i) const {
    bool const is_filling = r.b == shape.batch;
    if (i == 0 && (!is_filling || has_total)) put(out.query_start_loc, r.b, r.first_row);
    if (i == 0 && !is_filling) {
      put(out.seq_lens, r.b, r.at.active ? r.at.cache_len + r.rows : 0);
    }
    index_t const row = r.first_row + i;
    if (i >= r.rows || row >= out.max_rows) return;
    if (is_filling) {
      write_row(row, 0, 0, -1);
      put(out.row_request, row, -1);
      put(out.row_node, row, -1);
      return;
    }
    index_t const node = r.b * shape.width() + i;
    write_row(row, out.input_ids.data != nullptr ? tree.token[node] : 0,
              out.positions.data != nullptr && r.at.active ? r.at.cache_len + tree.depth[node] : 0,
              out.slot_mapping.data != nullptr ? slot_of(r, i) : 0);
    put(out.row_request, row, r.b);
    put(out.row_node, row, i);
  }

 private:
  DDTREE_HD void write_row(index_t row, index_t token, index_t position, index_t slot) const {
    put(out.input_ids, row, token);
    put(out.positions, row, position);
    put(out.slot_mapping, row, slot);
  }

  DDTREE_HD index_t slot_of(request const& r, index_t i) const {
    ddtree::verify_options const& slots = options.slots;
    bool const is_node = r.at.active && i < tree.num_nodes[r.b];
    if (is_node || (r.at.active && slots.padding == padding_slot::in_sequence)) {
      return rules::verify_slot(slots, r.at.request, r.at.cache_len + i);
    }
    return slots.padding == padding_slot::dummy ? slots.dummy_slot : index_t{-1};
  }
};

/// write_output_buffers. A request's unit is an entry of its output row.
struct output_job {
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  accepted path;
  ids_in spec_state_indices;
  output_buffers out;

  using sums = formats::sums<0>;

  struct request {
    index_t b;
    rules::accepted_row row;
  };

  index_t requests() const { return shape.batch; }
  index_t most_units() const { return out.output_columns; }
  DDTREE_HD sums extent(index_t) const { return {}; }
  DDTREE_HD request open(index_t b, sums const&) const {
    return {b, open_path(batch, path, shape, b)};
  }
  DDTREE_HD index_t units(request const&) const { return out.output_columns; }

  DDTREE_HD void write(request const& r, index_t u) const {
    if (u == 0) write_counts(r);
    if (out.output_token_ids.data == nullptr) return;
    index_t const length = index_t{shape.depth} + 1;
    put(out.output_token_ids, r.b * out.output_token_ids.stride + u,
        u <= r.row.count ? path.token[r.b * length + u] : -1);
  }

 private:
  DDTREE_HD void write_counts(request const& r) const {
    index_t const count = r.row.count;
    put(out.num_sampled_tokens, r.b, count + 1);
    put(out.num_accepted_tokens, r.b, larger(count + 1, 1));
    if (out.num_rejected_tokens.data != nullptr) {
      index_t const drafts = rules::count_nodes(tree, shape, r.b) - 1;
      put(out.num_rejected_tokens, r.b, count < 0 ? 0 : larger(drafts - count, 0));
    }
    if (count < 0 || spec_state_indices.data == nullptr) return;
    index_t const node = node_at(r.row, shape, count);
    index_t const first = r.b * spec_state_indices.stride;
    index_t const from = node >= 0 ? rules::load_id(spec_state_indices, first + node) : -1;
    index_t const to = node >= 0 ? rules::load_id(spec_state_indices, first + count) : -1;
    put(out.state_from, r.row.at.request, from);
    put(out.state_to, r.row.at.request, from != to ? to : -1);
  }
};

}  // namespace vllm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
