// SPDX-License-Identifier: Apache-2.0
/// @file accept.hpp
/// Acceptance: the walk that follows the target's own tokens down the tree.
#ifndef DDTREE_ACCEPT_HPP
#define DDTREE_ACCEPT_HPP

#include <cstddef>
#include <cstdint>

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// Which filter of the sampling distribution comes first.
enum class filter_order : std::int32_t {
  /// top_k, then top_p on its survivors, then min_p.
  k_p_min = 0,
  /// min_p, then top_k, then top_p on the survivors (as vLLM does).
  min_k_p = 1,
};

/// How the target's tokens are drawn. Arrays are by request, [requests]; null = off.
struct sampling {
  /// Divides the logits; <= 0 = greedy, NaN or inf counts as 1. Null = every request is greedy and
  /// the other members are not used.
  float const* temperature = nullptr;
  /// Keeps exactly the top_k tokens by (logit descending, id ascending); off where <= 0 or >= vocab.
  ids_in top_k = {};
  /// Keeps the smallest set of values that holds this share of the probability; off where >= 1 or
  /// NaN. Ties at the cut all stay, and so does the maximum.
  float const* top_p = nullptr;
  /// Keeps tokens of at least this share of the most probable one's probability; off where <= 0 or
  /// NaN. The maximum stays.
  float const* min_p = nullptr;
  /// 64-bit seed of each request (int32 is sign-extended); needed where temperature is bound.
  ids_in seed = {};
  filter_order order = filter_order::k_p_min;
  /// accept_shard and accept_merge only: with it, each rank contributes its max_top_k best tokens
  /// of a row, 1..1024, so that top_k <= max_top_k, top_p and min_p work across shards. A sampled
  /// request whose top_k is off or larger, while a filter is on for it, is held to max_top_k (flag
  /// top_k_limited). 0 = only the best token of a row crosses; filters are `unsupported` then.
  std::int32_t max_top_k = 0;
};

/// One bit per token for each target row, as grammar engines fill it: bit v % 32 of word v / 32 of
/// a row set = token v allowed. A forbidden token counts as a logit of -inf.
struct bitmask_view {
  std::uint32_t const* data = nullptr;
  /// Words from row to row; 0 = ceil(shape.vocab / 32).
  index_t row_stride = 0;
  /// Rows from request to request; 0 = width.
  index_t batch_stride = 0;
  /// [batch], first row of each request in a packed buffer; null = b * batch_stride.
  ids_in row_offset = {};
};

/// The results once more, in the engine's own arrays and types; null = not wanted.
struct accept_mirror {
  /// [batch, depth + 1], as `accepted::token`.
  ids_out token = {};
  /// [batch].
  ids_out bonus = {};
  /// [batch].
  ids_out num_accepted = {};
  /// [requests], S + num_accepted + 1; not written for inactive requests. Needs batch.cache_len and
  /// must not alias it.
  ids_out new_cache_len = {};
};

/// Options of every accept call. Arrays are by request unless noted; null = off.
struct accept_options {
  /// [requests, vocab], added to the logits first. NaN counts as 0; a sum that is NaN or +inf counts
  /// as such a logit does.
  float const* logit_bias = nullptr;
  /// Floats from request to request; 0 = shape.vocab.
  index_t logit_bias_stride = 0;
  /// By target row.
  bitmask_view token_bitmask = {};
  /// [requests, stop_tokens_per_request], padded with -1: the walk ends where the target's token is
  /// one of them, and it is the bonus (flag stopped), child or not.
  ids_in stop_tokens = {};
  std::int32_t stop_tokens_per_request = 0;
  /// [requests], tokens that may still be emitted, bonus included: num_accepted <= remaining - 1
  /// (flag limit_reached where that cut the walk). <= 0 makes the request inactive.
  ids_in remaining = {};
  /// accepted.log_prob after bias, bitmask and temperature (1 for a greedy request) instead of as
  /// the model gave the logits. top_k, top_p and min_p never enter it. A logit of -inf gives -inf.
  bool processed_log_prob = false;
  /// accept_shard and accept_merge: contribute what accepted.log_prob needs.
  bool shard_log_prob = false;
  accept_mirror mirror = {};
};

/// Walks the tree along tokens that the engine sampled already, one per node.
///
/// At node i with the target's token t: if t is a stop token the walk ends with t as the bonus;
/// otherwise it goes to the first child (in rank order) whose token is t; where there is none, or
/// `remaining` is used up, t is the bonus. A node is accepted if and only if every edge from the
/// root to it matches (sample-and-match: every emitted token is the target's own, so the output is
/// exactly the target's; DDTree, arXiv 2604.12989, section 4).
///
/// Enqueues only: no synchronisation, no allocation, capturable.
///
/// @param shape         batch, vocab, depth and budget are used.
/// @param batch         cache_len is needed for mirror.new_cache_len.
/// @param tree          token, parent, first_child, next_sibling, num_nodes, flags are used. A link
///                      that does not point to a later row counts as -1 (flag id_out_of_range).
/// @param target_token  [batch, width], int32 or int64; rows beyond num_nodes are not read. An id
///                      outside [0, vocab) matches nothing; as a bonus it is written as 0 (flag
///                      id_out_of_range).
/// @param out           all arrays bound but log_prob, which must be null.
/// @param options       logit_bias and token_bitmask must be off.
/// @return `invalid_argument`, `unsupported`, `unsupported_device`.
DDTREE_API status accept_tokens(context const& ctx, round_shape const& shape,
                                batch_view const& batch, draft_tree const& tree,
                                ids_in target_token, accepted const& out,
                                accept_options const& options = {}) noexcept;

