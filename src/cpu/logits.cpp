// SPDX-License-Identifier: Apache-2.0
#include "cpu/logits.hpp"

#include "rules/dtype_convert.hpp"
#include "rules/views.hpp"

#include <algorithm>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

/// 1 for NaN and +inf. One comparison: rules::needs_sanitizing would be several.
std::int32_t is_odd(float x) { return x <= rules::largest_float ? 0 : 1; }

template <class Element, class ToFloat>
bool load_as(Element const* from, index_t count, ToFloat to_float, float* out) {
  std::int32_t odd = 0;
  for (index_t i = 0; i < count; ++i) {
    out[i] = to_float(from[i]);
    odd |= is_odd(out[i]);
  }
  return odd != 0;
}

}  // namespace

logits_row find_logits(logits_view const& view, index_t b, index_t i) {
  index_t const element_bytes = view.type == dtype::f32 ? 4 : 2;
  index_t const at = rules::row_index(view, b, i) * view.row_stride * element_bytes;
  return {static_cast<unsigned char const*>(view.data) + at, view.type};
}

bool load(logits_row const& row, index_t begin, index_t end, logits_chunk& out) {
  index_t const count = std::min(end - begin, logits_chunk::size);
  std::fill(out.value + count, out.value + logits_chunk::size, rules::minus_infinity);
  if (row.type == dtype::f32) {
    auto const* const from = static_cast<float const*>(row.data) + begin;
    return load_as(
        from, count, [](float x) { return x; }, out.value);
  }
  auto const* const from = static_cast<std::uint16_t const*>(row.data) + begin;
  return row.type == dtype::bf16 ? load_as(from, count, rules::bf16_to_float, out.value)
                                 : load_as(from, count, rules::f16_to_float, out.value);
}

bool sanitize(logits_chunk& x) {
  std::int32_t odd = 0;
  for (float& value : x.value) {
    odd |= is_odd(value);
    value = rules::sanitize(value);
  }
  return odd != 0;
}

packet_maxima find_maxima(logits_chunk const& x) {
  packet_maxima max;
  std::copy(x.value, x.value + packet_maxima::count, max.value);
  for (index_t i = packet_maxima::count; i < logits_chunk::size; i += packet_maxima::count) {
    for (index_t j = 0; j < packet_maxima::count; ++j) {
      max.value[j] = x.value[i + j] > max.value[j] ? x.value[i + j] : max.value[j];
    }
  }
  return max;
}

float maximum(packet_maxima max) {
  for (index_t half = packet_maxima::count / 2; half > 0; half /= 2) {
    for (index_t j = 0; j < half; ++j) {
      max.value[j] = max.value[half + j] > max.value[j] ? max.value[half + j] : max.value[j];
    }
  }
  return max.value[0];
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
