// SPDX-License-Identifier: Apache-2.0
/// @file round.hpp
/// A whole decoding round: its arrays in one piece of memory, and three steps over them.
#ifndef DDTREE_ROUND_HPP
#define DDTREE_ROUND_HPP

#include "ddtree/accept.hpp"
#include "ddtree/build.hpp"
#include "ddtree/compact.hpp"
#include "ddtree/context.hpp"
#include "ddtree/expand.hpp"
#include "ddtree/export.h"
#include "ddtree/mask.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstddef>

namespace ddtree {
inline namespace v0 {

/// The options of every operation of a round. Fixed by `decoding_round::create`.
struct round_options {
  expand_options expand = {};
  build_options build = {};
  verify_options verify = {};
  accept_options accept = {};
  /// Bind accepted_.log_prob, so that accept fills it.
  bool log_prob = false;
};

/// The arrays of one round, carved from one piece of the caller's memory, and three steps.
///
/// A value that owns nothing: the memory must outlive it. The members are public for callers that
/// use the operations one by one. One round serves one stream at a time.
struct decoding_round {
  context ctx;
  round_shape shape;
  round_options options;
  candidates candidates_;
  draft_tree tree;
  accepted accepted_;
  workspace scratch;

  /// Bytes that `create` needs for this context and shape, whatever the options. Pure, monotone; 0
  /// for an invalid shape.
  DDTREE_API static std::size_t bytes(context const& ctx, round_shape const& shape) noexcept;

  /// Lays the arrays out over `memory` and enqueues one clear of the counters that kernels keep
  /// between launches (on the CPU there are none). The arrays are not initialised: write the first
  /// root tokens into `accepted_.bonus`, or pass your own to `draft`.
  ///
  /// @return `invalid_argument`, `workspace_too_small`, `unsupported_device`.
  DDTREE_API static status create(context const& ctx, round_shape const& shape, workspace memory,
                                  decoding_round* out, round_options const& options = {}) noexcept;

  /// Clears the counters that kernels keep between launches, after a launch that failed. Enqueues
  /// one memset; on the CPU it does nothing.
  ///
  /// @param on  of the round's backend and device; its stream is the one used.
  DDTREE_API status reset(context const& on) const noexcept;

  /// expand, build_tree, write_mask (where mask.data is not null), write_verify_inputs (where an
  /// output is wanted). The first failure ends it and is returned as the operation gave it.
  ///
  /// @param draft_logits  [batch, depth] rows; not read, and may be null, at depth 0 or budget 0.
  /// @param root          [batch], usually accepted_.bonus of the round before.
  DDTREE_API status draft(batch_view const& batch, logits_view const& draft_logits, ids_in root,
                          verify_inputs const& inputs, mask_view const& mask) const noexcept;

  /// accept_greedy where `how.temperature` is null, otherwise accept_sampled.
  ///
  /// @param out  where to write; null = accepted_.
  DDTREE_API status accept(batch_view const& batch, logits_view const& target,
                           sampling const& how = {}, accepted const* out = nullptr) const noexcept;

  /// accept_tokens, for engines that sample themselves. log_prob is not written.
  DDTREE_API status accept_tokens(batch_view const& batch, ids_in target_token,
                                  accepted const* out = nullptr) const noexcept;

  /// compact_kv (where the cache has a tensor or an index_only table), then advance (where
  /// cache_len is bound), by `from`; null = accepted_.
  DDTREE_API status commit(batch_view const& batch, kv_cache const& cache, ids_out cache_len = {},
                           accepted const* from = nullptr) const noexcept;
};

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_ROUND_HPP
