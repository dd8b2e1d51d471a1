// SPDX-License-Identifier: Apache-2.0
#include "ddtree/accept.hpp"

#include "api/tables.hpp"
#include "cpu/accept.hpp"
#include "rules/accept.hpp"
#include "support/calls.hpp"
#include "support/validate.hpp"
#include "support/validate_shard.hpp"
#include "support/variants.hpp"

#if defined(DDTREE_WITH_CUDA)
#include "accept/accept.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using support::accept_logits_call;
using support::accept_merge_call;
using support::accept_shard_call;
using support::accept_tokens_call;

constexpr support::variant<accept_tokens_call> accept_tokens_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::accept_tokens},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::accept_tokens},
#endif
};

constexpr support::variant<accept_logits_call> accept_greedy_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::accept_logits},
#if defined(DDTREE_WITH_CUDA)
    {"eager", backend_kind::cuda, cuda::can_accept_eager, cuda::prefers_accept_eager,
     cuda::accept_eager_workspace, cuda::accept_eager},
    {"sm90_cluster", backend_kind::cuda, cuda::can_accept_lazy_cluster,
     cuda::prefers_accept_lazy_cluster, nullptr, cuda::accept_lazy_cluster},
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::accept_lazy},
#endif
};

constexpr support::variant<accept_logits_call> accept_sampled_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::accept_sampled_workspace, cpu::accept_logits},
#if defined(DDTREE_WITH_CUDA)
    {"eager", backend_kind::cuda, cuda::can_accept_eager, cuda::prefers_accept_eager,
     cuda::accept_eager_workspace, cuda::accept_eager},
    {"sm90_cluster", backend_kind::cuda, cuda::can_accept_lazy_cluster,
     cuda::prefers_accept_lazy_cluster, nullptr, cuda::accept_lazy_cluster},
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::accept_lazy},
#endif
};

constexpr support::variant<accept_shard_call> accept_shard_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::accept_shard_workspace, cpu::accept_shard},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::accept_shard},
#endif
};

constexpr support::variant<accept_merge_call> accept_merge_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::accept_merge_workspace, cpu::accept_merge},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::accept_merge},
#endif
};

using check_tokens = support::check<"accept_tokens">;
using check_greedy = support::check<"accept_greedy">;
using check_sampled = support::check<"accept_sampled">;
using check_shard = support::check<"accept_shard">;
using check_merge = support::check<"accept_merge">;

/// What every call asks of its first arguments.
template <class Check>
status check_round(context const& ctx, round_shape const& shape, batch_view const& batch) {
  return support::first_failure(Check::context(ctx), Check::shape(shape), Check::batch(batch));
}

/// What a walk reads of the tree.
template <class Check>
status check_tree(round_shape const& shape, draft_tree const& tree) {
  if (shape.batch == 0) return {};
  return support::first_failure(Check::template bound<"tree.token">(tree.token),
                                Check::template bound<"tree.parent">(tree.parent),
                                Check::template bound<"tree.first_child">(tree.first_child),
                                Check::template bound<"tree.next_sibling">(tree.next_sibling),
                                Check::template bound<"tree.num_nodes">(tree.num_nodes),
                                Check::template bound<"tree.flags">(tree.flags));
}

/// What a walk writes. log_prob is optional.
template <class Check>
status check_out(round_shape const& shape, accepted const& out) {
  bool const all = out.path && out.num_accepted && out.token && out.bonus && out.flags;
  if (!all && shape.batch > 0) return Check::template fail<"out has a null array">();
  return {};
}

template <class Check>
status check_mirror(round_shape const& shape, batch_view const& batch,
                    accept_mirror const& mirror) {
  status const bad = support::first_failure(
      Check::template ids<"options.mirror.token">(mirror.token),
      Check::template ids<"options.mirror.bonus">(mirror.bonus),
      Check::template ids<"options.mirror.num_accepted">(mirror.num_accepted),
      Check::template ids<"options.mirror.new_cache_len">(mirror.new_cache_len));
  if (!bad) return bad;
  if (mirror.token.stride != 0 && mirror.token.stride < index_t{shape.depth} + 1) {
    return Check::template fail<"options.mirror.token.stride shorter than a row">();
  }
  if (mirror.new_cache_len.data == nullptr) return {};
  if (batch.cache_len.data == nullptr) {
    return Check::template fail<"batch.cache_len is null">();
  }
  if (batch.cache_len.data == mirror.new_cache_len.data) {
    return Check::template fail<"options.mirror.new_cache_len aliases batch.cache_len">();
  }
  return {};
}

