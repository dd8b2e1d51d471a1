// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

status accept_tokens(support::accept_tokens_call const& call) noexcept;

// accept_greedy is accept_sampled without temperatures.

/// Reads a row of target logits only where a walk visits it; a block per request, or a cluster.
status accept_lazy(support::accept_logits_call const& call) noexcept;
status accept_lazy_cluster(support::accept_logits_call const& call) noexcept;
bool can_accept_lazy_cluster(support::accept_logits_call const& call) noexcept;
bool prefers_accept_lazy_cluster(support::accept_logits_call const& call) noexcept;

/// Reads all rows at once.
status accept_eager(support::accept_logits_call const& call) noexcept;
bool can_accept_eager(support::accept_logits_call const& call) noexcept;
bool prefers_accept_eager(support::accept_logits_call const& call) noexcept;
std::size_t accept_eager_workspace(support::accept_logits_call const& call) noexcept;

status accept_shard(support::accept_shard_call const& call) noexcept;
status accept_merge(support::accept_merge_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
