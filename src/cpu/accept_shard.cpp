// SPDX-License-Identifier: Apache-2.0
// Acceptance over vocabulary shards: what one rank finds in its columns, and the walk over what all
// ranks found.
#include "cpu/accept.hpp"
#include "cpu/accept_draw.hpp"
#include "cpu/accept_row.hpp"
#include "cpu/accept_walk.hpp"
#include "rules/accept.hpp"
#include "rules/dtype_convert.hpp"
#include "support/carve.hpp"
#include "support/parallel.hpp"

#include <algorithm>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

using rules::accept_shard_layout;
using rules::exchanged_top_k;
using rules::float_bits;
using rules::float_from_bits;

index_t rows_of(round_shape const& shape) { return shape.batch * shape.width(); }

/// Keys of storage for the best tokens of a rank, whatever max_top_k is.
index_t shard_slice(round_shape const& shape) {
  return candidate_set::capacity(std::min<index_t>(shape.vocab, 2 * max_top_k));
}
constexpr index_t merge_slice = top_k_selection::capacity(max_top_k);

using record_out = rules::accept_record<std::uint32_t>;
using record_in = rules::accept_record<std::uint32_t const>;

/// What an empty shard gives.
void clear(record_out const& record, bool with_log_prob) {
  std::uint32_t const nothing = float_bits(rules::minus_infinity);
  auto const no_id = static_cast<std::uint32_t>(-1);
  record.best_key() = nothing;
  record.best_id() = no_id;
  record.flags() = 0;
  if (with_log_prob) {
    record.max() = nothing;
    record.sum() = float_bits(0.0f);
    record.best_y() = nothing;
  }
  for (index_t rank = 0; rank < record.max_top_k(); ++rank) {
    record.top_logit(rank) = nothing;
    record.top_id(rank) = no_id;
    if (with_log_prob) record.top_y(rank) = nothing;
  }
}

/// Reads a row of a rank's columns and writes its record, which is clear.
void contribute(support::accept_shard_call const& call, target_row const& row,
                draw_rule const& rule, index_t position, std::uint64_t* keys,
                record_out const& record) {
  log_prob_kind const kind = kind_of(call.options, call.options.shard_log_prob);
  candidate_set candidates(keys, exchanged_top_k(rule, call.how), row.count_columns());
  row_scan const found = scan(row, rule, position, kind, candidates);
  record.best_key() = float_bits(found.best.key);
  record.best_id() = static_cast<std::uint32_t>(found.best.id);
  record.flags() = found.met_nan ? flag::target_nan : 0;
  if (kind != log_prob_kind::none) {
    record.max() = float_bits(found.sum.max);
    record.sum() = float_bits(found.sum.sum);
    record.best_y() = float_bits(logit_of(row, found.best.id, rule.r, kind));
  }
  if (!rule.has_filter) return;
  index_t rank = 0;
  for (std::uint64_t const key : candidates.finish()) {
    std::uint32_t const id = rules::candidate_id(key);
    record.top_logit(rank) = float_bits(rules::candidate_logit(key));
    record.top_id(rank) = id;
    if (kind != log_prob_kind::none) {
      record.top_y(rank) = float_bits(logit_of(row, id, rule.r, kind));
    }
    ++rank;
  }
}

/// One row of all contributions. They may have been damaged on their way: no id is trusted.
class gathered_row {
 public:
  gathered_row(support::accept_merge_call const& call, index_t row)
      : call_(call),
        layout_(rules::accept_layout(call.shape, call.how.max_top_k, call.options.shard_log_prob)),
        row_(row) {}

  /// Calls body(record) for every rank, in order.
  template <class Body>
  void for_each_rank(Body body) const {
    auto const* data = static_cast<unsigned char const*>(call_.all_ranks.data);
    for (index_t rank = 0; rank < call_.all_ranks.ranks; ++rank) {
      auto const* const words = reinterpret_cast<std::uint32_t const*>(data);
      body(record_in(layout_, words, row_, call_.how.max_top_k));
      data += call_.all_ranks.rank_stride_bytes;
    }
  }

  /// Calls body(record, rank in its list) for every candidate.
  template <class Body>
  void for_each_candidate(Body body) const {
    for_each_rank([&](record_in const& record) {
      for (index_t rank = 0; rank < record.max_top_k(); ++rank) {
        if (is_token(record.top_id(rank))) body(record, rank);
      }
    });
  }

  bool is_token(std::uint32_t id) const { return index_t{id} < call_.shape.vocab; }

 private:
  support::accept_merge_call const& call_;
  accept_shard_layout layout_;
  index_t row_;
};

/// What the ranks found on the whole row.
struct merged_row {
  best_token best;
  float best_y = rules::minus_infinity;
  rules::exp_sum sum;
  std::uint32_t flags = 0;
};

