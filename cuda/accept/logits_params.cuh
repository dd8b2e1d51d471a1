// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/views.hpp"

#include "support/calls.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What the kernels of accept_greedy and accept_sampled get.
struct logits_params {
  support::accept_logits_call call;
  vocab_ranges columns;
};

inline logits_params all_columns(support::accept_logits_call const& call) noexcept {
  return {call, {{{0, call.shape.vocab, 0}, {}}}};
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
