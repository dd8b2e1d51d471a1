// SPDX-License-Identifier: Apache-2.0
// What is known of a device. Host code; no CUDA header, so that variant tables can ask.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

#include <cstdint>

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

/// Takes errors of the library's own calls out of the thread's last error again: a call returns
/// them, and the caller's next check is about the caller. An error that was pending before is left
/// alone; the runtime keeps one only, so a call that fails then leaves its own in place of it.
class own_errors {
 public:
  own_errors() noexcept;
  /// The error, a cudaError_t, that a call of the runtime returned.
  int take(int error) const noexcept;

 private:
  bool is_one_pending_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
