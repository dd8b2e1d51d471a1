// SPDX-License-Identifier: Apache-2.0
#include "cpu/accept.hpp"

#include "cpu/accept_draw.hpp"
#include "cpu/accept_row.hpp"
#include "cpu/accept_walk.hpp"
#include "rules/views.hpp"
#include "support/carve.hpp"
#include "support/parallel.hpp"

#include <algorithm>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

index_t slice_keys(support::accept_logits_call const& call) {
  return candidate_set::capacity(call.shape.vocab);
}

/// The target's token at a node. `keys` is storage for candidates, used by sampled requests only.
target_token from_logits(support::accept_logits_call const& call, draw_rule const& rule,
                         target_row const& row, index_t position, std::uint64_t* keys) {
  log_prob_kind const kind = kind_of(call.options, call.out.log_prob != nullptr);
  candidate_set candidates(keys, rule.top_k, call.shape.vocab);
  row_scan const found = scan(row, rule, position, kind, candidates);
  target_token target;
  target.token = found.best.id;
  target.can_match = found.best.key > rules::minus_infinity;
  if (rule.has_filter) {
    std::span<std::uint64_t> const kept = candidates.finish();
    target.can_match = !kept.empty();
    if (!kept.empty()) target.token = draw(kept, rule, position);
  }
  if (found.met_nan) target.flags = flag::target_nan;
  if (kind != log_prob_kind::none) {
    target.log_prob = log_prob_of(logit_of(row, target.token, rule.r, kind), found.sum);
  }
  return target;
}

}  // namespace

status accept_tokens(support::accept_tokens_call const& call) noexcept {
  support::parallel_for(call.ctx.threads, call.shape.batch, [&](index_t b, std::int32_t) {
    accept_request(call, b, [&](rules::batch_row const&, node_t node, std::int32_t) {
      index_t const at = b * call.target_token.stride + node;
      return rules::target_from_id(rules::load_id(call.target_token, at), call.shape.vocab);
    });
  });
  return {};
}

status accept_logits(support::accept_logits_call const& call) noexcept {
  support::carver memory(call.scratch);
  bool const samples = call.how.temperature != nullptr;
  index_t const slice = samples ? slice_keys(call) : 0;
  auto* const keys = memory.take<std::uint64_t>(
      slice * support::count_workers(call.ctx.threads, call.shape.batch));
  vocab_ranges const all_columns{{{0, call.shape.vocab, 0}}};
  support::parallel_for(call.ctx.threads, call.shape.batch, [&](index_t b, std::int32_t worker) {
    accept_request(call, b, [&](rules::batch_row const& at, node_t node, std::int32_t depth) {
      draw_rule const rule = find_rule(call.how, at.request, call.shape.vocab);
      target_row const row =
          find_target_row(call.target, all_columns, call.options, at.request, b, node);
      return from_logits(call, rule, row, at.cache_len + depth + 1, keys + worker * slice);
    });
  });
  return {};
}

std::size_t accept_sampled_workspace(support::accept_logits_call const& call) noexcept {
  support::carver count;
  count.take<std::uint64_t>(slice_keys(call) *
                            support::count_workers(call.ctx.threads, call.shape.batch));
  return count.bytes();
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