/// Bytes of workspace that `accept_greedy` may use. Pure, monotone; 0 for an invalid shape.
DDTREE_API std::size_t accept_greedy_workspace_bytes(context const& ctx,
                                                     round_shape const& shape) noexcept;

/// As accept_tokens, the token of a row being the argmax of its logits, equal logits by the lowest
/// id (-0 equals +0).
///
/// NaN counts as -inf and +inf as the largest finite float (flag target_nan: any such logit of a row
/// that the walk visits, as the model gave it, forbidden by the bitmask or not). A row without a
/// finite logit (after bias and bitmask) gives token 0 and ends the walk, whatever the stop tokens
/// and the tree are.
///
/// @param target  [batch, width] rows, row i predicts the token after node i; rows beyond num_nodes
///                are not read (nor are rows off the path read by lazy variants).
DDTREE_API status accept_greedy(context const& ctx, round_shape const& shape,
                                batch_view const& batch, draft_tree const& tree,
                                logits_view const& target, accepted const& out, workspace scratch,
                                accept_options const& options = {}) noexcept;

/// Bytes of workspace that `accept_sampled` may use. Pure, monotone; 0 for an invalid shape.
DDTREE_API std::size_t accept_sampled_workspace_bytes(context const& ctx,
                                                      round_shape const& shape) noexcept;

/// As accept_greedy, the token of a row being drawn from its distribution with Gumbel-max.
///
/// z = (logit + bias) / temperature as in `expand`. Filters work on integer weights
/// W = round(exp(z - z_max) * 2^40), so that every backend cuts alike. Of the survivors the largest
/// z + g wins, equal keys by the lowest id. The Gumbel noise g is a pure function of (seed,
/// position, token id): Philox4x32-10 (Salmon et al., SC 2011) with key = seed, counter =
/// (token / 4, position, 0x44445452), where position is that of the token being drawn,
/// S + depth + 1. So the drawn tokens do not depend on the tree: with the same seed they are what
/// plain decoding (budget 0) through this library gives, token for token.
///
/// @param batch    cache_len is needed where how.temperature is bound.
/// @param how      see `sampling`.
DDTREE_API status accept_sampled(context const& ctx, round_shape const& shape,
                                 batch_view const& batch, draft_tree const& tree,
                                 logits_view const& target, sampling const& how,
                                 accepted const& out, workspace scratch,
                                 accept_options const& options = {}) noexcept;

/// Bytes that one rank contributes to an acceptance over vocabulary shards. Uses how.max_top_k and
/// options.shard_log_prob. Pure.
DDTREE_API std::size_t accept_shard_bytes(round_shape const& shape, sampling const& how,
                                          accept_options const& options = {}) noexcept;

/// Bytes of workspace that `accept_shard` may use. Pure, monotone.
DDTREE_API std::size_t accept_shard_workspace_bytes(context const& ctx,
                                                    round_shape const& shape) noexcept;

/// The part of accept_greedy or accept_sampled that one rank of a tensor-parallel group does on its
/// own columns: per row the best (key, id) of the shard, or its max_top_k best tokens.
///
/// @param batch   cache_len is needed where how.temperature is bound.
/// @param tree    depth and num_nodes are used: every node's row is read.
/// @param shard   [batch, width] rows of this rank's columns; vocab = its columns, must be given.
///                Bias and bitmask are indexed by the global id.
/// @param ranges  which columns are which ids, below shape.vocab. May be empty.
/// @param how     all null = greedy. top_p or min_p without max_top_k is `unsupported`: a cut over
///                the full vocabulary needs gathered rows. So is top_k.
/// @param out     `accept_shard_bytes`, aligned to 16 bytes.
DDTREE_API status accept_shard(context const& ctx, round_shape const& shape,
                               batch_view const& batch, draft_tree const& tree,
                               logits_view const& shard, vocab_ranges const& ranges,
                               sampling const& how, shard_out out, workspace scratch,
                               accept_options const& options = {}) noexcept;

/// Bytes of workspace that `accept_merge` may use. Pure, monotone.
DDTREE_API std::size_t accept_merge_workspace_bytes(context const& ctx, round_shape const& shape,
                                                    index_t ranks) noexcept;

/// Merges what all ranks contributed and walks the tree: the same bits on every rank, the tokens of
/// the unsharded call.
///
/// @param batch      as given to accept_shard.
/// @param tree       as for accept_tokens.
/// @param all_ranks  [ranks] contributions in rank order, aligned to 16 bytes. Nothing in them tells
///                   how they are laid out: shape, how and options must be those of accept_shard.
/// @param how        as given to accept_shard.
/// @param options    as given to accept_shard; out.log_prob needs shard_log_prob.
DDTREE_API status accept_merge(context const& ctx, round_shape const& shape,
                               batch_view const& batch, draft_tree const& tree,
                               shard_in const& all_ranks, sampling const& how,
                               accepted const& out, workspace scratch,
                               accept_options const& options = {}) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_ACCEPT_HPP
