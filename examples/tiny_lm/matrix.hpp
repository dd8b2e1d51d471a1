#pragma once

#include <span>
#include <vector>

namespace tiny_lm {

/// The weights of a linear layer, kept in panels of 16 outputs: [out / 16][in][16].
///
/// Every output is one sum over the inputs in ascending order, whatever the number of rows, so a
/// row's result has the same bits alone and in any batch.
class matrix {
 public:
  static constexpr int panel = 16;

  matrix() = default;
  matrix(std::span<float const> weights /*[out, in]*/, int out, int in);

  /// y [rows, out] = x [rows, in] times the transposed weights.
  void multiply(float const* x, int rows, float* y) const;

 private:
  int out_ = 0, in_ = 0;
  std::vector<float> panels_;
};

}  // namespace tiny_lm