/// What decides where a walk ends.
template <class Check>
status check_limits(accept_options const& options) {
  status const bad =
      support::first_failure(Check::template ids<"options.stop_tokens">(options.stop_tokens),
                             Check::template ids<"options.remaining">(options.remaining));
  if (!bad) return bad;
  if (options.stop_tokens_per_request < 0) {
    return Check::template fail<"options.stop_tokens_per_request < 0">();
  }
  return {};
}

/// What changes logits on read.
template <class Check>
status check_adjustments(round_shape const& shape, accept_options const& options) {
  index_t const bias = options.logit_bias_stride;
  if (bias < 0 || (bias > 0 && bias < shape.vocab)) {
    return Check::template fail<"options.logit_bias_stride shorter than a row">();
  }
  bitmask_view const& mask = options.token_bitmask;
  if (mask.row_stride < 0 || (mask.row_stride > 0 && mask.row_stride < (shape.vocab + 31) / 32)) {
    return Check::template fail<"options.token_bitmask.row_stride shorter than a row">();
  }
  if (mask.batch_stride < 0) {
    return Check::template fail<"options.token_bitmask.batch_stride < 0">();
  }
  return Check::template ids<"options.token_bitmask.row_offset">(mask.row_offset);
}

template <class Check>
status check_target(round_shape const& shape, logits_view const& target) {
  if (target.data == nullptr && shape.batch > 0) {
    return Check::template fail<"target.data is null">();
  }
  if (!support::is_float(target.type)) {
    return Check::template fail<"target.type is not f32, f16 or bf16">();
  }
  if (target.vocab < 0) return Check::template fail<"target.vocab < 0">();
  if (target.vocab > 0 && target.vocab < shape.vocab) {
    return Check::template fail<"target.vocab < shape.vocab">();
  }
  index_t const columns = target.vocab > 0 ? target.vocab : shape.vocab;
  if (target.row_stride < 0 || (target.row_stride > 0 && target.row_stride < columns)) {
    return Check::template fail<"target.row_stride shorter than a row">();
  }
  if (target.batch_stride < 0) return Check::template fail<"target.batch_stride < 0">();
  return Check::template ids<"target.row_offset">(target.row_offset);
}

template <class Check>
status check_sampling(batch_view const& batch, sampling const& how) {
  if (how.temperature == nullptr) return {};
  if (how.order != filter_order::k_p_min && how.order != filter_order::min_k_p) {
    return Check::template fail<"how.order is none">();
  }
  return support::first_failure(Check::template bound<"batch.cache_len">(batch.cache_len.data),
                                Check::template bound_ids<"how.seed">(how.seed),
                                Check::template ids<"how.top_k">(how.top_k));
}

/// A cut over the full vocabulary needs candidates of every rank.
template <class Check>
status check_exchange(sampling const& how) {
  if (how.max_top_k < 0 || how.max_top_k > max_top_k) {
    return Check::template fail<"how.max_top_k outside [0, 1024]">();
  }
  bool const filters = how.temperature != nullptr &&
                       (how.top_k.data != nullptr || how.top_p != nullptr || how.min_p != nullptr);
  if (filters && how.max_top_k == 0) {
    return Check::template fail<"filters without how.max_top_k">(errc::unsupported);
  }
  return {};
}

/// What accept_shard reads of the tree.
status check_shard_tree(round_shape const& shape, draft_tree const& tree) {
  if (shape.batch == 0) return {};
  return support::first_failure(check_shard::bound<"tree.depth">(tree.depth),
                                check_shard::bound<"tree.num_nodes">(tree.num_nodes));
}

status check_given_tokens(accepted const& out, accept_options const& options) {
  if (out.log_prob != nullptr) return check_tokens::fail<"out.log_prob is not null">();
  if (options.logit_bias != nullptr) return check_tokens::fail<"options.logit_bias is not null">();
  if (options.token_bitmask.data != nullptr) {
    return check_tokens::fail<"options.token_bitmask is not null">();
  }
  return {};
}

