#include "attention.hpp"

#include "elementwise.hpp"
#include "lanes.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>

namespace tiny_lm {
namespace {

constexpr int chunk = 16;  // floats handled together: divides every head_dim
constexpr int vectors = chunk / lane_count;

lanes const* as_lanes(float const* data) { return reinterpret_cast<lanes const*>(data); }

/// Sixteen partial sums, folded to four and to one: the same sixteen whatever the lane count.
float dot(float const* a, float const* b, int size) {
  lanes sum[vectors] = {};
  for (int i = 0; i < size; i += chunk)
    for (int v = 0; v < vectors; ++v) sum[v] += as_lanes(a + i)[v] * as_lanes(b + i)[v];
  float partial[chunk], four[4];
  std::memcpy(partial, sum, sizeof partial);
  for (int i = 0; i < 4; ++i)
    four[i] = (partial[i] + partial[i + 4]) + (partial[i + 8] + partial[i + 12]);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

/// out [chunk] = sum over the visible rows of weight times value.
void weighted_sum(float const* values, std::ptrdiff_t stride, std::span<std::int32_t const> visible,
                  float const* weights, float* out) {
  lanes sum[vectors] = {};
  for (std::size_t i = 0; i < visible.size(); ++i)
    for (int v = 0; v < vectors; ++v)
      sum[v] += weights[i] * as_lanes(values + visible[i] * stride)[v];
  for (int v = 0; v < vectors; ++v) reinterpret_cast<lanes*>(out)[v] = sum[v];
}

}  // namespace

void attend(transformer_shape const& shape, float const* query, float const* keys,
            float const* values, std::span<std::int32_t const> visible, std::vector<float>& scores,
            float* out) {
  std::ptrdiff_t const stride = shape.kv_width(), size = shape.head_dim;
  int const group = shape.heads / shape.kv_heads;
  float const scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  scores.resize(visible.size());

  for (int head = 0; head < shape.heads; ++head, query += size, out += size) {
    std::ptrdiff_t const first = head / group * size;
    for (std::size_t i = 0; i < visible.size(); ++i)
      scores[i] = dot(query, keys + visible[i] * stride + first, shape.head_dim) * scale;
    softmax(scores);
    for (std::ptrdiff_t d = 0; d < size; d += chunk)
      weighted_sum(values + first + d, stride, visible, scores.data(), out + d);
  }
}

}  // namespace tiny_lm
