// SPDX-License-Identifier: Apache-2.0
// A row of draft logits, and what expand and expand_shard find in it.
#pragma once

#include "ddtree/expand.hpp"

#include "common/exp_sum.cuh"
#include "common/logits.cuh"
#include "common/select.cuh"
#include "expand/row_task.cuh"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Sets the logits of draft ids without a counterpart to -inf. Returns whether an entry of the map
/// was out of range.
template <int Width>
__device__ bool leave_out_unmapped(ids_in const& map, index_t vocab, std::int32_t first_id,
                                   std::int32_t count, float (&x)[Width]) {
  bool met = false;
#pragma unroll
  for (int j = 0; j < Width; ++j) {
    if (j >= count) break;
    index_t const token = rules::load_id(map, first_id + j);
    if (token >= 0 && token < vocab) continue;
    x[j] = rules::minus_infinity;
    met = met || token != -1;
  }
  return met;
}

/// A row for the functions of common/select.cuh.
template <class Type>
struct draft_row {
  static constexpr int width = Type::width;

  typename Type::element const* data;  // column 0
  vocab_ranges const& ranges;
  ids_in const& map;
  index_t vocab;  // the target's

  /// Calls body(first id, float (&x)[width]) and collects bits of `flag`. The gate is that of
  /// logits_span.
  template <int Threads, class Body, class Gate = every_packet>
  __device__ void visit(std::uint32_t& flags, Body body, Gate gate = {}) const {
#pragma unroll 1
    for (int r = 0; r < 2; ++r) {
      vocab_range const range = r == 0 ? ranges.range[0] : ranges.range[1];
      auto const count = static_cast<std::int32_t>(range.count);
      auto const begin = static_cast<std::int32_t>(range.global_begin);
      logits_span<Type> const span{data + range.local_begin, count};
      span.template for_each_packet<Threads>(
          [&](std::int32_t column, float(&x)[width]) {
            if (map.data != nullptr &&
                leave_out_unmapped(map, vocab, begin + column, count - column, x)) {
              flags |= flag::id_out_of_range;
            }
            if (sanitize(x)) flags |= flag::draft_nan;
            body(begin + column, x);
          },
          gate);
    }
  }

  __device__ std::uint32_t id_end() const {
    index_t end = 0;
    for (vocab_range const& range : ranges.range) {
      if (range.count > 0) end = max(end, range.global_begin + range.count);
    }
    return static_cast<std::uint32_t>(end);
  }

  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    std::uint32_t met_before = 0;
    visit<Threads>(met_before, body);
  }
};

struct draft_row_memory {
  top_k_memory<row_threads> top_k;
  rules::exp_sum sums[warps_of<row_threads>];
};

struct row_result {
  rules::exp_sum sum;   // of exp(x * r)
  std::uint32_t count;  // of the best, in memory.top_k.keys
  std::uint32_t flags;  // of this thread's columns
};

/// Reads a row once, for the sum and what says where its best candidates begin.
template <int Threads, class Type>
__device__ row_result sum_row(draft_row<Type> const& row, float r, group_maxima& groups,
                              rules::exp_sum* partial) {
  row_result result{};
  rules::exp_sum sum;
  row.template visit<Threads>(result.flags, [&](std::int32_t, float(&x)[Type::width]) {
    groups.add(x);
    float max = groups.largest();
    if (r != 1.0f) {
      max = rules::scaled(max, r);
#pragma unroll
      for (int j = 0; j < Type::width; ++j) x[j] = rules::scaled(x[j], r);
    }
    add_packet(sum, x, max);
  });
  result.sum = block_reduce<Threads>(sum, merge_exp_sums{}, partial);
  return result;
}

/// Reads it again for the candidates.
template <class Type>
__device__ row_result read_row(draft_row<Type> const& row, float r, std::uint32_t top_k,
                               draft_row_memory& memory) {
  group_maxima groups;
  row_result result = sum_row<row_threads>(row, r, groups, memory.sums);
  std::uint64_t const floor = find_floor<row_threads>(groups, top_k, memory.top_k.walk);
  result.count = select_top_k<row_threads>(row, top_k, floor, memory.top_k, row.id_end());
  return result;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
