// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/status.hpp"

#include "support/calls.hpp"

#include <cstddef>

namespace ddtree {
inline namespace v0 {
namespace cpu {

status accept_tokens(support::accept_tokens_call const& call) noexcept;

/// accept_greedy and accept_sampled: without a temperature every request is greedy.
status accept_logits(support::accept_logits_call const& call) noexcept;
/// What sampled requests need; greedy ones need none.
std::size_t accept_sampled_workspace(support::accept_logits_call const& call) noexcept;

status accept_shard(support::accept_shard_call const& call) noexcept;
std::size_t accept_shard_workspace(support::accept_shard_call const& call) noexcept;

status accept_merge(support::accept_merge_call const& call) noexcept;
std::size_t accept_merge_workspace(support::accept_merge_call const& call) noexcept;

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
