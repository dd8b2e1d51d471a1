// SPDX-License-Identifier: Apache-2.0
// The flags of a request, from blocks that each know one of its rows, in one launch.
#pragma once

#include "common/block.cuh"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// One byte for each row of a request, at most 32, in workspace that holds anything at first. Each
/// row notes what it knows at least once, and the last time is what counts. After each note it
/// publishes, which waits for no other block: it writes the union of what stands there until it
/// finds that nothing has changed meanwhile. Whoever writes the union last has read what is final,
/// as a row that notes later also writes the union later.
struct row_flags {
  std::uint8_t volatile* of_row;
  std::int32_t rows;
  std::uint32_t volatile* of_request;

  /// By one thread.
  __device__ void note(std::int32_t row, std::uint32_t flags) const {
    of_row[row] = static_cast<std::uint8_t>(flags);
  }

  /// By one warp, which the note is visible to.
  __device__ void publish() const {
    __threadfence();
    std::uint32_t seen = read();
    for (;;) {
      std::uint32_t const all = __reduce_or_sync(all_lanes, seen);
      if (lane_index() == 0) *of_request = all;
      __threadfence();
      std::uint32_t const now = read();
      if (!__any_sync(all_lanes, now != seen)) return;
      seen = now;
    }
  }

 private:
  __device__ std::uint32_t read() const { return lane_index() < rows ? of_row[lane_index()] : 0; }
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
