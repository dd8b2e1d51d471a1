// SPDX-License-Identifier: Apache-2.0
#include "cpu/expand.hpp"

#include "cpu/log_sum_exp.hpp"
#include "cpu/logits.hpp"
#include "cpu/top_k.hpp"
#include "rules/expand.hpp"
#include "rules/views.hpp"
#include "support/carve.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

/// Working memory: flags by row, so that threads share no word, and a part for each worker.
struct expand_memory {
  std::uint32_t* row_flags;  // [batch, depth]
  logits_chunk* chunk;       // [workers]
  std::uint64_t* keys;       // [workers, top_k_selection::capacity]
  std::size_t bytes;
};

expand_memory carve(support::carver from, context const& ctx, round_shape const& shape) {
  index_t const rows = shape.batch * shape.depth;
  index_t const threads = std::clamp(ctx.threads, 1, support::max_threads);
  index_t const workers = std::min(threads, rows);
  expand_memory memory{};
  memory.row_flags = from.take<std::uint32_t>(rows);
  memory.chunk = from.take<logits_chunk>(workers);
  memory.keys = from.take<std::uint64_t>(workers * top_k_selection::capacity(shape.top_k));
  memory.bytes = from.bytes();
  return memory;
}

/// One row (b, i) to work on, and the means of the worker that does.
struct row_task {
  index_t b;
  index_t i;
  rules::batch_row request;
  logits_chunk& chunk;
  top_k_selection& best;  // empty at first
};

/// Calls body(row_task) for every row, spread over threads, and keeps the flags that it returns.
template <class Call, class Body>
void for_each_row(Call const& call, expand_memory const& memory, Body body) {
  round_shape const& shape = call.shape;
  support::parallel_for(
      call.ctx.threads, shape.batch * shape.depth, [&](index_t row, std::int32_t worker) {
        index_t const b = row / shape.depth;
        top_k_selection best(memory.keys + worker * top_k_selection::capacity(shape.top_k),
                             shape.top_k);
        memory.row_flags[row] = body(row_task{b, row % shape.depth,
                                              rules::find_row(call.batch, shape.request_rows(), b),
                                              memory.chunk[worker], best});
      });
}

/// The flags of all rows of a request.
std::uint32_t gather_flags(expand_memory const& memory, round_shape const& shape, index_t b) {
  std::uint32_t flags = 0;
  for (index_t i = 0; i < shape.depth; ++i) flags |= memory.row_flags[b * shape.depth + i];
  return flags;
}

/// The rows that expand and expand_shard read, and which ids their columns are.
struct draft_rows {
  logits_view view;
  vocab_ranges ranges;  // in the order of ids, on which equal logits depend
  ids_in map;
  index_t vocab;  // the target's
};

/// Lets the logits of draft ids without a counterpart count as -inf. Returns whether an entry of
/// the map was out of range.
bool leave_out_unmapped(draft_rows const& draft, index_t first_id, index_t count, logits_chunk& x) {
  bool met = false;
  for (index_t i = 0; i < count; ++i) {
    index_t const token = rules::load_id(draft.map, first_id + i);
    if (token >= 0 && token < draft.vocab) continue;
    x.value[i] = rules::minus_infinity;
    met = met || token != -1;
  }
  return met;
}

struct row_summary {
  rules::exp_sum sum;  // of exp(x * r)
  std::uint32_t flags = 0;
};

/// Reads a row once: its candidates go into the task's selection.
row_summary read_row(draft_rows const& draft, row_task const& task, float r) {
  row_summary result;
  if (!task.request.active) return result;
  logits_chunk& chunk = task.chunk;
  exp_sum_stack sums;
  for (vocab_range const& range : draft.ranges.range) {
    // A rank without columns need not have logits either.
    if (range.count == 0) continue;
    logits_row const row = find_logits(draft.view, task.b, task.i);
    for (index_t at = 0; at < range.count; at += logits_chunk::size) {
      index_t const count = std::min(range.count - at, logits_chunk::size);
      index_t const first_id = range.global_begin + at;
      bool const met = load(row, range.local_begin + at, range.local_begin + range.count, chunk);
      if (draft.map.data != nullptr && leave_out_unmapped(draft, first_id, count, chunk)) {
        result.flags |= flag::id_out_of_range;
      }
      if (met && sanitize(chunk)) result.flags |= flag::draft_nan;
      packet_maxima const maxima = find_maxima(chunk);
      task.best.add(chunk, maxima, first_id);
      scale(chunk, r);
      sums.add(take_exp_sum(chunk, rules::scaled(maximum(maxima), r)));
    }
  }
  result.sum = sums.total();
  return result;
}

