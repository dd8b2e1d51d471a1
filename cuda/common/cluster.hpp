// SPDX-License-Identifier: Apache-2.0
// Whether a device runs clusters of blocks. Host code; no CUDA header, so that variant tables can
// ask.
#pragma once

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Whether a portable cluster of 8 blocks of 1024 threads with 64 KB each fits the device: slices
/// of a device and small parts have too little room. Asked once per device; nothing is enqueued,
/// and it may be called during a capture.
bool can_run_clusters(std::int32_t device) noexcept;

/// For tests: what can_run_clusters says from now on, where `answer` is 0 or 1; -1 = the truth.
void pretend_clusters_fit(int answer) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
