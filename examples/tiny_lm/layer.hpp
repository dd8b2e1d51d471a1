#pragma once

#include "config.hpp"
#include "model.hpp"
#include "rope.hpp"
#include "row_array.hpp"

#include <span>

namespace tiny_lm {

/// Rows on their way through the layers: x is the residual stream, the rest is working memory.
struct layer_rows {
  layer_rows(transformer_shape const& shape, int rows);

  int rows;
  row_array x, y, q, k, v, attended, gate, up;
};

/// k = rope(wk input), v = wv input for dense rows of input.
void project_kv(layer_weights const& weights, transformer_shape const& shape,
                rope_table const& rope, std::span<int const> positions, float const* input,
                float* k, float* v);

/// q, k and v of the normalised residual stream.
void project_qkv(layer_weights const& weights, transformer_shape const& shape,
                 rope_table const& rope, std::span<int const> positions, layer_rows& rows);

/// The rest of the layer after attention: x += wo attended, x += feed-forward.
void finish_layer(layer_weights const& weights, transformer_shape const& shape, layer_rows& rows);

}  // namespace tiny_lm