void resolve(accept_options& options, round_shape const& shape) {
  support::set_if_zero(options.logit_bias_stride, shape.vocab);
  support::set_if_zero(options.token_bitmask.row_stride, (shape.vocab + 31) / 32);
  support::set_if_zero(options.token_bitmask.batch_stride, shape.width());
  support::set_if_zero(options.stop_tokens.stride, options.stop_tokens_per_request);
  support::set_if_zero(options.mirror.token.stride, index_t{shape.depth} + 1);
}

void resolve(logits_view& logits, index_t columns, round_shape const& shape) {
  support::set_if_zero(logits.vocab, columns);
  support::set_if_zero(logits.row_stride, logits.vocab);
  support::set_if_zero(logits.batch_stride, shape.width());
}

/// accept_greedy and accept_sampled.
template <class Check, std::size_t N>
status accept_logits(support::variant<accept_logits_call> const (&table)[N], operation op,
                     accept_logits_call call) {
  status const bad = support::first_failure(
      check_round<Check>(call.ctx, call.shape, call.batch),
      check_tree<Check>(call.shape, call.tree), check_target<Check>(call.shape, call.target),
      check_sampling<Check>(call.batch, call.how), check_out<Check>(call.shape, call.out),
      check_limits<Check>(call.options), check_adjustments<Check>(call.shape, call.options),
      check_mirror<Check>(call.shape, call.batch, call.options.mirror));
  if (!bad) return bad;
  if (auto s = Check::scratch(call.scratch, support::workspace_of(table, call)); !s) return s;

  resolve(call.target, call.shape.vocab, call.shape);
  resolve(call.options, call.shape);
  return support::dispatch(table, op, call);
}

}  // namespace

status accept_tokens(context const& ctx, round_shape const& shape, batch_view const& batch,
                     draft_tree const& tree, ids_in target_token, accepted const& out,
                     accept_options const& options) noexcept {
  status const bad = support::first_failure(
      check_round<check_tokens>(ctx, shape, batch), check_tree<check_tokens>(shape, tree),
      shape.batch == 0 ? check_tokens::ids<"target_token">(target_token)
                       : check_tokens::bound_ids<"target_token">(target_token),
      check_out<check_tokens>(shape, out), check_given_tokens(out, options),
      check_limits<check_tokens>(options),
      check_mirror<check_tokens>(shape, batch, options.mirror));
  if (!bad) return bad;

  accept_tokens_call call{ctx, shape, batch, tree, target_token, out, options};
  support::set_if_zero(call.target_token.stride, shape.width());
  resolve(call.options, shape);
  return support::dispatch(accept_tokens_table, operation::accept_tokens, call);
}

std::size_t accept_greedy_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  return support::workspace_of(accept_greedy_table,
                               support::sized_call<accept_logits_call>(ctx, shape));
}

status accept_greedy(context const& ctx, round_shape const& shape, batch_view const& batch,
                     draft_tree const& tree, logits_view const& target, accepted const& out,
                     workspace scratch, accept_options const& options) noexcept {
  return accept_logits<check_greedy>(
      accept_greedy_table, operation::accept_greedy,
      {ctx, shape, batch, tree, target, sampling{}, out, scratch, options});
}

std::size_t accept_sampled_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  return support::workspace_of(accept_sampled_table,
                               support::sized_call<accept_logits_call>(ctx, shape));
}

status accept_sampled(context const& ctx, round_shape const& shape, batch_view const& batch,
                      draft_tree const& tree, logits_view const& target, sampling const& how,
                      accepted const& out, workspace scratch,
                      accept_options const& options) noexcept {
  return accept_logits<check_sampled>(
      accept_sampled_table, operation::accept_sampled,
      {ctx, shape, batch, tree, target, how, out, scratch, options});
}

std::size_t accept_shard_bytes(round_shape const& shape, sampling const& how,
                               accept_options const& options) noexcept {
  if (!support::is_valid(shape) || how.max_top_k < 0 || how.max_top_k > max_top_k) return 0;
  return rules::accept_layout(shape, how.max_top_k, options.shard_log_prob).bytes;
}

std::size_t accept_shard_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  return support::workspace_of(accept_shard_table,
                               support::sized_call<accept_shard_call>(ctx, shape));
}

