#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tiny_lm {

/// A dense [rows, width] array of floats.
class row_array {
 public:
  row_array(int rows, int width)
      : width_(static_cast<std::size_t>(width)), data_(static_cast<std::size_t>(rows) * width_) {}

  float* operator[](int row) { return data_.data() + static_cast<std::size_t>(row) * width_; }
  std::span<float> row(int index) { return {(*this)[index], width_}; }
  float* data() { return data_.data(); }
  std::span<float> all() { return data_; }

 private:
  std::size_t width_;
  std::vector<float> data_;
};

}  // namespace tiny_lm
