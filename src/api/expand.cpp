// SPDX-License-Identifier: Apache-2.0
#include "ddtree/expand.hpp"

#include "api/tables.hpp"
#include "cpu/expand.hpp"
#include "rules/expand.hpp"
#include "support/calls.hpp"
#include "support/validate.hpp"
#include "support/validate_shard.hpp"
#include "support/variants.hpp"

#include <cstdint>

#if defined(DDTREE_WITH_CUDA)
#include "expand/expand.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using support::expand_call;
using support::expand_merge_call;
using support::expand_shard_call;

constexpr support::variant<expand_call> expand_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::expand_workspace, cpu::expand},
#if defined(DDTREE_WITH_CUDA)
    {"sm90_cluster", backend_kind::cuda, cuda::can_expand_cluster, cuda::prefers_expand_cluster,
     cuda::expand_stream_workspace, cuda::expand_cluster},
    {"stream", backend_kind::cuda, nullptr, cuda::prefers_expand_stream,
     cuda::expand_stream_workspace, cuda::expand_stream},
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::expand},
#endif
};

constexpr support::variant<expand_shard_call> expand_shard_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::expand_shard_workspace, cpu::expand_shard},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::expand_shard},
#endif
};

constexpr support::variant<expand_merge_call> expand_merge_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::expand_merge_workspace, cpu::expand_merge},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::expand_merge},
#endif
};

using check_expand = support::check<"expand">;
using check_shard = support::check<"expand_shard">;
using check_merge = support::check<"expand_merge">;

bool has_rows(round_shape const& shape) { return shape.batch > 0 && shape.depth > 0; }

/// What expand and expand_merge write. Arrays without elements may be null.
template <class Check>
status check_out(round_shape const& shape, candidates const& out) {
  if (has_rows(shape)) {
    if (auto s = Check::template bound<"out.token">(out.token); !s) return s;
    if (auto s = Check::template bound<"out.log_prob">(out.log_prob); !s) return s;
  }
  if (shape.batch == 0) return {};
  return Check::template bound<"out.flags">(out.flags);
}

status check_draft(round_shape const& shape, logits_view const& draft,
                   expand_options const& options) {
  if (has_rows(shape) && draft.data == nullptr) return check_expand::fail<"draft.data is null">();
  if (!support::is_float(draft.type)) {
    return check_expand::fail<"draft.type is not f32, f16 or bf16">();
  }
  if (draft.vocab < 0 || draft.vocab > max_vocab) {
    return check_expand::fail<"draft.vocab outside [0, 4194304]">();
  }
  bool const mapped = options.vocab_map.data != nullptr;
  index_t const columns = draft.vocab > 0 ? draft.vocab : shape.vocab;
  if (!mapped && columns < shape.vocab) return check_expand::fail<"draft.vocab < shape.vocab">();
  if (mapped && columns < options.draft_vocab) {
    return check_expand::fail<"draft.vocab < options.draft_vocab">();
  }
  if (draft.row_stride < 0 || (draft.row_stride > 0 && draft.row_stride < columns)) {
    return check_expand::fail<"draft.row_stride shorter than a row">();
  }
  if (draft.batch_stride < 0) return check_expand::fail<"draft.batch_stride < 0">();
  return check_expand::ids<"draft.row_offset">(draft.row_offset);
}

template <class Check>
status check_options(expand_options const& options) {
  if (options.draft_vocab < 0 || options.draft_vocab > max_vocab) {
    return Check::template fail<"options.draft_vocab outside [0, 4194304]">();
  }
  return Check::template ids<"options.vocab_map">(options.vocab_map);
}

/// For calls that do not see the draft logits whole.
template <class Check>
status check_draft_vocab(expand_options const& options) {
  if (options.vocab_map.data == nullptr || options.draft_vocab > 0) return {};
  return Check::template fail<"options.draft_vocab is not given">();
}

}  // namespace

std::size_t expand_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  return support::workspace_of(expand_table, support::sized_call<expand_call>(ctx, shape));
}

