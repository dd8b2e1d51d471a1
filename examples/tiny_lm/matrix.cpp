#include "matrix.hpp"

#include "lanes.hpp"

#include <cstddef>
#include <stdexcept>

namespace tiny_lm {
namespace {

constexpr int vectors = matrix::panel / lane_count;

/// `Rows` rows times one panel, the sums held in registers.
template <int Rows>
inline void multiply_panel(float const* x, std::ptrdiff_t in, float const* weights, float* y,
                           std::ptrdiff_t y_stride) {
  lanes sum[Rows][vectors] = {};
  for (std::ptrdiff_t i = 0; i < in; ++i) {
    auto const* w = reinterpret_cast<lanes const*>(weights + i * matrix::panel);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < vectors; ++v) sum[r][v] += x[r * in + i] * w[v];
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < vectors; ++v) reinterpret_cast<lanes*>(y + r * y_stride)[v] = sum[r][v];
}

}  // namespace

matrix::matrix(std::span<float const> weights, int out, int in) : out_(out), in_(in) {
  if (out % panel != 0) throw std::runtime_error("matrix: outputs are not a multiple of 16");
  panels_.reserve(weights.size());
  for (std::size_t first = 0; first < static_cast<std::size_t>(out); first += panel)
    for (std::size_t i = 0; i < static_cast<std::size_t>(in); ++i)
      for (std::size_t o = first; o < first + panel; ++o)
        panels_.push_back(weights[o * static_cast<std::size_t>(in) + i]);
}

void matrix::multiply(float const* x, int rows, float* y) const {
  std::ptrdiff_t const in = in_, out = out_;
  for (std::ptrdiff_t o = 0; o < out; o += panel) {
    float const* weights = panels_.data() + o * in;  // stays in the first cache for all rows
    std::ptrdiff_t r = 0;
    for (; r + 4 <= rows; r += 4) multiply_panel<4>(x + r * in, in, weights, y + r * out + o, out);
    for (; r < rows; ++r) multiply_panel<1>(x + r * in, in, weights, y + r * out + o, out);
  }
}

}  // namespace tiny_lm
