#include "rope.hpp"

#include <cmath>

namespace tiny_lm {

rope_table::rope_table(int positions, int head_dim, double theta)
    : half_(static_cast<std::size_t>(head_dim) / 2) {
  for (int position = 0; position < positions; ++position)
    for (std::size_t i = 0; i < half_; ++i) {
      double const angle = position * std::pow(theta, -2.0 * static_cast<double>(i) / head_dim);
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
}

void rope_table::rotate(float* row, int heads, int position) const {
  float const* cosine = cos_.data() + static_cast<std::size_t>(position) * half_;
  float const* sine = sin_.data() + static_cast<std::size_t>(position) * half_;
  for (int head = 0; head < heads; ++head, row += 2 * half_)
    for (std::size_t i = 0; i < half_; ++i) {
      float const a = row[i], b = row[i + half_];
      row[i] = a * cosine[i] - b * sine[i];
      row[i + half_] = b * cosine[i] + a * sine[i];
    }
}

}  // namespace tiny_lm
