#pragma once

#include "model.hpp"
#include "rope.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tiny_lm {

/// The drafter's K and V of one request: a row per committed position, only ever appended to, then
/// room for one block.
class draft_context {
 public:
  explicit draft_context(model_config const& config);

  int length() const { return length_; }
  void clear() { length_ = 0; }

 private:
  friend class drafter;

  int length_ = 0, capacity_;
  std::vector<std::vector<float>> keys_, values_;  // by layer: [capacity, kv_heads, head_dim]
};

struct draft_request {
  draft_context* context;
  std::int32_t bonus;  // the token at position context->length()
};

class drafter {
 public:
  /// The model must outlive the drafter.
  drafter(model const& weights, int threads);

  /// Appends target features [rows, feature_width] of the next committed positions.
  void add_context(draft_context& context, std::span<float const> features) const;

  /// Drafts one block for each request: logits [requests, draft_depth, vocab], of which row d
  /// predicts the token at position length + d + 1.
  void draft(std::span<draft_request const> requests, std::span<float> logits) const;

 private:
  struct share;

  model const& model_;
  rope_table rope_;
  std::vector<std::int32_t> cache_rows_;  // 0, 1, 2, ...: a draft sees all rows of its context
  int threads_;
};

}  // namespace tiny_lm
