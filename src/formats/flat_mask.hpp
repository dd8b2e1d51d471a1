// SPDX-License-Identifier: Apache-2.0
// The mask of a request as a stream of bits, row after row without a gap, and the aligned pieces of
// memory that such streams are written in.
#pragma once

#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include "formats/job.hpp"
#include "rules/hd.hpp"
#include "rules/mask.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {

/// What the rows of one request's tree see: columns 0..context-1, then ancestors and self.
struct visible_rows {
  std::uint32_t const* ancestors = nullptr;  // of the request
  index_t width = 0;
  index_t words = 0;
  index_t context = 0;

  /// Visibility of 32 columns of row i from `first` on, first >= 0.
  DDTREE_HD std::uint32_t columns(index_t i, index_t first) const {
    if (first + 32 <= context) return ~0u;
    index_t const word = (first - context) >> 5;  // rounds down, below 0 too
    auto const shift = static_cast<int>((first - context) & 31);
    std::uint32_t const low = nodes(i, word) >> shift;
    // Node 0 may stand at any column, so that the nodes straddle two words.
    std::uint32_t const high = shift == 0 ? 0u : nodes(i, word + 1) << (32 - shift);
    return rules::low_bits(context - first) | low | high;
  }

 private:
  DDTREE_HD std::uint32_t nodes(index_t i, index_t word) const {
    if (word < 0 || word >= words) return 0;
    return ancestors[i * words + word] & rules::low_bits(width - word * 32);
  }
};

DDTREE_HD inline visible_rows rows_of(draft_tree const& tree, round_shape const& shape, index_t b,
                                      index_t context) {
  index_t const first = b * shape.width() * shape.words();
  return {tree.ancestors + first, shape.width(), shape.words(), context};
}

/// `num_rows` rows of `num_columns` (at least 1) bits each.
struct flat_mask {
  visible_rows rows;
  index_t num_rows = 0;
  index_t num_columns = 1;

  DDTREE_HD index_t size() const { return num_rows * num_columns; }

  /// Row that a bit stands in.
  DDTREE_HD index_t row_of(index_t bit) const {
    // On a GPU a division of 64 bits takes several times as long.
    if ((bit | num_columns) >> 32 != 0) return bit / num_columns;
    return static_cast<std::uint32_t>(bit) / static_cast<std::uint32_t>(num_columns);
  }
};

/// Reads a mask from a bit on.
class mask_reader {
 public:
  DDTREE_HD mask_reader(flat_mask const& mask, index_t first)
      : mask_(mask), row_(mask.row_of(first)), column_(first - row_ * mask.num_columns) {}

  /// The next `count` bits, at most 32; 0 behind the last.
  DDTREE_HD std::uint32_t next(int count) {
    std::uint32_t out = 0;
    for (int have = 0; have < count && row_ < mask_.num_rows;) {
      auto const n = static_cast<int>(smaller(mask_.num_columns - column_, count - have));
      out |= (mask_.rows.columns(row_, column_) & rules::low_bits(n)) << have;
      have += n;
      column_ += n;
      if (column_ == mask_.num_columns) {
        column_ = 0;
        ++row_;
      }
    }
    return out;
  }

 private:
  flat_mask const& mask_;
  index_t row_;
  index_t column_;
};

/// 16 bytes, the lowest first.
struct alignas(16) byte_unit {
  std::uint32_t word[4];

  DDTREE_HD std::uint8_t byte(int k) const {
    return static_cast<std::uint8_t>(word[k / 4] >> (k % 4 * 8));
  }
};

/// The 16 bytes that hold 128 bits of a mask from bit `first` on.
DDTREE_HD inline byte_unit packed_bits(flat_mask const& mask, index_t first) {
  mask_reader reader(mask, first);
  byte_unit out;
  for (int k = 0; k < 4; ++k) out.word[k] = reader.next(32);
  return out;
}

/// 16 bits, a byte each.
DDTREE_HD inline byte_unit spread(std::uint32_t bits) {
  byte_unit out;
  // The factor puts bit k of four at 8k, and at places that the mask drops.
  for (int k = 0; k < 4; ++k) out.word[k] = ((bits >> 4 * k & 15u) * 0x00204081u) & 0x01010101u;
  return out;
}

/// Bytes [begin, end) of a buffer, as the units of 16 that are aligned in memory and overlap them.
struct byte_range {
  unsigned char* data = nullptr;
  index_t begin = 0;
  index_t end = 0;

  DDTREE_HD index_t units() const { return begin < end ? divide_up(lead() + end - begin, 16) : 0; }

  /// content(k): the 16 bytes from byte begin + k on; those beyond the range are dropped.
  template <class Content>
  DDTREE_HD void write(index_t unit, Content const& content) const {
    index_t const aligned = begin - lead() + unit * 16;
    index_t const first = larger(aligned, begin);
    auto const n = static_cast<int>(smaller(aligned + 16, end) - first);
    byte_unit const bytes = content(first - begin);
    if (n == 16) {
      *reinterpret_cast<byte_unit*>(data + first) = bytes;
    } else {
      for (int k = 0; k < 16; ++k) {  // a fixed count keeps the words in registers
        if (k < n) data[first + k] = bytes.byte(k);
      }
    }
  }

 private:
  DDTREE_HD index_t lead() const {
    return static_cast<index_t>(reinterpret_cast<std::uintptr_t>(data + begin) % 16);
  }
};

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
