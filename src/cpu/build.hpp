// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstddef>

namespace ddtree {
inline namespace v0 {
namespace cpu {

std::size_t build_tree_workspace(support::build_tree_call const& call) noexcept;
status build_tree(support::build_tree_call const& call) noexcept;
status link_tree(support::link_tree_call const& call) noexcept;

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
