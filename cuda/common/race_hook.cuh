// SPDX-License-Identifier: Apache-2.0
// A place where a test may hold threads up, to bring out an order of blocks that is rare.
#pragma once

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Nothing, unless tests are built with DDTREE_RACE_HOOKS. `point` tells the places apart.
__device__ inline void race_delay([[maybe_unused]] int point) {
#if defined(DDTREE_RACE_HOOKS)
  // Blocks wait for different times, and differently at each point and in each run.
  unsigned const seed = (blockIdx.x + 1u) * 2654435761u ^ static_cast<unsigned>(point) * 40503u;
  __nanosleep((seed ^ static_cast<unsigned>(clock64()) * 2246822519u) >> 20);
#endif
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
