// SPDX-License-Identifier: Apache-2.0
// The log-sum-exp of a row, chunk by chunk.
#pragma once

#include "cpu/logits.hpp"
#include "rules/log_sum_exp.hpp"

namespace ddtree {
inline namespace v0 {
namespace cpu {

/// Turns a sanitised chunk into rules::scaled(x, r).
void scale(logits_chunk& x, float r);

/// Σ exp(z - max) over a chunk whose maximum is known.
rules::exp_sum take_exp_sum(logits_chunk const& z, float max);

/// Adds the chunks of a row up. Works as a binary counter: level n of the stack holds the sum over
/// 2^n chunks, so that each is rescaled a few times only, however often the maximum rises.
class exp_sum_stack {
 public:
  void add(rules::exp_sum part) {
    ++count_;
    for (index_t n = count_; n % 2 == 0; n /= 2) part = rules::merge(level_[--top_], part);
    level_[top_++] = part;
  }

  rules::exp_sum total() const {
    rules::exp_sum sum;
    for (index_t n = top_; n > 0; --n) sum = rules::merge(level_[n - 1], sum);
    return sum;
  }

 private:
  rules::exp_sum level_[32];  // for 2^32 chunks
  index_t top_ = 0;
  index_t count_ = 0;
};

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
