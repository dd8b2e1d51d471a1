#pragma once

#include <cstddef>
#include <vector>

namespace tiny_lm {

/// Rotary position embedding, half rotation: element i is paired with i + head_dim / 2.
class rope_table {
 public:
  rope_table(int positions, int head_dim, double theta);

  /// Rotates `heads` adjacent heads of one row.
  void rotate(float* row, int heads, int position) const;

 private:
  std::size_t half_;
  std::vector<float> cos_, sin_;  // [positions, half], computed in double
};

}  // namespace tiny_lm
