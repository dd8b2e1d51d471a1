// SPDX-License-Identifier: Apache-2.0
#include "ddtree/round.hpp"

#include "support/arrays.hpp"
#include "support/carve.hpp"
#include "support/validate.hpp"

#include <algorithm>
#include <iterator>

#if defined(DDTREE_WITH_CUDA)
#include "common/device_info.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using check_create = support::check<"decoding_round::create">;
using check_reset = support::check<"decoding_round::reset">;

/// What the largest of the steps needs: they run one after another.
std::size_t scratch_bytes(context const& ctx, round_shape const& shape) {
  return std::max({expand_workspace_bytes(ctx, shape), build_tree_workspace_bytes(ctx, shape),
                   accept_greedy_workspace_bytes(ctx, shape),
                   accept_sampled_workspace_bytes(ctx, shape)});
}

void carve(support::carver& c, context const& ctx, round_shape const& shape,
           decoding_round& round) {
  round.candidates_ = support::carve_candidates(c, shape);
  round.tree = support::carve_tree(c, shape);
  round.accepted_ = support::carve_accepted(c, shape);
  // Never empty: with a batch of 0 the arrays are, and yet they must not be null.
  round.scratch.bytes = std::max<std::size_t>(scratch_bytes(ctx, shape), 1);
  round.scratch.data = c.take<unsigned char>(static_cast<index_t>(round.scratch.bytes));
}

/// No variant of either backend keeps counters between launches; this is where they would be
/// cleared.
template <class Check>
status clear_counters(context const& ctx) {
  if (ctx.backend == backend_kind::cpu) return {};
#if defined(DDTREE_WITH_CUDA)
  return cuda::usable(ctx.device);
#else
  return Check::template fail<"context.backend is not in this build">(errc::unsupported_device);
#endif
}

bool permutes(kv_cache const& cache) {
  return std::any_of(std::begin(cache.table), std::end(cache.table),
                     [](kv_table const& table) { return table.index_only; });
}

}  // namespace

std::size_t decoding_round::bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  support::carver counting;
  decoding_round round;
  carve(counting, ctx, shape, round);
  return counting.bytes();
}

status decoding_round::create(context const& ctx, round_shape const& shape, workspace memory,
                              decoding_round* out, round_options const& options) noexcept {
  status const bad = support::first_failure(check_create::context(ctx), check_create::shape(shape),
                                            check_create::bound<"out">(out));
  if (!bad) return bad;
  if (memory.bytes < bytes(ctx, shape)) {
    return check_create::fail<"memory.bytes too small">(errc::workspace_too_small);
  }
  if (memory.data == nullptr) {
    return check_create::fail<"memory.data is null">(errc::workspace_too_small);
  }
  if (auto s = clear_counters<check_create>(ctx); !s) return s;

  decoding_round round;
  round.ctx = ctx;
  round.shape = shape;
  round.options = options;
  support::carver carver(memory);
  carve(carver, ctx, shape, round);
  if (!options.log_prob) round.accepted_.log_prob = nullptr;
  *out = round;
  return {};
}

status decoding_round::reset(context const& on) const noexcept {
  if (auto s = check_reset::context(on); !s) return s;
  if (on.backend != ctx.backend || on.device != ctx.device) {
    return check_reset::fail<"on is not of the round's device">();
  }
  return clear_counters<check_reset>(on);
}

status decoding_round::draft(batch_view const& batch, logits_view const& draft_logits, ids_in root,
                             verify_inputs const& inputs, mask_view const& mask) const noexcept {
  round_shape rows = shape;
  logits_view logits = draft_logits;
  if (shape.depth == 0 || shape.budget == 0) {
    // No row is read; what is left of expand is to write the flags, which build_tree reads.
    rows.depth = 0;
    logits = {};
  }
  if (auto s = expand(ctx, rows, batch, logits, candidates_, scratch, options.expand); !s) return s;
  if (auto s = build_tree(ctx, shape, batch, candidates_, root, tree, scratch, options.build); !s) {
    return s;
  }
  if (mask.data != nullptr) {
    if (auto s = write_mask(ctx, shape, batch, tree, mask); !s) return s;
  }
  if (inputs.token.data == nullptr && inputs.position.data == nullptr &&
      inputs.slot.data == nullptr) {
    return {};
  }
  return write_verify_inputs(ctx, shape, batch, tree, inputs, options.verify);
}

status decoding_round::accept(batch_view const& batch, logits_view const& target,
                              sampling const& how, accepted const* out) const noexcept {
  accepted const& to = out != nullptr ? *out : accepted_;
  if (how.temperature == nullptr) {
    return accept_greedy(ctx, shape, batch, tree, target, to, scratch, options.accept);
  }
  return accept_sampled(ctx, shape, batch, tree, target, how, to, scratch, options.accept);
}

status decoding_round::accept_tokens(batch_view const& batch, ids_in target_token,
                                     accepted const* out) const noexcept {
  accepted to = out != nullptr ? *out : accepted_;
  to.log_prob = nullptr;
  return ddtree::accept_tokens(ctx, shape, batch, tree, target_token, to, options.accept);
}

status decoding_round::commit(batch_view const& batch, kv_cache const& cache, ids_out cache_len,
                              accepted const* from) const noexcept {
  accepted const& path = from != nullptr ? *from : accepted_;
  if (cache.num_tensors != 0 || permutes(cache)) {
    if (auto s = compact_kv(ctx, shape, batch, path, cache); !s) return s;
  }
  if (cache_len.data == nullptr) return {};
  return advance(ctx, shape, batch, path, cache_len);
}

}  // namespace v0
}  // namespace ddtree
