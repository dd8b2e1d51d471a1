// SPDX-License-Identifier: Apache-2.0
// A KV cache of as many requests as a scene's copies need: the batches take turns.
#pragma once

#include "ddtree/compact.hpp"

#include "support/scene.hpp"

#include <vector>

namespace bench {

/// Layers whose tensors are all alike; a head's row of a token has row_bytes.
struct cache_format {
  char const* name = "nhd";
  ddtree::index_t tensors = 72, heads = 8, row_bytes = 256;
  bool head_major = false;  // heads outside of a page's rows
  ddtree::index_t page_size = 16;

  ddtree::index_t token_bytes() const { return tensors * heads * row_bytes; }
};

/// The format of Qwen3-8B: 36 layers of K and V, 8 heads of 128 bf16 numbers.
inline constexpr cache_format qwen3_8b{};

class kv_pool {
 public:
  /// Requests of `slots` slots each.
  kv_pool(scene& s, cache_format const& f, ddtree::index_t requests, ddtree::index_t slots);
  ddtree::kv_cache view() const { return view_; }

 private:
  ddtree::kv_cache view_;
};

}  // namespace bench
