// SPDX-License-Identifier: Apache-2.0
// Which variant of accept_greedy and accept_sampled reads the logits, and with how many blocks.
// Host code; no CUDA header, so that variant tables can ask.
#pragma once

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace tuning {

// Measured on an H200 with 151,936 bf16 columns and 7 rows visited per request.

/// Rows of all requests up to which all of them are read at once. Batch 4, budget 64 (260 rows):
/// greedy 35 us against 42 lazily, top-k 77 against 179; batch 16 (1040 rows): 117 against 48.
inline constexpr index_t max_preferred_eager_rows = 300;

/// Beyond that `eager` is not offered, so that its workspace stays small.
inline constexpr index_t max_eager_rows = index_t{1} << 17;

/// Columns of a row that a block should have: with fewer, what blocks tell one another takes longer
/// than what they read.
inline constexpr index_t min_columns_per_block = 1024;

constexpr unsigned limit_blocks(unsigned blocks, index_t columns) noexcept {
  while (blocks > 1 && columns < index_t{blocks} * min_columns_per_block) blocks /= 2;
  return blocks;
}

/// Blocks of a cluster for a row where all rows are read at once: about one wave of blocks.
constexpr unsigned eager_blocks(index_t rows, index_t columns) noexcept {
  return limit_blocks(rows <= 8 ? 8 : rows <= 28 ? 4 : rows <= 66 ? 2 : 1, columns);
}

/// And where a request has one row at a time; more than a wave costs twice the time. Greedy: batch
/// 1, budget 1024 38 us with 8 blocks, 41 with 4; batch 64, budget 64 54 us with 2, 107 with 4.
constexpr unsigned lazy_blocks(index_t batch, index_t columns) noexcept {
  return limit_blocks(batch <= 8 ? 8 : batch <= 28 ? 4 : 2, columns);
}

/// Batch 256: 278 us with 2 blocks, 214 with one.
inline constexpr index_t max_preferred_cluster_batch = 66;

}  // namespace tuning
}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
