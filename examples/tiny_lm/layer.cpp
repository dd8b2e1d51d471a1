#include "layer.hpp"

#include "elementwise.hpp"

namespace tiny_lm {

layer_rows::layer_rows(transformer_shape const& shape, int count)
    : rows(count),
      x(rows, shape.hidden),
      y(rows, shape.hidden),
      q(rows, shape.q_width()),
      k(rows, shape.kv_width()),
      v(rows, shape.kv_width()),
      attended(rows, shape.q_width()),
      gate(rows, shape.ffn),
      up(rows, shape.ffn) {}

void project_kv(layer_weights const& weights, transformer_shape const& shape,
                rope_table const& rope, std::span<int const> positions, float const* input,
                float* k, float* v) {
  int const rows = static_cast<int>(positions.size());
  weights.wk.multiply(input, rows, k);
  weights.wv.multiply(input, rows, v);
  for (int position : positions) {
    rope.rotate(k, shape.kv_heads, position);
    k += shape.kv_width();
  }
}

void project_qkv(layer_weights const& weights, transformer_shape const& shape,
                 rope_table const& rope, std::span<int const> positions, layer_rows& rows) {
  rms_norm_rows(rows.x.data(), rows.rows, weights.attn_norm, shape.eps, rows.y.data());
  project_kv(weights, shape, rope, positions, rows.y.data(), rows.k.data(), rows.v.data());
  weights.wq.multiply(rows.y.data(), rows.rows, rows.q.data());
  float* q = rows.q.data();
  for (int position : positions) {
    rope.rotate(q, shape.heads, position);
    q += shape.q_width();
  }
}

void finish_layer(layer_weights const& weights, transformer_shape const& shape, layer_rows& rows) {
  weights.wo.multiply(rows.attended.data(), rows.rows, rows.y.data());
  add(rows.x.all(), rows.y.all());

  rms_norm_rows(rows.x.data(), rows.rows, weights.ffn_norm, shape.eps, rows.y.data());
  weights.w_gate.multiply(rows.y.data(), rows.rows, rows.gate.data());
  weights.w_up.multiply(rows.y.data(), rows.rows, rows.up.data());
  silu_multiply(rows.gate.all(), rows.up.all());
  weights.w_down.multiply(rows.gate.data(), rows.rows, rows.y.data());
  add(rows.x.all(), rows.y.all());
}

}  // namespace tiny_lm
