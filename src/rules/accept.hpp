// SPDX-License-Identifier: Apache-2.0
// What a rank contributes to an acceptance over vocabulary shards.
#pragma once

#include "ddtree/views.hpp"

#include "rules/hd.hpp"

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

// A contribution is up to nine arrays of 32-bit words (floats as their bits), one after the other,
// filled up to a multiple of 16 bytes. Here: the first word of each. A row is b * width + node; one
// beyond num_nodes or of an inactive request holds what an empty shard gives. Those of `log_prob`
// are there with accept_options::shard_log_prob only; y is the logit that log-probs are of.
struct accept_shard_layout {
  // float [rows], the largest key: the logit (after bias and bitmask) of a greedy request, z + g of
  // a sampled one. -inf where no logit is finite and where the request has filters.
  index_t best_key;
  // int32 [rows], its token, a global id. Where the key is -inf the lowest id of the shard: over
  // all ranks that is token 0. -1 for an empty shard.
  index_t best_id;
  index_t flags;  // uint32 [rows], target_nan or 0
  // For sampled requests with filters the best tokens by (logit descending, id ascending), then
  // (-inf, -1): float and int32 [rows, max_top_k].
  index_t top_logit;
  index_t top_id;
  // log_prob: max and sum of exp(y - max), -inf and 0 where no y is finite: float [rows].
  index_t max;
  index_t sum;
  index_t best_y;  // log_prob: y of best_id, float [rows], -inf for an empty shard
  index_t top_y;   // log_prob: y of top_id, float [rows, max_top_k]
  std::size_t bytes;
};

DDTREE_HD constexpr accept_shard_layout accept_layout(round_shape const& shape,
                                                      std::int32_t max_top_k,
                                                      bool log_prob) noexcept {
  index_t const rows = shape.batch * shape.width();
  index_t const slots = rows * max_top_k;
  index_t const top_logit = 3 * rows;
  index_t const max = top_logit + 2 * slots;
  index_t const best_y = max + 2 * rows;
  index_t const end = log_prob ? best_y + rows + slots : max;
  auto const bytes = static_cast<std::size_t>((end + 3) / 4 * 4) * 4;
  return {0,   rows,       2 * rows, top_logit,     top_logit + slots,
          max, max + rows, best_y,   best_y + rows, bytes};
}

/// One row of a contribution. `Word` is uint32, const where it is read.
template <class Word>
class accept_record {
 public:
  DDTREE_HD accept_record(accept_shard_layout const& layout, Word* words, index_t row,
                          index_t max_top_k)
      : at_(layout), words_(words), row_(row), max_top_k_(max_top_k) {}

  DDTREE_HD Word& best_key() const { return words_[at_.best_key + row_]; }
  DDTREE_HD Word& best_id() const { return words_[at_.best_id + row_]; }
  DDTREE_HD Word& flags() const { return words_[at_.flags + row_]; }
  DDTREE_HD Word& max() const { return words_[at_.max + row_]; }
  DDTREE_HD Word& sum() const { return words_[at_.sum + row_]; }
  DDTREE_HD Word& best_y() const { return words_[at_.best_y + row_]; }

  DDTREE_HD index_t max_top_k() const { return max_top_k_; }
  DDTREE_HD Word& top_logit(index_t rank) const { return words_[at_.top_logit + slot(rank)]; }
  DDTREE_HD Word& top_id(index_t rank) const { return words_[at_.top_id + slot(rank)]; }
  DDTREE_HD Word& top_y(index_t rank) const { return words_[at_.top_y + slot(rank)]; }

 private:
  DDTREE_HD index_t slot(index_t rank) const { return row_ * max_top_k_ + rank; }

  accept_shard_layout at_;
  Word* words_;
  index_t row_;
  index_t max_top_k_;
};

/// In the order of ids, on which equal logits depend; unused ranges last.
inline vocab_ranges in_order(vocab_ranges const& ranges) {
  vocab_range const& a = ranges.range[0];
  vocab_range const& b = ranges.range[1];
  bool const swaps = b.count > 0 && (a.count == 0 || b.global_begin < a.global_begin);
  return swaps ? vocab_ranges{{b, a}} : ranges;
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