/// 1 / temperature of a row's request.
float reciprocal_temperature(expand_options const& options, row_task const& task) {
  bool const by_request = options.temperature_by_request != nullptr && task.request.active;
  return rules::reciprocal_temperature(
      by_request ? options.temperature_by_request[task.request.request] : options.temperature);
}

/// Writes the row of an expand or expand_merge from what was selected. Returns flags.
template <class Call>
std::uint32_t write_candidates(Call const& call, row_task const& task, float r,
                               rules::exp_sum const& sum) {
  ids_in const& map = call.options.vocab_map;
  index_t const top_k = call.shape.top_k;
  index_t const first = (task.b * call.shape.depth + task.i) * top_k;
  token_t* const out_token = call.out.token + first;
  float* const out_log_prob = call.out.log_prob + first;
  float const lse = rules::log_sum_exp(sum);
  float before = 0.0f;
  std::uint32_t flags = 0;
  index_t rank = 0;
  for (std::uint64_t const key : task.best.finish()) {
    index_t const id = rules::candidate_id(key);
    index_t const token = map.data != nullptr ? rules::load_id(map, id) : id;
    bool const in_range = token >= 0 && token < call.shape.vocab;
    float log_prob = rules::log_prob(rules::candidate_logit(key), r, lse);
    if (call.options.bias != nullptr) {
      log_prob = rules::biased(log_prob, call.options.bias[task.i * top_k + rank], before);
    }
    out_token[rank] = in_range ? static_cast<token_t>(token) : 0;
    out_log_prob[rank] = log_prob;
    before = log_prob;
    if (!in_range) flags = flag::id_out_of_range;
    ++rank;
  }
  std::fill(out_token + rank, out_token + top_k, 0);
  std::fill(out_log_prob + rank, out_log_prob + top_k, rules::minus_infinity);
  return flags;
}

/// Writes the row of an expand_shard.
void contribute(support::expand_shard_call const& call, row_task const& task,
                rules::exp_sum const& sum) {
  rules::expand_shard_layout const at = rules::expand_layout(call.shape);
  auto* const floats = static_cast<float*>(call.out.data);
  auto* const ids = static_cast<std::int32_t*>(call.out.data);
  index_t const row = task.b * call.shape.depth + task.i;
  index_t slot = row * call.shape.top_k;
  index_t const end = slot + call.shape.top_k;
  for (std::uint64_t const key : task.best.finish()) {
    floats[at.logit + slot] = rules::candidate_logit(key);
    ids[at.id + slot] = static_cast<std::int32_t>(rules::candidate_id(key));
    ++slot;
  }
  std::fill(floats + at.logit + slot, floats + at.logit + end, rules::minus_infinity);
  std::fill(ids + at.id + slot, ids + at.id + end, 0);
  floats[at.max + row] = sum.max;
  floats[at.sum + row] = sum.sum;
}

/// The contribution of a rank, in elements of T.
template <class T>
T const* contribution(support::expand_merge_call const& call, index_t rank) {
  auto const* const bytes = static_cast<unsigned char const*>(call.all_ranks.data);
  return reinterpret_cast<T const*>(bytes + rank * call.all_ranks.rank_stride_bytes);
}

