// SPDX-License-Identifier: Apache-2.0
/// @file status.hpp
/// What every call returns.
#ifndef DDTREE_STATUS_HPP
#define DDTREE_STATUS_HPP

#include <cstdint>

#include "ddtree/export.h"

namespace ddtree {
inline namespace v0 {

/// The kinds of outcome. The values are frozen: they are the same in the C ABI.
enum class errc : std::int32_t {
  ok = 0,
  /// An argument is out of its documented range; the message names it.
  invalid_argument = 1,
  /// The workspace is null or smaller than the matching `X_workspace_bytes` says.
  workspace_too_small = 2,
  /// The arguments are sound, but no variant computes this combination.
  unsupported = 3,
  /// The context's backend is not in this build, or the device does not exist.
  unsupported_device = 4,
  /// The device is older than every compiled architecture; `detail` is its capability (75 = 7.5).
  no_kernel_image = 5,
  /// A CUDA call of this library failed; `detail` is the `cudaError_t`.
  cuda_error = 6,
};

/// The outcome of a call: 16 bytes, returned by value, true when the call succeeded.
///
/// Where `code` is not `errc::ok`, nothing was enqueued and no output was written, unless the call
/// says otherwise. Failures that a kernel meets while it runs surface at the caller's next
/// synchronisation, as CUDA's own do.
struct [[nodiscard]] status {
  errc code = errc::ok;
  /// A `cudaError_t` or a compute capability, as `code` says; 0 otherwise.
  std::int32_t detail = 0;
  /// Never null, static storage; names the argument at fault ("expand: draft.data is null").
  char const* message = "";

  explicit constexpr operator bool() const noexcept { return code == errc::ok; }
};

/// The name of a code, such as "invalid_argument"; "unknown" for a value that is none.
DDTREE_API char const* name(errc code) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_STATUS_HPP
