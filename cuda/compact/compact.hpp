// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

status compact_kv(support::compact_kv_call const& call) noexcept;
status compact_rows(support::compact_rows_call const& call) noexcept;
status compact_state(support::compact_state_call const& call) noexcept;
status advance(support::advance_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
