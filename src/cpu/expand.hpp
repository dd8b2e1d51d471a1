// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstddef>

namespace ddtree {
inline namespace v0 {
namespace cpu {

std::size_t expand_workspace(support::expand_call const& call) noexcept;
std::size_t expand_shard_workspace(support::expand_shard_call const& call) noexcept;
std::size_t expand_merge_workspace(support::expand_merge_call const& call) noexcept;

status expand(support::expand_call const& call) noexcept;
status expand_shard(support::expand_shard_call const& call) noexcept;
status expand_merge(support::expand_merge_call const& call) noexcept;

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
