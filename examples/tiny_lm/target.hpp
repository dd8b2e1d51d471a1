#pragma once

#include "model.hpp"
#include "paged_cache.hpp"
#include "rope.hpp"

#include <cstdint>
#include <span>

namespace tiny_lm {

/// One token to run. It sees slots 0..context-1 of its sequence and, where bit j of the words in
/// `visible` is set, slot context + j: its ancestors in a draft tree and itself.
struct target_row {
  int sequence;
  std::int32_t token, position, slot;
  std::int32_t context;
  std::span<std::uint32_t const> visible;
};

/// A token of plain text: it stands at its own position and sees everything before it.
target_row causal_row(int sequence, std::int32_t token, std::int32_t position);

class target {
 public:
  /// The model must outlive the target.
  target(model const& weights, int threads);

  /// Runs rows of any sequences in one pass and writes their K and V into the cache. A row may see
  /// what other rows of the call write. Outputs by row: logits [vocab], features [feature_width].
  /// A row's outputs depend on the tokens it sees only, never on the other rows or their number.
  void forward(std::span<target_row const> rows, paged_cache& cache, std::span<float> logits,
               std::span<float> features) const;

 private:
  struct plan;
  struct share;

  plan make_plan(std::span<target_row const> rows, paged_cache const& cache) const;

  model const& model_;
  rope_table rope_;
  int threads_;
};

}  // namespace tiny_lm
