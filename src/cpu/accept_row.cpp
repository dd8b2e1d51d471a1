// SPDX-License-Identifier: Apache-2.0
#include "cpu/accept_row.hpp"

#include "cpu/log_sum_exp.hpp"
#include "rules/math.hpp"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <algorithm>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

/// Adds the bias and forbids what the bitmask does, for `count` sanitised logits from first_id on.
void adjust(target_row const& row, index_t first_id, index_t count, logits_chunk& x) {
  if (row.bias != nullptr) {
    for (index_t i = 0; i < count; ++i) {
      float const bias = row.bias[first_id + i];
      x.value[i] = rules::sanitize(rules::add(x.value[i], bias == bias ? bias : 0.0f));
    }
  }
  if (row.allowed != nullptr) {
    for (index_t i = 0; i < count; ++i) {
      index_t const id = first_id + i;
      if ((row.allowed[id / 32] >> (id % 32) & 1u) == 0) x.value[i] = rules::minus_infinity;
    }
  }
}

void offer_largest(logits_chunk const& x, index_t first_id, best_token& best) {
  float const largest = maximum(find_maxima(x));
  if (!(largest > best.key)) return;
  index_t const i = std::find(x.value, x.value + logits_chunk::size, largest) - x.value;
  best.offer(largest, static_cast<token_t>(first_id + i));
}

void add_exp_sum(logits_chunk const& y, exp_sum_stack& sum) {
  sum.add(take_exp_sum(y, maximum(find_maxima(y))));
}

}  // namespace

target_row find_target_row(logits_view const& view, vocab_ranges const& columns,
                           accept_options const& options, index_t request, index_t b, node_t node) {
  target_row row{};
  row.columns = columns;
  // A rank without columns need not have logits either.
  if (columns.range[0].count > 0) row.logits = find_logits(view, b, node);
  if (options.logit_bias != nullptr) {
    row.bias = options.logit_bias + request * options.logit_bias_stride;
  }
  bitmask_view const& mask = options.token_bitmask;
  if (mask.data != nullptr) {
    row.allowed = mask.data + rules::row_index(mask, b, node) * mask.row_stride;
  }
  return row;
}

candidate_set::candidate_set(std::uint64_t* storage, index_t k, index_t columns)
    : keys_(storage), k_(k), takes_all_(2 * k > columns), selection_(storage, k) {}

void candidate_set::add(logits_chunk const& x, index_t first_id) {
  if (!takes_all_) return selection_.add(x, find_maxima(x), first_id);
  for (index_t i = 0; i < logits_chunk::size; ++i) {
    if (x.value[i] == rules::minus_infinity) continue;
    keys_[count_++] = rules::candidate_key(x.value[i], static_cast<std::uint32_t>(first_id + i));
  }
}

std::span<std::uint64_t> candidate_set::finish() {
  if (!takes_all_) {
    count_ = static_cast<index_t>(selection_.finish().size());
  } else if (count_ > k_) {
    std::nth_element(keys_, keys_ + k_, keys_ + count_, std::greater<>());
    count_ = k_;
  }
  return {keys_, static_cast<std::size_t>(count_)};
}

row_scan scan(target_row const& row, draw_rule const& rule, index_t position, log_prob_kind kind,
              candidate_set& candidates) {
  row_scan found;
  found.best.id = row.first_id();
  bool const has_noise = !rule.is_greedy && !rule.has_filter;
  exp_sum_stack sum;
  logits_chunk x;
  for (vocab_range const& range : row.columns.range) {
    for (index_t at = 0; at < range.count; at += logits_chunk::size) {
      index_t const id = range.global_begin + at;
      if (load(row.logits, range.local_begin + at, range.local_begin + range.count, x)) {
        found.met_nan = sanitize(x);
      }
      if (kind == log_prob_kind::given) add_exp_sum(x, sum);
      adjust(row, id, std::min(range.count - at, logits_chunk::size), x);
      if (rule.is_greedy) offer_largest(x, id, found.best);
      if (rule.has_filter) candidates.add(x, id);
      if (!has_noise && kind != log_prob_kind::processed) continue;
      scale(x, rule.r);
      if (kind == log_prob_kind::processed) add_exp_sum(x, sum);
      if (has_noise) offer_with_noise(x, id, rule, position, found.best);
    }
  }
  found.sum = sum.total();
  return found;
}

float logit_of(target_row const& row, index_t id, float r, log_prob_kind kind) {
  for (vocab_range const& range : row.columns.range) {
    index_t const at = id - range.global_begin;
    if (at < 0 || at >= range.count) continue;
    logits_chunk x;
    if (load(row.logits, range.local_begin + at, range.local_begin + at + 1, x)) sanitize(x);
    if (kind == log_prob_kind::given) return x.value[0];
    adjust(row, id, 1, x);
    return rules::scaled(x.value[0], r);
  }
  return rules::minus_infinity;
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
