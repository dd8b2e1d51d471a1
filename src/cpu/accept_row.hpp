// SPDX-License-Identifier: Apache-2.0
// A row of target logits with everything that is applied on read.
#pragma once

#include "ddtree/accept.hpp"

#include "cpu/accept_draw.hpp"
#include "cpu/logits.hpp"
#include "cpu/top_k.hpp"
#include "rules/draw.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {

using rules::kind_of;
using rules::log_prob_kind;
using rules::log_prob_of;

/// A target row, or the columns of it that a rank has.
struct target_row {
  logits_row logits;
  vocab_ranges columns;          // by ascending id, empty ones last
  float const* bias;             // by id, null = off
  std::uint32_t const* allowed;  // bits by id, null = off

  /// The lowest id, -1 where there is none.
  token_t first_id() const {
    vocab_range const& first = columns.range[0];
    return first.count > 0 ? static_cast<token_t>(first.global_begin) : -1;
  }
  index_t count_columns() const { return columns.range[0].count + columns.range[1].count; }
};

/// The row of node `node` of the request in row b.
target_row find_target_row(logits_view const& view, vocab_ranges const& columns,
                           accept_options const& options, index_t request, index_t b, node_t node);

/// Collects the best k tokens of a row. Where k is most of the columns it puts all of them away and
/// selects at the end, so that the storage need not be twice as large.
class candidate_set {
 public:
  /// Keys of storage for any k.
  static constexpr index_t capacity(index_t columns) {
    return top_k_selection::capacity(0) + columns;
  }

  candidate_set(std::uint64_t* storage, index_t k, index_t columns);
  void add(logits_chunk const& x, index_t first_id);
  /// The best k or as many as there are, in any order.
  std::span<std::uint64_t> finish();

 private:
  std::uint64_t* keys_;
  index_t k_;
  index_t count_ = 0;
  bool takes_all_;
  top_k_selection selection_;
};

/// What one pass over a row finds.
struct row_scan {
  /// Of a rule without filters. The lowest id with the key -inf where no logit is finite.
  best_token best;
  bool met_nan = false;
  /// Of the logits that log-probs are of.
  rules::exp_sum sum;
};

/// Reads the row once. Where the rule has filters its tokens go to `candidates`, otherwise the best
/// one is kept. `position` is that of the token to be drawn.
row_scan scan(target_row const& row, draw_rule const& rule, index_t position, log_prob_kind kind,
              candidate_set& candidates);

/// The logit of a token that log-probs are of.
float logit_of(target_row const& row, index_t id, float r, log_prob_kind kind);

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
