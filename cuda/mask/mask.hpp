// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

status write_mask(support::write_mask_call const& call) noexcept;
status write_verify_inputs(support::write_verify_inputs_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
