// SPDX-License-Identifier: Apache-2.0
// An engine's kernels around a call, for the test of what a call's kernels wait for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ddtree_test {

struct moved_bytes {
  unsigned char* to;
  unsigned char* from;
  std::size_t bytes;
};

/// Enqueues one kernel that does nothing for a while, then copies. `pieces` is device memory.
void copy_late(cudaStream_t stream, moved_bytes const* pieces, std::size_t count);

/// Enqueues one kernel that copies and leaves 0xFF behind.
void take_and_poison(cudaStream_t stream, moved_bytes const* pieces, std::size_t count);

}  // namespace ddtree_test
