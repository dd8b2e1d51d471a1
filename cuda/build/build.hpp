// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Needs no workspace: a tree is built in shared memory.
status build_tree(support::build_tree_call const& call) noexcept;
status link_tree(support::link_tree_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
