// SPDX-License-Identifier: Apache-2.0
// The second kernel of the variants that read a row once: it reads those again that this was not
// enough for, by the generic way.
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// `again` [batch * depth]: 1 where the row is still to be written. Flags are added to what stands.
status read_again(support::expand_call const& call, std::uint8_t const* again) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
