// SPDX-License-Identifier: Apache-2.0
// A row of target logits with everything that is applied on read.
#pragma once

#include "ddtree/accept.hpp"

#include "common/logits.cuh"
#include "rules/draw.hpp"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

template <int Width>
__device__ float maximum(float const (&x)[Width]) {
  float largest = x[0];
#pragma unroll
  for (int j = 1; j < Width; ++j) largest = fmaxf(largest, x[j]);
  return largest;
}

/// A share of a row, counted in slices: as many packets each, of consecutive columns. Blocks get
/// whole slices and sums are merged slice by slice, so that their bits do not depend on how many
/// blocks there are.
inline constexpr int row_slices = 8;
struct row_part {
  int first = 0;
  int last = row_slices;
};

/// A target row, or the columns of it that a rank has, or a part of these. Also a row for
/// common/select.cuh.
template <class Type>
struct target_row {
  static constexpr int width = Type::width;

  typename Type::element const* data;  // column 0
  vocab_ranges const& ranges;          // by ascending id, empty ones last
  float const* bias;                   // by id, null = off
  std::uint32_t const* allowed;        // bits by id, null = off
  row_part part = {};

  __device__ target_row only(row_part share) const { return {data, ranges, bias, allowed, share}; }

  /// Calls look(x) with sanitised logits as the model gave them, then body(first_id, x) with what
  /// they count as. Returns whether this thread met a NaN or +inf. Its ids ascend. The gate is that
  /// of logits_span.
  template <int Threads, int Batch = 4, class Look, class Body, class Gate = every_packet>
  __device__ bool visit(Look look, Body body, Gate gate = {}) const {
    bool met_nan = false;
    for_each_span([&](logits_span<Type> const& span, std::int32_t begin) {
      span.template for_each_packet<Threads, Batch>(
          [&](std::int32_t column, float(&x)[width]) {
            met_nan = met_nan | sanitize(x);
            look(x);
            adjust(begin + column, span.columns - column, x);
            body(begin + column, x);
          },
          gate);
    });
    return met_nan;
  }

  /// Calls body(columns of memory, id of the first) for the part of each range.
  template <class Body>
  __device__ void for_each_span(Body body) const {
#pragma unroll 1
    for (int r = 0; r < 2; ++r) {
      vocab_range const range = r == 0 ? ranges.range[0] : ranges.range[1];
      auto const all = static_cast<std::int32_t>(range.count);
      std::int32_t const from = begin_of(part.first, all);
      std::int32_t const count = begin_of(part.last, all) - from;
      auto const begin = static_cast<std::int32_t>(range.global_begin) + from;
      body(logits_span<Type>{data + range.local_begin + from, count}, begin);
    }
  }

  /// Logits count as what they are in memory.
  __device__ bool is_plain() const { return bias == nullptr && allowed == nullptr; }

  template <int Threads, int Batch = 4, class Body>
  __device__ void for_each_packet(Body body) const {
    visit<Threads, Batch>([](float const(&)[width]) {}, body);
  }

  /// The logit of a token that log-probs are of.
  __device__ float logit_of(index_t id, float r, rules::log_prob_kind kind) const {
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      vocab_range const range = i == 0 ? ranges.range[0] : ranges.range[1];
      index_t const at = id - range.global_begin;
      if (at < 0 || at >= range.count) continue;
      float x[1] = {rules::sanitize(Type::to_float(data[range.local_begin + at]))};
      if (kind == rules::log_prob_kind::given) return x[0];
      adjust(static_cast<std::int32_t>(id), 1, x);
      return rules::scaled(x[0], r);
    }
    return rules::minus_infinity;
  }

  /// The lowest id, -1 where there is none.
  __device__ token_t first_id() const {
    return ranges.range[0].count > 0 ? static_cast<token_t>(ranges.range[0].global_begin) : -1;
  }

 private:
  /// Where a slice of `columns` begins.
  static __device__ std::int32_t begin_of(int slice, std::int32_t columns) {
    std::int32_t const packets = (columns + width - 1) / width;
    std::int32_t const begin = packets * slice / row_slices * width;
    return begin < columns ? begin : columns;
  }

  /// Adds the bias and forbids what the bitmask does, for the first `count` > 0 of the logits.
  template <int Width>
  __device__ void adjust(std::int32_t first_id, std::int32_t count, float (&x)[Width]) const {
    if (bias != nullptr) {
#pragma unroll
      for (int j = 0; j < Width; ++j) {
        if (j >= count) break;
        float const own = __ldg(bias + first_id + j);
        x[j] = rules::sanitize(rules::add(x[j], own == own ? own : 0.0f));
      }
    }
    if (allowed != nullptr) {
      // At most 8 bits, of one word or two.
      std::int32_t const last_id = first_id + (count < Width ? count : Width) - 1;
      std::uint32_t const bits =
          __funnelshift_r(__ldg(allowed + first_id / 32), __ldg(allowed + last_id / 32),
                          static_cast<unsigned>(first_id) % 32);
#pragma unroll
      for (int j = 0; j < Width; ++j) {
        if ((bits >> j & 1u) == 0) x[j] = rules::minus_infinity;
      }
    }
  }
};

/// The row of node `node` of the request in row b.
template <class Type>
__device__ target_row<Type> find_target_row(logits_view const& view, vocab_ranges const& columns,
                                            accept_options const& options, index_t request,
                                            index_t b, node_t node) {
  target_row<Type> row{find_logits<Type>(view, b, node), columns, nullptr, nullptr};
  if (options.logit_bias != nullptr) {
    row.bias = options.logit_bias + request * options.logit_bias_stride;
  }
  bitmask_view const& mask = options.token_bitmask;
  if (mask.data != nullptr) {
    row.allowed = mask.data + rules::row_index(mask, b, node) * mask.row_stride;
  }
  return row;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
