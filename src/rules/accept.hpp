// SPDX-License-Identifier: Apache-2.0
// What a rank contributes to an acceptance over vocabulary shards.
#pragma once

#include "ddtree/views.hpp"

#include "rules/hd.hpp"

#include <cstddef>

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

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