/// Takes a row from all ranks: their candidates go into the task's selection. A list ends at its
/// first -inf (or at NaN or an id out of range, in a contribution that was damaged on its way).
row_summary merge_row(support::expand_merge_call const& call, row_task const& task) {
  rules::expand_shard_layout const at = rules::expand_layout(call.shape);
  index_t const id_end = rules::draft_ids(call.options, call.shape.vocab);
  row_summary result;
  if (!task.request.active) return result;
  index_t const row = task.b * call.shape.depth + task.i;
  index_t const end = (row + 1) * call.shape.top_k;
  for (index_t rank = 0; rank < call.all_ranks.ranks; ++rank) {
    auto const* const floats = contribution<float>(call, rank);
    auto const* const ids = contribution<std::int32_t>(call, rank);
    for (index_t slot = row * call.shape.top_k; slot < end; ++slot) {
      float const logit = floats[at.logit + slot];
      std::int32_t const id = ids[at.id + slot];
      if (!(logit > rules::minus_infinity)) break;
      if (id < 0 || id >= id_end) {
        result.flags |= flag::id_out_of_range;
        break;
      }
      task.best.add(rules::candidate_key(logit, static_cast<std::uint32_t>(id)));
    }
    result.sum = rules::merge(result.sum, {floats[at.max + row], floats[at.sum + row]});
  }
  return result;
}

}  // namespace

std::size_t expand_workspace(support::expand_call const& call) noexcept {
  return carve({}, call.ctx, call.shape).bytes;
}

std::size_t expand_shard_workspace(support::expand_shard_call const& call) noexcept {
  return carve({}, call.ctx, call.shape).bytes;
}

std::size_t expand_merge_workspace(support::expand_merge_call const& call) noexcept {
  return carve({}, call.ctx, call.shape).bytes;
}

status expand(support::expand_call const& call) noexcept {
  expand_memory const memory = carve(support::carver(call.scratch), call.ctx, call.shape);
  ids_in const& map = call.options.vocab_map;
  index_t const columns = map.data != nullptr ? call.draft.vocab : call.shape.vocab;
  draft_rows const draft{call.draft, {{{0, columns, 0}, {}}}, map, call.shape.vocab};
  for_each_row(call, memory, [&](row_task const& task) {
    float const r = reciprocal_temperature(call.options, task);
    row_summary const row = read_row(draft, task, r);
    return row.flags | write_candidates(call, task, r, row.sum);
  });
  for (index_t b = 0; b < call.shape.batch; ++b) {
    call.out.flags[b] = gather_flags(memory, call.shape, b);
  }
  return {};
}

status expand_shard(support::expand_shard_call const& call) noexcept {
  expand_memory const memory = carve(support::carver(call.scratch), call.ctx, call.shape);
  draft_rows draft{call.shard, call.ranges, call.options.vocab_map, call.shape.vocab};
  if (draft.ranges.range[1].global_begin < draft.ranges.range[0].global_begin) {
    std::swap(draft.ranges.range[0], draft.ranges.range[1]);
  }
  for_each_row(call, memory, [&](row_task const& task) {
    row_summary const row = read_row(draft, task, reciprocal_temperature(call.options, task));
    contribute(call, task, row.sum);
    return row.flags;
  });
  auto* const flags =
      static_cast<std::uint32_t*>(call.out.data) + rules::expand_layout(call.shape).flags;
  for (index_t b = 0; b < call.shape.batch; ++b) flags[b] = gather_flags(memory, call.shape, b);
  return {};
}

status expand_merge(support::expand_merge_call const& call) noexcept {
  expand_memory const memory = carve(support::carver(call.scratch), call.ctx, call.shape);
  for_each_row(call, memory, [&](row_task const& task) {
    row_summary const row = merge_row(call, task);
    return row.flags |
           write_candidates(call, task, reciprocal_temperature(call.options, task), row.sum);
  });
  index_t const flags = rules::expand_layout(call.shape).flags;
  for (index_t b = 0; b < call.shape.batch; ++b) {
    call.out.flags[b] = gather_flags(memory, call.shape, b);
    if (!rules::find_row(call.batch, call.shape.request_rows(), b).active) continue;
    for (index_t rank = 0; rank < call.all_ranks.ranks; ++rank) {
      call.out.flags[b] |=
          contribution<std::uint32_t>(call, rank)[flags + b] & rules::contributed_flags;
    }
  }
  return {};
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
