// SPDX-License-Identifier: Apache-2.0
/// @file expand.hpp
/// Draft expansion: the top_k tokens of every drafted position with their log-probs.
#ifndef DDTREE_EXPAND_HPP
#define DDTREE_EXPAND_HPP

#include <cstddef>

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// Options of expand, expand_shard and expand_merge. Give all three the same.
struct expand_options {
  /// Divides the logits; a value that is not finite or not above 0 counts as 1. Fixed at capture.
  float temperature = 1.0f;
  /// [requests], the same by request; takes precedence where bound.
  float const* temperature_by_request = nullptr;
  /// [draft_vocab], for a drafter with a vocabulary of its own: draft id to target id. -1 = the
  /// target has no such token: left out of the top_k and of the normalising sum, whatever its logit
  /// is. An entry outside [-1, shape.vocab) counts as -1 and sets id_out_of_range.
  ids_in vocab_map = {};
  /// Entries of vocab_map, without which it is not used: draft ids are those below it. 0 = the
  /// columns of expand's draft logits; expand_shard and expand_merge, which see a part of them or
  /// none, need it.
  index_t draft_vocab = 0;
  /// [depth, top_k], added to the log-probs in rank order, for calibration:
  /// lp_r = min(lp_r + bias_r, 0, lp_(r-1)). So ranks never rise. NaN counts as 0; -inf stays.
  float const* bias = nullptr;
};

/// Bytes of workspace that `expand` may use with this context, over every variant it may choose.
/// Pure, monotone in each extent; so are all functions of this kind. 0 for an invalid shape.
DDTREE_API std::size_t expand_workspace_bytes(context const& ctx,
                                              round_shape const& shape) noexcept;

/// Finds the top_k tokens of each draft row and their log-probs, reading each logit once.
///
/// With r = 1 / temperature (rounded once) and z = float(x) * r, a row's candidates are its top_k
/// logits as floats, descending; equal logits (-0 equals +0) by ascending draft id. log_prob =
/// min(z - lse, 0) with lse = max + ln(sum exp(z - max)) over the whole row. NaN counts as -inf,
/// +inf as the largest finite float; both set `flag::draft_nan`. z is held to the finite range.
///
/// Method: DDTree (arXiv 2604.12989), section 3; the top_k of each position suffice by its Lemma 1.
///
/// Deterministic: ids depend on the row alone. log_probs do so too, and may differ by 1e-5 between
/// variants and, as some read aligned rows in another order, with where a row lies. Enqueues only: no synchronisation, no allocation, capturable.
///
/// @param ctx      where to run.
/// @param shape    batch, vocab, depth, top_k are used.
/// @param batch    cache_len is optional here (it only marks inactive rows).
/// @param draft    [batch, depth] rows, row (b, d - 1) predicts depth d. Without a vocab_map,
///                 draft.vocab must be at least shape.vocab; with one, at least draft_vocab.
///                 draft.vocab is at most 4,194,304.
/// @param out      candidates, all three arrays bound. Without rows (batch or depth 0) the arrays
///                 that have no elements, and draft.data, may be null.
/// @param scratch  `expand_workspace_bytes`.
/// @return `invalid_argument`, `workspace_too_small`, `unsupported`, `unsupported_device`.
DDTREE_API status expand(context const& ctx, round_shape const& shape, batch_view const& batch,
                         logits_view const& draft, candidates const& out, workspace scratch,
                         expand_options const& options = {}) noexcept;

/// Bytes that one rank contributes to an expansion over vocabulary shards. Pure.
DDTREE_API std::size_t expand_shard_bytes(round_shape const& shape) noexcept;

/// Bytes of workspace that `expand_shard` may use. Pure, monotone.
DDTREE_API std::size_t expand_shard_workspace_bytes(context const& ctx,
                                                    round_shape const& shape) noexcept;

/// The part of `expand` that one rank of a tensor-parallel group does on its own columns. The
/// contribution (logits and ids of the shard's top_k, maximum and sum of each row, flags) goes
/// into one contiguous buffer; after the engine's all-gather every rank calls `expand_merge`.
///
/// @param shard   [batch, depth] rows of this rank's columns; vocab = its columns, must be given.
/// @param ranges  which columns are which ids; ids must lie below shape.vocab, or below draft_vocab
///                where a vocab_map translates them (it is indexed by the global draft id). The two
///                must not share an id. May be empty: then shard.data may be null.
/// @param out     `expand_shard_bytes`, aligned to 16 bytes.
DDTREE_API status expand_shard(context const& ctx, round_shape const& shape,
                               batch_view const& batch, logits_view const& shard,
                               vocab_ranges const& ranges, shard_out out, workspace scratch,
                               expand_options const& options = {}) noexcept;

/// Bytes of workspace that `expand_merge` may use. Pure, monotone.
DDTREE_API std::size_t expand_merge_workspace_bytes(context const& ctx, round_shape const& shape,
                                                    index_t ranks) noexcept;

/// Merges what all ranks contributed: the same bits on every rank; the ids of the unsharded call
/// exactly, its log-probs within 1e-5.
///
/// @param all_ranks  [ranks] contributions in rank order, each aligned to 16 bytes. A vocab_map is
///                   read at the ids that they hold. A row of a rank ends at an id that is outside
///                   [0, shape.vocab), or [0, draft_vocab) with a map: the contribution was damaged
///                   on its way (flag id_out_of_range).
DDTREE_API status expand_merge(context const& ctx, round_shape const& shape,
                               batch_view const& batch, shard_in const& all_ranks,
                               candidates const& out, workspace scratch,
                               expand_options const& options = {}) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_EXPAND_HPP
