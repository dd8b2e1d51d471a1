// SPDX-License-Identifier: Apache-2.0
// Logits in memory, read by a block in packets of consecutive columns.
#pragma once

#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

#include "rules/dtype_convert.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Element types of logits: what stands in memory, and how many fill 16 bytes.
struct f32_logits {
  using element = float;
  static constexpr int width = 4;
  static __device__ float to_float(element x) { return x; }
  static __device__ void unpack(std::uint32_t word, float* x) {
    x[0] = rules::float_from_bits(word);
  }
  static __device__ std::uint32_t larger_or_nan(std::uint32_t a, std::uint32_t b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;"
        : "=f"(larger)
        : "f"(rules::float_from_bits(a)), "f"(rules::float_from_bits(b)));
    return rules::float_bits(larger);
  }
};

struct f16_logits {
  using element = std::uint16_t;
  static constexpr int width = 8;
  static __device__ float to_float(element x) { return rules::f16_to_float(x); }
  static __device__ void unpack(std::uint32_t word, float* x) {
    x[0] = to_float(static_cast<element>(word));
    x[1] = to_float(static_cast<element>(word >> 16));
  }
  static __device__ std::uint32_t larger_or_nan(std::uint32_t a, std::uint32_t b) {
    std::uint32_t larger;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
  }
};

struct bf16_logits {
  using element = std::uint16_t;
  static constexpr int width = 8;
  static __device__ float to_float(element x) { return rules::bf16_to_float(x); }
  static __device__ void unpack(std::uint32_t word, float* x) {
    x[0] = rules::float_from_bits(word << 16);
    x[1] = rules::float_from_bits(word & 0xffff0000u);
  }
  static __device__ std::uint32_t larger_or_nan(std::uint32_t a, std::uint32_t b) {
    std::uint32_t larger;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
  }
};

/// Calls `launch` with a value of the type that stands for a validated dtype.
template <class Launch>
status for_logits_type(dtype type, Launch launch) {
  switch (type) {
    case dtype::f32: return launch(f32_logits{});
    case dtype::f16: return launch(f16_logits{});
    default: return launch(bf16_logits{});
  }
}

/// Where row (b, i) of a view begins.
template <class Type>
__device__ typename Type::element const* find_logits(logits_view const& view, index_t b,
                                                     index_t i) {
  return static_cast<typename Type::element const*>(view.data) +
         rules::row_index(view, b, i) * view.row_stride;
}

/// The logits of a packet.
template <class Type>
__device__ void unpack(uint4 const& raw, float (&x)[Type::width]) {
  constexpr int per_word = Type::width / 4;
  Type::unpack(raw.x, x);
  Type::unpack(raw.y, x + per_word);
  Type::unpack(raw.z, x + 2 * per_word);
  Type::unpack(raw.w, x + 3 * per_word);
}

/// The largest of a packet, NaN if one is.
template <class Type>
__device__ float largest_or_nan(uint4 const& raw) {
  std::uint32_t const word =
      Type::larger_or_nan(Type::larger_or_nan(raw.x, raw.y), Type::larger_or_nan(raw.z, raw.w));
  constexpr int per_word = Type::width / 4;
  float x[per_word];
  Type::unpack(word, x);
  if constexpr (per_word == 1) return x[0];
  return x[0] != x[0] || x[0] > x[1] ? x[0] : x[1];
}

/// Lets a body see every packet.
struct every_packet {
  __device__ bool admits(uint4 const&, std::int32_t) const { return true; }
};

/// Consecutive columns of a row.
template <class Type>
struct logits_span {
  static constexpr int width = Type::width;

  typename Type::element const* data;
  std::int32_t columns;

  /// Calls body(first column, float (&x)[width]) for every packet of columns, each in one thread;
  /// a thread sees its packets in ascending order. Columns beyond the last hold -inf. Which thread
  /// gets a packet, and when, depends on the column alone and not on where the row lies. Whole
  /// packets that the gate does not admit are left out.
  ///
  /// A thread has `Batch` loads in flight, and there are as many copies of the body: one load does
  /// not fill the memory system, unless the body is long.
  template <int Threads, int Batch = 4, class Body, class Gate = every_packet>
  __device__ void for_each_packet(Body body, Gate&& gate = {}) const {
    bool const is_aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    std::int32_t const whole = is_aligned ? columns / width : 0;
    std::int32_t const packets = (columns + width - 1) / width;
#pragma unroll 1
    for (auto first = static_cast<std::int32_t>(threadIdx.x); first < packets;
         first += Batch * Threads) {
      uint4 raw[Batch];
#pragma unroll
      for (int i = 0; i < Batch; ++i) raw[i] = load(first + i * Threads, whole);
#pragma unroll
      for (int i = 0; i < Batch; ++i) {
        std::int32_t const packet = first + i * Threads;
        if (packet >= packets) break;
        float x[width];
        bool const is_whole = packet < whole;
        bool const is_admitted = !is_whole || gate.admits(raw[i], packet * width);
        if (!is_admitted) continue;
        if (is_whole) {
          unpack<Type>(raw[i], x);
        } else {
          load_elements(packet, x);
        }
        body(packet * width, x);
      }
    }
  }

  /// The columns of a whole packet of an aligned span.
  __device__ void load_packet(std::int32_t first_column, float (&x)[width]) const {
    unpack<Type>(__ldg(reinterpret_cast<uint4 const*>(data + first_column)), x);
  }

 private:
  __device__ uint4 load(std::int32_t packet, std::int32_t whole) const {
    uint4 raw{0, 0, 0, 0};
    if (packet < whole) raw = __ldg(reinterpret_cast<uint4 const*>(data) + packet);
    return raw;
  }

  __device__ void load_elements(std::int32_t packet, float (&x)[width]) const {
#pragma unroll
    for (int j = 0; j < width; ++j) {
      std::int32_t const column = packet * width + j;
      x[j] = column < columns ? Type::to_float(__ldg(data + column)) : rules::minus_infinity;
    }
  }
};

/// Lets NaN count as -inf and +inf as the largest finite float. Returns whether there was any.
template <int Width>
__device__ bool sanitize(float (&x)[Width]) {
  bool met = false;
#pragma unroll
  for (int j = 0; j < Width; ++j) met = met | !(x[j] <= rules::largest_float);
  if (met) {
#pragma unroll
    for (int j = 0; j < Width; ++j) x[j] = rules::sanitize(x[j]);
  }
  return met;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
