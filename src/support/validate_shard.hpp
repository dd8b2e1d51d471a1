// SPDX-License-Identifier: Apache-2.0
// Argument checks of the calls over vocabulary shards. `Check` is a support::check.
#pragma once

#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

#include "support/validate.hpp"

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace support {

inline bool is_aligned_to_16(void const* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

/// A rank's logits; `has_rows`: some are read. A rank without columns need not have any.
template <class Check>
status check_shard_rows(bool has_rows, logits_view const& shard, vocab_ranges const& ranges) {
  bool const is_empty = ranges.range[0].count == 0 && ranges.range[1].count == 0;
  if (!is_float(shard.type)) {
    return Check::template fail<"shard.type is not f32, f16 or bf16">();
  }
  if (shard.vocab < 0) return Check::template fail<"shard.vocab < 0">();
  if (!is_empty && shard.vocab == 0) return Check::template fail<"shard.vocab is not given">();
  if (!is_empty && has_rows && shard.data == nullptr) {
    return Check::template fail<"shard.data is null">();
  }
  if (shard.row_stride < 0 || (shard.row_stride > 0 && shard.row_stride < shard.vocab)) {
    return Check::template fail<"shard.row_stride shorter than a row">();
  }
  if (shard.batch_stride < 0) return Check::template fail<"shard.batch_stride < 0">();
  return Check::template ids<"shard.row_offset">(shard.row_offset);
}

template <class Check>
status check_range(vocab_range const& range, index_t columns, index_t id_end) {
  if (range.count < 0) return Check::template fail<"ranges.count < 0">();
  if (range.count == 0) return {};
  if (range.local_begin < 0 || range.count > columns || range.local_begin > columns - range.count) {
    return Check::template fail<"ranges beyond shard.vocab">();
  }
  if (range.global_begin < 0 || range.count > id_end || range.global_begin > id_end - range.count) {
    return Check::template fail<"ranges beyond the vocabulary">();
  }
  return {};
}

/// A rank's columns; ids end at `id_end`.
template <class Check>
status check_ranges(vocab_ranges const& ranges, index_t columns, index_t id_end) {
  vocab_range const& a = ranges.range[0];
  vocab_range const& b = ranges.range[1];
  if (auto s = check_range<Check>(a, columns, id_end); !s) return s;
  if (auto s = check_range<Check>(b, columns, id_end); !s) return s;
  bool const apart = a.count == 0 || b.count == 0 || a.global_begin + a.count <= b.global_begin ||
                     b.global_begin + b.count <= a.global_begin;
  return apart ? status{} : Check::template fail<"ranges overlap">();
}

/// An unused range may hold anything beside its count; backends compute with what they are given.
inline vocab_ranges used_ranges(vocab_ranges ranges) {
  for (vocab_range& range : ranges.range) {
    if (range.count == 0) range = {};
  }
  return ranges;
}

/// Where a rank writes its contribution of so many bytes.
template <class Check>
status check_contribution(shard_out const& out, std::size_t bytes) {
  if (bytes != 0 && out.data == nullptr) return Check::template fail<"out.data is null">();
  if (!is_aligned_to_16(out.data)) {
    return Check::template fail<"out.data is not aligned to 16 bytes">();
  }
  return out.bytes >= bytes ? status{} : Check::template fail<"out.bytes too small">();
}

/// The gathered contributions of so many bytes each.
template <class Check>
status check_all_ranks(shard_in const& in, std::size_t bytes) {
  if (in.ranks < 1) return Check::template fail<"all_ranks.ranks < 1">();
  if (bytes != 0 && in.data == nullptr) return Check::template fail<"all_ranks.data is null">();
  if (!is_aligned_to_16(in.data)) {
    return Check::template fail<"all_ranks.data is not aligned to 16 bytes">();
  }
  index_t const stride = in.rank_stride_bytes;
  if (stride < 0 || (stride > 0 && stride < static_cast<index_t>(bytes))) {
    return Check::template fail<"all_ranks.rank_stride_bytes shorter than a contribution">();
  }
  if (stride % 16 != 0) {
    return Check::template fail<"all_ranks.rank_stride_bytes is not a multiple of 16">();
  }
  return {};
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
