// SPDX-License-Identifier: Apache-2.0
/// @file tree.hpp
/// What the operations hand to each other: candidates, the draft tree, the accepted path.
#ifndef DDTREE_TREE_HPP
#define DDTREE_TREE_HPP

#include <cstddef>
#include <cstdint>

#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// What a request met, as bits of a flag word. The flags of candidates, draft_tree and accepted
/// each include those of their inputs. They inform; no result is lost.
namespace flag {
/// A draft logit was NaN (counted as -inf) or +inf (counted as the largest finite float).
inline constexpr std::uint32_t draft_nan = 1u << 0;
/// A row of candidates was read only up to a NaN, a rising log-prob, one above 0 or a bad id.
inline constexpr std::uint32_t candidates_cut = 1u << 1;
/// A selected node has the last rank, top_k - 1: a larger top_k could change the tree. In a
/// sharded accept: a request's top_k was held to max_top_k.
inline constexpr std::uint32_t top_k_limited = 1u << 2;
/// The capacity or max_position of the request is below what its budget and depth could use.
inline constexpr std::uint32_t length_limited = 1u << 3;
/// A token id or node index that came in was out of its range.
inline constexpr std::uint32_t id_out_of_range = 1u << 4;
/// A KV slot was outside its table or tensor; its row was skipped.
inline constexpr std::uint32_t slot_out_of_range = 1u << 5;
/// A target logit that was read was NaN or +inf, counted as for the draft.
inline constexpr std::uint32_t target_nan = 1u << 6;
/// The walk ended at a stop token, which is the bonus.
inline constexpr std::uint32_t stopped = 1u << 7;
/// The walk ended because `remaining` allows no further token, though the next one was drafted.
inline constexpr std::uint32_t limit_reached = 1u << 8;
}  // namespace flag

/// The most probable tokens of each drafted position, in rank order.
///
/// Rows are sorted by the draft logit, descending, equal logits by ascending draft id. Slots
/// beyond the finite logits or beyond the vocabulary hold (token 0, log_prob -inf); so do all
/// slots of an inactive request.
struct candidates {
  /// [batch, depth, top_k], ids of the target's vocabulary.
  token_t* token = nullptr;
  /// [batch, depth, top_k], natural log, <= 0, never rising along a row.
  float* log_prob = nullptr;
  /// [batch], bits of `flag`.
  std::uint32_t* flags = nullptr;
};

/// A tree of drafted tokens per request, in best-first order. All arrays are dense, [batch, width]
/// unless noted.
///
/// Nodes are ordered by (log weight descending, rank path lexicographically ascending, a prefix
/// before its extensions), so a parent stands before its children and, without a chain seed, the
/// first n + 1 rows are the optimal tree of budget n. Weights are sums of log-probs, each rounded
/// to a multiple of 2^-44, in 64-bit integers: no schedule changes a bit. Node i has position
/// S + depth[i] and KV slot number S + i.
///
/// Rows num_nodes..width-1 are padding: root token, depth 0, parent -1, rank -1, log_weight -inf,
/// linked from nowhere, ancestors = own bit only (a row that sees nothing would make NaN).
struct draft_tree {
  /// Token of each node; node 0 is the root, the bonus token of the round before.
  token_t* token = nullptr;
  /// Row of the parent, less than the node's own; -1 at the root and at padding.
  node_t* parent = nullptr;
  /// 0 at the root.
  std::int32_t* depth = nullptr;
  /// Rank of the token among the candidates of its depth; -1 at the root and at padding.
  std::int32_t* rank = nullptr;
  /// Sum of the log-probs from the root; 0 at the root, -inf at padding.
  float* log_weight = nullptr;
  /// First child in rank order, -1 = none.
  node_t* first_child = nullptr;
  /// Next child of the same parent in rank order, -1 = none.
  node_t* next_sibling = nullptr;
  /// [batch, width, words], words = ceil(width / 32): bit j % 32 of word j / 32 of row i says that
  /// j is i or an ancestor of i.
  std::uint32_t* ancestors = nullptr;
  /// [batch], root included, 1..width.
  std::int32_t* num_nodes = nullptr;
  /// [batch], bits of `flag`.
  std::uint32_t* flags = nullptr;
};

/// The walk that the target confirmed. Bound by `bind_accepted` it is one contiguous block with
/// the same layout on every rank: one broadcast, one copy to the host. It is written in full.
struct accepted {
  /// [batch, depth + 1]: rows of the accepted nodes, path[0] = 0, then -1.
  node_t* path = nullptr;
  /// [batch], accepted drafted nodes, root and bonus excluded, 0..depth; -1 = inactive.
  std::int32_t* num_accepted = nullptr;
  /// [batch, depth + 1]: the accepted tokens, then the bonus, then -1.
  token_t* token = nullptr;
  /// [batch]: the target's token after the last accepted node, the root of the next round. A valid
  /// id for an active request, -1 for an inactive one.
  token_t* bonus = nullptr;
  /// [batch, depth + 1], natural log-softmax of each emitted token, 0 where token is -1. Optional:
  /// null = not computed.
  float* log_prob = nullptr;
  /// [batch], bits of `flag`, those of the tree included.
  std::uint32_t* flags = nullptr;
};

/// Bytes of an accepted block, slack for any alignment included. Pure; 0 for an invalid shape.
DDTREE_API std::size_t accepted_bytes(round_shape const& shape) noexcept;

/// Lays an accepted block out over `memory`, log_prob included. No memory is touched, nothing is
/// enqueued. Engines that run a round ahead bind two and alternate. The block begins at `path` and
/// ends behind `flags`; distances within it depend on the shape alone.
///
/// @return `invalid_argument`, `workspace_too_small`.
DDTREE_API status bind_accepted(round_shape const& shape, workspace memory,
                                accepted* out) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_TREE_HPP
