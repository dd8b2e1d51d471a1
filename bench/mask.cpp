// SPDX-License-Identifier: Apache-2.0
// write_mask and write_verify_inputs over trees of peaked candidates, into buffers that take turns.
#include "ddtree/mask.hpp"

#include "cases.hpp"
#include "support/names.hpp"
#include "support/series.hpp"
#include "support/trees.hpp"

#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::dtype;
using ddtree::index_t;
using ddtree::mask_columns;
using ddtree::mask_kind;

constexpr index_t context_columns = 4096;
constexpr std::int32_t context_length = 3001;

struct mask_case {
  ddtree::round_shape shape;
  char const* type_name;
  mask_kind kind;
  dtype type;
  mask_columns region;

  bool is_tree() const { return region == mask_columns::tree; }
  index_t columns() const { return is_tree() ? shape.width() : context_columns; }
  double bytes_of_columns(index_t n) const {
    if (kind == mask_kind::bits) return static_cast<double>((n + 31) / 32 * 4);
    return static_cast<double>(kind == mask_kind::boolean ? n : 2 * n);
  }
  double rows() const { return static_cast<double>(shape.batch * shape.width()); }
  double buffer_bytes() const { return rows() * bytes_of_columns(columns()); }
  /// `recent` rewrites the tree's columns and as many before them.
  traffic bytes() const {
    double const row = bytes_of_columns(is_tree() ? shape.width() : 2 * shape.width());
    return {rows() * static_cast<double>(shape.words()) * 4, rows() * row};
  }
  std::string name() const {
    return std::string("mask:") + type_name + (is_tree() ? "/columns:tree/" : "/columns:recent/") +
           labels({{"batch", shape.batch}, {"width", shape.width()}});
  }
};

work make_mask(scene& s, mask_case const& c) {
  std::vector<ddtree::draft_tree> trees;
  std::vector<ddtree::mask_view> outs;
  for (int i = 0; i < s.copies; ++i) {
    trees.push_back(draw_trees(s, c.shape));
    ddtree::mask_view out;
    out.kind = c.kind;
    out.type = c.type;
    out.region = c.region;
    out.columns = c.is_tree() ? 0 : c.columns();
    out.data = s.bytes(static_cast<std::size_t>(c.buffer_bytes()));
    outs.push_back(out);
  }
  auto* const cache_len = s.filled<std::int32_t>(c.shape.batch, context_length);
  return {c.bytes(), [=, ctx = s.ctx](int copy) {
            return ddtree::write_mask(ctx, c.shape, {cache_len}, trees[sized(copy)],
                                      outs[sized(copy)]);
          }};
}

work make_inputs(scene& s, ddtree::round_shape const& shape) {
  index_t const rows = shape.batch * shape.width();
  auto const tree = draw_trees(s, shape);
  auto* const cache_len = s.filled<std::int32_t>(shape.batch, context_length);
  ddtree::verify_options options;
  options.table.entries = {s.filled<std::int32_t>(shape.batch * 256, 5), dtype::i32};
  options.table.columns = 256;
  options.table.page_size = 16;
  ddtree::verify_inputs const out{s.array<std::int32_t>(rows), s.array<std::int64_t>(rows),
                                  s.array<std::int64_t>(rows)};
  double const nodes = static_cast<double>(rows);
  return {{nodes * 8, nodes * 20}, [=, ctx = s.ctx](int) {
            return ddtree::write_verify_inputs(ctx, shape, {cache_len}, tree, out, options);
          }};
}

void mask_series(place where, mask_case const& c) {
  double const touched = c.bytes().read + c.bytes().written;
  add(ddtree::operation::write_mask,
      {where, c.name(), c.shape, touched, [c](scene& s) { return make_mask(s, c); }});
}

}  // namespace

void add_mask_cases() {
  for (index_t const batch : {1, 64}) {
    for (std::int32_t const budget : {64, 1024}) {
      ddtree::round_shape const shape{
          .batch = batch, .vocab = 151936, .depth = 15, .top_k = 64, .budget = budget};
      for (mask_columns const region : {mask_columns::tree, mask_columns::recent}) {
        mask_series(place::both, {shape, "bits", mask_kind::bits, dtype::u8, region});
        mask_series(place::both, {shape, "bool", mask_kind::boolean, dtype::u8, region});
        mask_series(place::both, {shape, "bf16", mask_kind::additive, dtype::bf16, region});
      }
      add(ddtree::operation::write_verify_inputs,
          {place::both, labels({{"page_size", 16}, {"batch", batch}, {"width", shape.width()}}),
           shape, 0, [shape](scene& s) { return make_inputs(s, shape); }});
    }
  }
}

}  // namespace bench
