#include "elementwise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tiny_lm {
namespace {

/// exp within 2 ulp, by additions and multiplications only: loops over it become vector code, and
/// the bits are those of every machine. (Range reduction and polynomial of Cephes' expf.)
inline float exponential(float x) {
  x = std::min(std::max(x, -87.0f), 88.0f);
  constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  float const n = (x * 1.44269504f + to_integer) - to_integer;
  float const r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

}  // namespace

void rms_norm(float const* x, std::span<float const> weight, float eps, float* y) {
  float sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) sum += x[i] * x[i];
  float const scale = 1.0f / std::sqrt(sum / static_cast<float>(weight.size()) + eps);
  for (std::size_t i = 0; i < weight.size(); ++i) y[i] = x[i] * scale * weight[i];
}

void rms_norm_rows(float const* x, int rows, std::span<float const> weight, float eps, float* y) {
  auto const width = static_cast<std::ptrdiff_t>(weight.size());
  for (std::ptrdiff_t r = 0; r < rows; ++r) rms_norm(x + r * width, weight, eps, y + r * width);
}

void add(std::span<float> x, std::span<float const> y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void silu_multiply(std::span<float> gate, std::span<float const> up) {
  for (std::size_t i = 0; i < gate.size(); ++i)
    gate[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

void softmax(std::span<float> scores) {
  float const highest = *std::ranges::max_element(scores);
  for (float& score : scores) score = exponential(score - highest);
  float sum = 0;
  for (float score : scores) sum += score;
  float const scale = 1.0f / sum;
  for (float& score : scores) score *= scale;
}

}  // namespace tiny_lm
