// SPDX-License-Identifier: Apache-2.0
// What is known of a device. Host code; no CUDA header, so that variant tables can ask.
#pragma once

#include <cstdint>

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Compute capability as 90 for 9.0; negative (a negated cudaError_t) where the device cannot be
/// asked. Cached per device; nothing is enqueued, and it may be called during a capture.
std::int32_t capability(std::int32_t device) noexcept;

/// Streaming multiprocessors of the device, cached likewise; 0 where it cannot be asked.
std::int32_t multiprocessors(std::int32_t device) noexcept;

/// ok, `unsupported_device` (no such device or no driver) or `no_kernel_image`.
status usable(std::int32_t device) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