status accept_shard(context const& ctx, round_shape const& shape, batch_view const& batch,
                    draft_tree const& tree, logits_view const& shard, vocab_ranges const& ranges,
                    sampling const& how, shard_out out, workspace scratch,
                    accept_options const& options) noexcept {
  status const bad = support::first_failure(
      check_round<check_shard>(ctx, shape, batch), check_shard_tree(shape, tree),
      support::check_shard_rows<check_shard>(shape.batch > 0, shard, ranges),
      support::check_ranges<check_shard>(ranges, shard.vocab, shape.vocab),
      check_sampling<check_shard>(batch, how), check_exchange<check_shard>(how),
      support::check_contribution<check_shard>(out, accept_shard_bytes(shape, how, options)),
      check_limits<check_shard>(options), check_adjustments<check_shard>(shape, options),
      check_shard::scratch(scratch, accept_shard_workspace_bytes(ctx, shape)));
  if (!bad) return bad;

  accept_shard_call call{ctx, shape, batch,   tree,   shard, support::used_ranges(ranges),
                         how, out,   scratch, options};
  resolve(call.shard, shard.vocab, shape);
  resolve(call.options, shape);
  return support::dispatch(accept_shard_table, operation::accept_shard, call);
}

std::size_t accept_merge_workspace_bytes(context const& ctx, round_shape const& shape,
                                         index_t ranks) noexcept {
  if (!support::is_valid(shape) || ranks < 1) return 0;
  auto call = support::sized_call<accept_merge_call>(ctx, shape);
  call.all_ranks.ranks = ranks;
  return support::workspace_of(accept_merge_table, call);
}

status accept_merge(context const& ctx, round_shape const& shape, batch_view const& batch,
                    draft_tree const& tree, shard_in const& all_ranks, sampling const& how,
                    accepted const& out, workspace scratch,
                    accept_options const& options) noexcept {
  std::size_t const bytes = accept_shard_bytes(shape, how, options);
  status const bad = support::first_failure(
      check_round<check_merge>(ctx, shape, batch), check_tree<check_merge>(shape, tree),
      support::check_all_ranks<check_merge>(all_ranks, bytes),
      check_sampling<check_merge>(batch, how), check_exchange<check_merge>(how),
      check_out<check_merge>(shape, out), check_limits<check_merge>(options),
      check_mirror<check_merge>(shape, batch, options.mirror),
      check_merge::scratch(scratch, accept_merge_workspace_bytes(ctx, shape, all_ranks.ranks)));
  if (!bad) return bad;
  if (out.log_prob != nullptr && !options.shard_log_prob) {
    return check_merge::fail<"out.log_prob without options.shard_log_prob">();
  }

  accept_merge_call call{ctx, shape, batch, tree, all_ranks, how, out, scratch, options};
  support::set_if_zero(call.all_ranks.rank_stride_bytes, static_cast<index_t>(bytes));
  resolve(call.options, shape);
  return support::dispatch(accept_merge_table, operation::accept_merge, call);
}

namespace api {

std::size_t list_accept(backend_kind backend, variant_info* out, std::size_t capacity,
                        std::size_t n) noexcept {
  n = support::list(accept_tokens_table, operation::accept_tokens, backend, out, capacity, n);
  n = support::list(accept_greedy_table, operation::accept_greedy, backend, out, capacity, n);
  n = support::list(accept_sampled_table, operation::accept_sampled, backend, out, capacity, n);
  n = support::list(accept_shard_table, operation::accept_shard, backend, out, capacity, n);
  return support::list(accept_merge_table, operation::accept_merge, backend, out, capacity, n);
}

char const* selected_accept(context const& ctx, operation op, round_shape const& shape) noexcept {
  switch (op) {
    case operation::accept_greedy:
      return support::name_of_choice(accept_greedy_table, op, ctx, shape);
    case operation::accept_sampled:
      return support::name_of_choice(accept_sampled_table, op, ctx, shape);
    case operation::accept_shard:
      return support::name_of_choice(accept_shard_table, op, ctx, shape);
    case operation::accept_merge:
      return support::name_of_choice(accept_merge_table, op, ctx, shape);
    default: return support::name_of_choice(accept_tokens_table, op, ctx, shape);
  }
}

}  // namespace api
}  // namespace v0
}  // namespace ddtree
