// SPDX-License-Identifier: Apache-2.0
// What FlashInfer's buffers hold.
#pragma once

#include "ddtree/formats/flashinfer.hpp"

#include "formats/flat_mask.hpp"
#include "formats/job.hpp"
#include "formats/query_rows.hpp"
#include "rules/slots.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace flashinfer {

/// write_plan_buffers. A request's units are its pages, then the pieces of its mask; behind the
/// last request stand the totals.
struct plan_job {
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  kv_table table;
  plan_buffers out;
  plan_options options;

  using sums = formats::sums<3>;  // query rows, pages, bytes of the mask

  /// Extents of one request.
  struct extents {
    index_t context;
    index_t rows;
    index_t tokens;
    index_t pages;
  };

  struct request {
    index_t b;
    rules::batch_row at;
    extents has;
    sums before;
    index_t page_units;  // entries of paged_kv_indices to be written, or 1
    byte_range mask_bytes;
  };

  index_t requests() const { return shape.batch + 1; }
  index_t most_units() const {
    index_t const batch_rows = larger(shape.batch, 1);
    index_t const pages = out.paged_kv_indices.data != nullptr ? out.max_pages / batch_rows : 0;
    return 1 + pages + (out.custom_mask != nullptr ? out.custom_mask_bytes / 16 / batch_rows : 0);
  }

  DDTREE_HD sums extent(index_t b) const {
    extents const has = extents_of(b, rules::find_row(batch, shape.request_rows(), b));
    return {{has.rows, has.pages, held_extent(mask_bytes(has))}};
  }

  DDTREE_HD request open(index_t b, sums const& before) const {
    request r{b, {}, {}, before, 1, {}};
    if (b == shape.batch) return r;
    r.at = rules::find_row(batch, shape.request_rows(), b);
    r.has = extents_of(b, r.at);
    if (out.paged_kv_indices.data != nullptr) {
      r.page_units = larger(smaller(r.has.pages, out.max_pages - before.at[1]), 1);
    }
    if (out.custom_mask != nullptr) {
      index_t const begin = before.at[2];
      r.mask_bytes = {static_cast<unsigned char*>(out.custom_mask), begin,
                      smaller(begin + mask_bytes(r.has), out.custom_mask_bytes)};
    }
    return r;
  }

  DDTREE_HD index_t units(request const& r) const { return r.page_units + r.mask_bytes.units(); }

  DDTREE_HD void write(request const& r, index_t unit) const {
    if (unit == 0) write_indices(r);
    if (unit < r.page_units) {
      write_page(r, unit);
    } else {
      write_mask(r, unit - r.page_units);
    }
  }

 private:
  DDTREE_HD extents extents_of(index_t b, rules::batch_row const& at) const {
    extents has{};
    has.context = at.active ? at.cache_len : 0;
    has.rows = count_rows(options.rows, tree, shape, at, b);
    has.tokens = larger(has.context + has.rows, 1);
    has.pages = divide_up(has.tokens, table.page_size);
    return has;
  }

  DDTREE_HD index_t mask_bytes(extents const& has) const {
    index_t const elements = has.rows * has.tokens;
    return out.form == mask_form::packed ? divide_up(elements, 8) : elements;
  }

  DDTREE_HD void write_indices(request const& r) const {
    put(out.qo_indptr, r.b, r.before.at[0]);
    put(out.paged_kv_indptr, r.b, r.before.at[1]);
    put(out.mask_indptr, r.b, r.before.at[2]);
    if (r.b == shape.batch) return;
    put(out.paged_kv_last_page_len, r.b, r.has.tokens - (r.has.pages - 1) * table.page_size);
  }

  DDTREE_HD void write_page(request const& r, index_t k) const {
    index_t const entry = r.before.at[1] + k;
    if (out.paged_kv_indices.data == nullptr || k >= r.has.pages || entry >= out.max_pages) return;
    rules::place at;
    if (r.at.active) at = rules::locate(table, r.at.request, k * table.page_size);
    put(out.paged_kv_indices, entry, at.found ? at.page : options.dummy_page);
  }

  DDTREE_HD void write_mask(request const& r, index_t unit) const {
    flat_mask const mask{rows_of(tree, shape, r.b, r.has.context), r.has.rows, r.has.tokens};
    if (out.form == mask_form::boolean) {
      r.mask_bytes.write(unit, [&](index_t k) { return spread(mask_reader(mask, k).next(16)); });
    } else {
      r.mask_bytes.write(unit, [&](index_t k) { return packed_bits(mask, k * 8); });
    }
  }
};

}  // namespace flashinfer
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
