// SPDX-License-Identifier: Apache-2.0
// A row of logits, read in chunks of floats that stay in the first-level cache.
#pragma once

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cpu {

/// Consecutive logits as floats. Always full: a row's last chunk is filled up with -inf, which is
/// never selected and weighs nothing. So loops over a chunk have a fixed length and vectorise well,
/// and what a row gives depends on nothing but the row.
struct logits_chunk {
  static constexpr index_t size = 1024;
  float value[size];
};

/// A row of logits in the caller's memory; data points at column 0.
struct logits_row {
  void const* data;
  dtype type;
};

/// Row (b, i) of a view whose strides are resolved.
logits_row find_logits(logits_view const& view, index_t b, index_t i);

/// Columns begin, begin + 1, ... of a row as they stand: up to column end, at most a chunk of them.
/// Returns whether one is NaN or +inf.
bool load(logits_row const& row, index_t begin, index_t end, logits_chunk& out);

/// Lets NaN count as -inf and +inf as the largest finite float. Returns whether there was any.
bool sanitize(logits_chunk& x);

/// The largest logits of a sanitised chunk by packet: packet j is the elements j, j + count,
/// j + 2 * count and so on, so that finding the maxima vectorises.
struct packet_maxima {
  static constexpr index_t count = 64;
  static constexpr index_t packet_size = logits_chunk::size / count;
  float value[count];
};

packet_maxima find_maxima(logits_chunk const& x);

/// The largest logit of the chunk.
float maximum(packet_maxima max);

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
