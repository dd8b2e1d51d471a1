// SPDX-License-Identifier: Apache-2.0
/// @file build.hpp
/// Tree construction: the most probable prefixes of the product distribution.
#ifndef DDTREE_BUILD_HPP
#define DDTREE_BUILD_HPP

#include <cstddef>
#include <cstdint>
#include <limits>

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// Options of build_tree. Arrays are by request, [requests]; null = off.
struct build_options {
  /// Drafted nodes at most, held to [0, shape.budget].
  ids_in budget = {};
  /// Depth at most, held to [0, shape.depth].
  ids_in max_depth = {};
  /// KV rows allocated: S + num_nodes <= capacity. Needs batch.cache_len. The root always stays.
  ids_in capacity = {};
  /// Last position allowed: S + depth <= max_position. Needs batch.cache_len. The root stays.
  ids_in max_position = {};
  /// Chain seed, >= 0: the rank-0 nodes of depths 1..seed_depth (within the request's budget and
  /// depth, up to the first that is not selectable) are taken first; the best others fill the rest.
  /// 0 = none.
  std::int32_t seed_depth = 0;
  /// Nodes of a lower log weight are left out, the chain seed and the root excepted. Compared as a
  /// fixed-point weight, inclusive. NaN or -inf = none.
  float min_log_weight = -std::numeric_limits<float>::infinity();
};

/// Bytes of workspace that `build_tree` may use. Pure, monotone; 0 for an invalid shape.
DDTREE_API std::size_t build_tree_workspace_bytes(context const& ctx,
                                                  round_shape const& shape) noexcept;

/// Builds each request's tree of the `budget` most probable prefixes, in best-first order.
///
/// The weight of a node is the sum of the log-probs along its rank path, each rounded to a
/// multiple of 2^-44, as int64. Nodes are taken in the order of `draft_tree`; the result is the
/// set that the paper's heap (arXiv 2604.12989, Algorithm 1) takes, ties decided by the rank path.
///
/// A row of candidates, whoever made it, is read up to its first log-prob below -8192 (no flag,
/// whatever its id; -inf is one), NaN, log-prob above the one before it or above 0, or id outside
/// [0, vocab) (flag candidates_cut). So a tree may have fewer than budget nodes. Looked at, and
/// flagged, are the depths 1..min(d, n) and the ranks below min(top_k, n) of each, selected or not,
/// where n nodes and depth d are what budget, max_depth, capacity and max_position allow.
///
/// `length_limited` is set where capacity - S < budget + 1 or max_position - S < depth, with the
/// request's own budget and depth. `top_k_limited` is set where a selected node has rank top_k - 1.
///
/// Deterministic to the bit, whatever backend or variant. Enqueues only.
///
/// @param shape  all extents are used.
/// @param batch  cache_len is needed where capacity or max_position is bound.
/// @param in     candidates [batch, depth, top_k]; all three arrays bound (those without elements
///               may be null).
/// @param root   [batch], root token of each request; outside [0, vocab) it counts as 0 and sets
///               id_out_of_range.
/// @param out    all arrays bound.
/// @return `invalid_argument`, `workspace_too_small`, `unsupported`, `unsupported_device`.
DDTREE_API status build_tree(context const& ctx, round_shape const& shape, batch_view const& batch,
                             candidates const& in, ids_in root, draft_tree const& out,
                             workspace scratch, build_options const& options = {}) noexcept;

/// A tree made elsewhere (EAGLE, n-gram, suffix matching), as parents and tokens.
struct tree_nodes {
  /// [batch, width], row of each node's parent, less than the node's own row. Entry 0 is not read.
  ids_in parent = {};
  /// [batch, width], token of each node; node 0 is the root.
  ids_in token = {};
  /// [batch], root included.
  ids_in num_nodes = {};
  /// [batch, width] or null, copied to the tree; null = 0 for every node. The root's is 0, entry 0
  /// is not read.
  float const* log_weight = nullptr;
};

/// Completes a tree made elsewhere: depths, ranks (the order of the rows among siblings), child and
/// sibling links, ancestor bits, padding.
///
/// The nodes are read up to the first whose parent is not an earlier row or whose token is outside
/// [0, vocab) (flag id_out_of_range, whatever its depth), or whose depth exceeds shape.depth (flag
/// length_limited); the rest is ignored. num_nodes outside [1, width] is held to it (flag
/// id_out_of_range). The root token is checked as in `build_tree`.
///
/// @param shape  batch, vocab, depth and budget are used.
DDTREE_API status link_tree(context const& ctx, round_shape const& shape, batch_view const& batch,
                            tree_nodes const& in, draft_tree const& out) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_BUILD_HPP
