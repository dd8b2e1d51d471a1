// SPDX-License-Identifier: Apache-2.0
// Which variant of accept_greedy and accept_sampled reads the logits, and with how many blocks.
// Host code; no CUDA header, so that variant tables can ask.
#pragma once

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace tuning {

/// Rows of all requests up to which all of them are read at once: a walk visits them one after the
/// other, which takes longer than a wave of rows.
inline constexpr index_t max_preferred_eager_rows = 160;

/// Beyond that `eager` is not offered, so that its workspace stays small.
inline constexpr index_t max_eager_rows = index_t{1} << 17;

/// Blocks of a cluster that share a row, for so many rows at a time: about one wave of blocks.
constexpr unsigned blocks_of_rows(index_t rows) noexcept {
  return rows <= 16 ? 8 : rows <= 33 ? 4 : rows <= 132 ? 2 : 1;
}

/// The lazy cluster: a request has one row at a time. With many requests a second block still
/// evens out the end.
constexpr unsigned lazy_blocks(round_shape const& shape) noexcept {
  unsigned const blocks = blocks_of_rows(shape.batch);
  return blocks < 2 ? 2 : blocks;
}

}  // namespace tuning
}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
