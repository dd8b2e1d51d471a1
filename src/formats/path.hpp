// SPDX-License-Identifier: Apache-2.0
// Accepted paths as engines hand them over, in both directions.
#pragma once

#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include "formats/job.hpp"
#include "rules/path.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {

/// Looks row b up; count = -1 where nothing is committed.
DDTREE_HD inline rules::accepted_row open_path(batch_view const& batch, accepted const& path,
                                               round_shape const& shape, index_t b) {
  rules::accepted_row row = rules::find_accepted(batch, path, shape, b);
  if (row.count < 0) row.count = -1;
  return row;
}

/// Node of entry u of a path; -1 behind its end, and where the entry can be no node.
DDTREE_HD inline index_t node_at(rules::accepted_row const& row, round_shape const& shape,
                                 index_t u) {
  if (u > row.count) return -1;
  node_t const node = u == 0 ? 0 : row.path[u];
  return rules::is_on_path(node, static_cast<std::int32_t>(u), shape) ? node : -1;
}

/// A path in an engine's arrays.
struct engine_path {
  ids_in index;  // [batch, columns]
  index_t columns;
  index_t rows_per_request;  // what an index counts per request before it: width, or 0 = local
  ids_in count;              // [batch], drafts
  ids_in token;              // [batch, width] by row, or [batch, columns] by entry
  bool token_by_row;
};

/// Reads an engine's path. One unit per request: a path is at most 32 entries.
struct read_path_job {
  round_shape shape;
  batch_view batch;
  engine_path in;
  accepted out;

  using sums = formats::sums<0>;
  using request = index_t;

  index_t requests() const { return shape.batch; }
  index_t most_units() const { return 1; }
  DDTREE_HD sums extent(index_t) const { return {}; }
  DDTREE_HD request open(index_t b, sums const&) const { return b; }
  DDTREE_HD index_t units(request) const { return 1; }

  DDTREE_HD void write(request b, index_t) const {
    std::uint32_t flags = 0;
    auto const count = static_cast<std::int32_t>(count_entries(b, flags));
    index_t const length = index_t{shape.depth} + 1;
    token_t bonus = -1;
    for (index_t u = 0; u < length; ++u) {
      token_t const token = u < count ? token_at(b, u, flags) : -1;
      out.path[b * length + u] = static_cast<node_t>(u < count ? node_of(b, u) : -1);
      out.token[b * length + u] = token;
      if (u + 1 == count) bonus = token;
    }
    out.num_accepted[b] = count - 1;
    out.bonus[b] = bonus;
    out.flags[b] = flags;
  }

 private:
  DDTREE_HD index_t node_of(index_t b, index_t u) const {
    if (u == 0) return 0;
    return rules::load_id(in.index, b * in.index.stride + u) - b * in.rows_per_request;
  }

  DDTREE_HD token_t token_at(index_t b, index_t u, std::uint32_t& flags) const {
    index_t const entry = in.token_by_row ? node_of(b, u) : u;
    index_t const token = rules::load_id(in.token, b * in.token.stride + entry);
    if (token >= 0 && token < shape.vocab) return static_cast<token_t>(token);
    flags |= flag::id_out_of_range;
    return 0;
  }

  /// Entries of the path, the root's included; 0 = inactive.
  DDTREE_HD index_t count_entries(index_t b, std::uint32_t& flags) const {
    if (!rules::find_row(batch, shape.request_rows(), b).active) return 0;
    index_t const given = rules::load_id(in.count, b);
    if (given < 0) return 0;
    index_t const most = smaller(given, smaller(shape.depth, in.columns - 1));
    if (most < given) flags |= flag::id_out_of_range;
    index_t u = 1;
    for (; u <= most; ++u) {
      index_t const node = node_of(b, u);
      if (node > node_of(b, u - 1) && node < shape.width()) continue;
      flags |= flag::id_out_of_range;
      break;
    }
    return u;
  }
};

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