status expand(context const& ctx, round_shape const& shape, batch_view const& batch,
              logits_view const& draft, candidates const& out, workspace scratch,
              expand_options const& options) noexcept {
  status const bad = support::first_failure(
      check_expand::context(ctx), check_expand::shape(shape), check_expand::batch(batch),
      check_options<check_expand>(options), check_draft(shape, draft, options),
      check_out<check_expand>(shape, out),
      check_expand::scratch(scratch, expand_workspace_bytes(ctx, shape)));
  if (!bad) return bad;

  expand_call call{ctx, shape, batch, draft, out, scratch, options};
  support::set_if_zero(call.draft.vocab, shape.vocab);
  support::set_if_zero(call.draft.row_stride, call.draft.vocab);
  support::set_if_zero(call.draft.batch_stride, shape.depth);
  // With a map all columns of the call are draft ids.
  if (options.vocab_map.data != nullptr && options.draft_vocab > 0) {
    call.draft.vocab = options.draft_vocab;
  }
  return support::dispatch(expand_table, operation::expand, call);
}

std::size_t expand_shard_bytes(round_shape const& shape) noexcept {
  return support::is_valid(shape) ? rules::expand_layout(shape).bytes : 0;
}

std::size_t expand_shard_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  return support::workspace_of(expand_shard_table,
                               support::sized_call<expand_shard_call>(ctx, shape));
}

status expand_shard(context const& ctx, round_shape const& shape, batch_view const& batch,
                    logits_view const& shard, vocab_ranges const& ranges, shard_out out,
                    workspace scratch, expand_options const& options) noexcept {
  status const bad = support::first_failure(
      check_shard::context(ctx), check_shard::shape(shape), check_shard::batch(batch),
      check_options<check_shard>(options), check_draft_vocab<check_shard>(options),
      support::check_shard_rows<check_shard>(has_rows(shape), shard, ranges),
      support::check_ranges<check_shard>(ranges, shard.vocab,
                                         rules::draft_ids(options, shape.vocab)),
      support::check_contribution<check_shard>(out, expand_shard_bytes(shape)),
      check_shard::scratch(scratch, expand_shard_workspace_bytes(ctx, shape)));
  if (!bad) return bad;

  expand_shard_call call{ctx, shape,   batch,  shard, support::used_ranges(ranges),
                         out, scratch, options};
  support::set_if_zero(call.shard.row_stride, shard.vocab);
  support::set_if_zero(call.shard.batch_stride, shape.depth);
  return support::dispatch(expand_shard_table, operation::expand_shard, call);
}

std::size_t expand_merge_workspace_bytes(context const& ctx, round_shape const& shape,
                                         index_t ranks) noexcept {
  if (!support::is_valid(shape) || ranks < 1) return 0;
  auto call = support::sized_call<expand_merge_call>(ctx, shape);
  call.all_ranks.ranks = ranks;
  return support::workspace_of(expand_merge_table, call);
}

status expand_merge(context const& ctx, round_shape const& shape, batch_view const& batch,
                    shard_in const& all_ranks, candidates const& out, workspace scratch,
                    expand_options const& options) noexcept {
  status const bad = support::first_failure(
      check_merge::context(ctx), check_merge::shape(shape), check_merge::batch(batch),
      check_options<check_merge>(options), check_draft_vocab<check_merge>(options),
      support::check_all_ranks<check_merge>(all_ranks, expand_shard_bytes(shape)),
      check_out<check_merge>(shape, out),
      check_merge::scratch(scratch, expand_merge_workspace_bytes(ctx, shape, all_ranks.ranks)));
  if (!bad) return bad;

  expand_merge_call call{ctx, shape, batch, all_ranks, out, scratch, options};
  support::set_if_zero(call.all_ranks.rank_stride_bytes,
                       static_cast<index_t>(expand_shard_bytes(shape)));
  return support::dispatch(expand_merge_table, operation::expand_merge, call);
}

namespace api {

std::size_t list_expand(backend_kind backend, variant_info* out, std::size_t capacity,
                        std::size_t n) noexcept {
  n = support::list(expand_table, operation::expand, backend, out, capacity, n);
  n = support::list(expand_shard_table, operation::expand_shard, backend, out, capacity, n);
  return support::list(expand_merge_table, operation::expand_merge, backend, out, capacity, n);
}

char const* selected_expand(context const& ctx, operation op, round_shape const& shape) noexcept {
  switch (op) {
    case operation::expand_shard:
      return support::name_of_choice(expand_shard_table, op, ctx, shape);
    case operation::expand_merge:
      return support::name_of_choice(expand_merge_table, op, ctx, shape);
    default: return support::name_of_choice(expand_table, op, ctx, shape);
  }
}

}  // namespace api
}  // namespace v0
}  // namespace ddtree
