// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

status write_mask(support::write_mask_call const& call) noexcept;
/// A mask of the tree alone without gaps between the rows, which write_mask leaves to
/// write_tree_block. `masked` holds the bits of a masked column.
bool is_tree_block(support::write_mask_call const& call) noexcept;
status write_tree_block(support::write_mask_call const& call, std::uint32_t masked) noexcept;

status write_verify_inputs(support::write_verify_inputs_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
