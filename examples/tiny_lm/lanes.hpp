#pragma once

#include <cstddef>

namespace tiny_lm {

/// A few floats in one register. Lanes are independent sums, so their number changes the speed of
/// a matrix product but not one bit of its result.
#ifdef __AVX__
inline constexpr int lane_count = 8;
#else
inline constexpr int lane_count = 4;
#endif
using lanes = float __attribute__((vector_size(lane_count * sizeof(float)), aligned(4), may_alias));

}  // namespace tiny_lm
