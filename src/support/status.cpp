// SPDX-License-Identifier: Apache-2.0
#include "ddtree/status.hpp"

namespace ddtree {
inline namespace v0 {

char const* name(errc code) noexcept {
  switch (code) {
    case errc::ok: return "ok";
    case errc::invalid_argument: return "invalid_argument";
    case errc::workspace_too_small: return "workspace_too_small";
    case errc::unsupported: return "unsupported";
    case errc::unsupported_device: return "unsupported_device";
    case errc::no_kernel_image: return "no_kernel_image";
    case errc::cuda_error: return "cuda_error";
  }
  return "unknown";
}

}  // namespace v0
}  // namespace ddtree
