// SPDX-License-Identifier: Apache-2.0
// Draft expansion on CUDA devices.
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstddef>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// One block per row, which it reads twice: any row on any architecture. No workspace.
status expand(support::expand_call const& call) noexcept;

/// One block per row, which it reads once. What can_stream does not hold for is left to `expand`,
/// and so are rows with so many ties, or such unlikely ones, that one reading is not enough.
status expand_stream(support::expand_call const& call) noexcept;
bool can_stream(support::expand_call const& call) noexcept;
bool prefers_expand_stream(support::expand_call const& call) noexcept;
std::size_t expand_stream_workspace(support::expand_call const& call) noexcept;

/// With a cluster of blocks per row, in one launch; the same workspace. What can_stream does not
/// hold for is left to `expand`.
status expand_cluster(support::expand_call const& call) noexcept;
bool can_expand_cluster(support::expand_call const& call) noexcept;
bool prefers_expand_cluster(support::expand_call const& call) noexcept;

status expand_shard(support::expand_shard_call const& call) noexcept;
status expand_merge(support::expand_merge_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