merged_row merge_row(gathered_row const& row, bool with_log_prob) {
  merged_row merged;
  row.for_each_rank([&](record_in const& record) {
    merged.flags |= record.flags() & flag::target_nan;
    if (with_log_prob) {
      merged.sum =
          rules::merge(merged.sum, {float_from_bits(record.max()), float_from_bits(record.sum())});
    }
    if (!row.is_token(record.best_id())) return;
    auto const id = static_cast<token_t>(record.best_id());
    merged.best.offer(rules::sanitize(float_from_bits(record.best_key())), id);
    if (with_log_prob && merged.best.id == id) merged.best_y = float_from_bits(record.best_y());
  });
  return merged;
}

/// The best top_k of all ranks' candidates.
std::span<std::uint64_t> select_candidates(gathered_row const& row, index_t top_k,
                                           std::uint64_t* keys) {
  top_k_selection best(keys, top_k);
  row.for_each_candidate([&](record_in const& record, index_t rank) {
    float const logit = rules::sanitize(float_from_bits(record.top_logit(rank)));
    if (logit != rules::minus_infinity) {
      best.add(rules::candidate_key(logit, record.top_id(rank)));
    }
  });
  return {keys, best.finish().size()};
}

/// y of a candidate.
float find_y(gathered_row const& row, token_t id) {
  float y = rules::minus_infinity;
  row.for_each_candidate([&](record_in const& record, index_t rank) {
    if (record.top_id(rank) == static_cast<std::uint32_t>(id)) {
      y = float_from_bits(record.top_y(rank));
    }
  });
  return y;
}

/// The target's token at a node. `keys` is storage for candidates.
target_token from_records(support::accept_merge_call const& call, draw_rule const& rule,
                          gathered_row const& row, index_t position, std::uint64_t* keys) {
  bool const with_log_prob = call.out.log_prob != nullptr;
  merged_row const merged = merge_row(row, with_log_prob);
  target_token target;
  target.flags = merged.flags;
  target.token = std::max(merged.best.id, token_t{0});
  target.can_match = merged.best.key > rules::minus_infinity;
  float y = merged.best_y;
  if (rule.has_filter) {
    index_t const top_k = exchanged_top_k(rule, call.how);
    if (top_k < rule.top_k) target.flags |= flag::top_k_limited;
    std::span<std::uint64_t> const candidates = select_candidates(row, top_k, keys);
    target.can_match = !candidates.empty();
    if (!candidates.empty()) {
      target.token = draw(candidates, rule, position);
      if (with_log_prob) y = find_y(row, target.token);
    }
  }
  if (with_log_prob) target.log_prob = log_prob_of(y, merged.sum);
  return target;
}

}  // namespace

status accept_shard(support::accept_shard_call const& call) noexcept {
  index_t const width = call.shape.width();
  index_t const slice = shard_slice(call.shape);
  support::carver memory(call.scratch);
  auto* const keys = memory.take<std::uint64_t>(
      slice * support::count_workers(call.ctx.threads, rows_of(call.shape)));
  bool const with_log_prob = call.options.shard_log_prob;
  accept_shard_layout const layout =
      rules::accept_layout(call.shape, call.how.max_top_k, with_log_prob);
  auto* const words = static_cast<std::uint32_t*>(call.out.data);
  vocab_ranges const columns = rules::in_order(call.ranges);
  support::parallel_for(
      call.ctx.threads, rows_of(call.shape), [&](index_t at, std::int32_t worker) {
        record_out const record(layout, words, at, call.how.max_top_k);
        clear(record, with_log_prob);
        index_t const b = at / width;
        auto const node = static_cast<node_t>(at % width);
        rules::batch_row const request = find_accept_row(call, b).at;
        if (!request.active || node >= count_nodes(call.tree, call.shape, b)) return;
        target_row const row =
            find_target_row(call.shard, columns, call.options, request.request, b, node);
        draw_rule const rule = find_rule(call.how, request.request, call.shape.vocab);
        contribute(call, row, rule, request.cache_len + call.tree.depth[at] + 1,
                   keys + worker * slice, record);
      });
  return {};
}

std::size_t accept_shard_workspace(support::accept_shard_call const& call) noexcept {
  support::carver count;
  count.take<std::uint64_t>(shard_slice(call.shape) *
                            support::count_workers(call.ctx.threads, rows_of(call.shape)));
  return count.bytes();
}

status accept_merge(support::accept_merge_call const& call) noexcept {
  support::carver memory(call.scratch);
  auto* const keys = memory.take<std::uint64_t>(
      merge_slice * support::count_workers(call.ctx.threads, call.shape.batch));
  support::parallel_for(call.ctx.threads, call.shape.batch, [&](index_t b, std::int32_t worker) {
    accept_request(call, b, [&](rules::batch_row const& at, node_t node, std::int32_t depth) {
      draw_rule const rule = find_rule(call.how, at.request, call.shape.vocab);
      gathered_row const row(call, b * call.shape.width() + node);
      return from_records(call, rule, row, at.cache_len + depth + 1, keys + worker * merge_slice);
    });
  });
  return {};
}

std::size_t accept_merge_workspace(support::accept_merge_call const& call) noexcept {
  support::carver count;
  count.take<std::uint64_t>(merge_slice *
                            support::count_workers(call.ctx.threads, call.shape.batch));
  return count.bytes();
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
