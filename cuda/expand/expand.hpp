// SPDX-License-Identifier: Apache-2.0
// Draft expansion on CUDA devices: one block per row, on every architecture. No workspace.
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

status expand(support::expand_call const& call) noexcept;
status expand_shard(support::expand_shard_call const& call) noexcept;
status expand_merge(support::expand_merge_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
