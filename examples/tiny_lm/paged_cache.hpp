#pragma once

#include "config.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tiny_lm {

/// The target's KV cache, paged as in a serving engine: a pool of pages shared by all sequences and
/// a block table that names the pages of each. Slot s of a sequence lies in its page s / 16.
class paged_cache {
 public:
  static constexpr int page_size = 16;

  paged_cache(transformer_shape const& shape, int sequences, int columns, int pages);

  /// Gives the sequence pages for slots 0..slots-1. Throws when the table or the pool is full.
  void reserve(int sequence, int slots);

  /// Takes all pages of the sequence back.
  void release(int sequence);

  /// Where a slot lies: a row of the [pages * page_size, kv_heads, head_dim] tensors.
  std::int32_t row(int sequence, int slot) const;

  float* keys(int layer) { return keys_[static_cast<std::size_t>(layer)].data(); }
  float* values(int layer) { return values_[static_cast<std::size_t>(layer)].data(); }

  int pages() const { return pages_; }
  int columns() const { return columns_; }

  /// [sequences, columns], -1 where there is no page.
  std::span<std::int32_t> block_table() { return block_table_; }

 private:
  std::size_t entry(int sequence, int column) const;

  int sequences_, columns_, pages_;
  // By layer: [pages, page_size, kv_heads, head_dim].
  std::vector<std::vector<float>> keys_, values_;
  std::vector<std::int32_t> block_table_, free_pages_;
};

}  // namespace tiny_lm
