// SPDX-License-Identifier: Apache-2.0
// Which variant of expand reads the logits, and with how many threads. Host code; no CUDA header.
#pragma once

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace tuning {

// Measured on an H200 with 151,936 bf16 columns.

/// Columns from which a sample of a row says something about it.
inline constexpr index_t min_streamed_columns = 32768;

/// Blocks of a cluster that share a row; 1 = no cluster. More blocks than there are multiprocessors
/// take turns. rows:15/k:64 7.3 us with 8, 21.8 without; rows:65/k:64 13.9 with 2, 23.0 without.
constexpr unsigned cluster_blocks(index_t rows, index_t columns, index_t multiprocessors) noexcept {
  for (unsigned blocks = 8; blocks > 1; blocks /= 2) {
    if (rows * blocks <= multiprocessors && columns / blocks >= min_streamed_columns / 2) {
      return blocks;
    }
  }
  return 1;
}

/// Whether blocks of 128 threads read the rows, not of 512: their ends, where little is read, then
/// fall to different times. rows:960/k:64 92.2 us against 100.6, rows:3840/k:64 326 against 371.
/// Larger top_k need the room of a larger block.
constexpr bool prefers_small_blocks(index_t rows, index_t top_k, index_t multiprocessors) noexcept {
  return top_k <= 128 && rows >= 5 * multiprocessors;
}

}  // namespace tuning
}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
