// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

// Lazy: a row of target logits is read only where a walk visits it. No call uses a workspace.

status accept_tokens(support::accept_tokens_call const& call) noexcept;
status accept_greedy(support::accept_logits_call const& call) noexcept;
status accept_sampled(support::accept_logits_call const& call) noexcept;
status accept_shard(support::accept_shard_call const& call) noexcept;
status accept_merge(support::accept_merge_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
