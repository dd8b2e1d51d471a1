// SPDX-License-Identifier: Apache-2.0
// Moves a request's rows to the front, a column of bytes by each thread. No other thread touches a
// column, and a thread reads up to 16 rows of it before it writes them: sources never lie before
// destinations, so it works in place without shared memory and barriers over the data.
#pragma once

#include "ddtree/compact.hpp"

#include "rules/path.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// The moves of one request in one tensor, in ascending order; in shared memory.
struct move_list {
  static constexpr int capacity = max_depth + 1;
  char* to[capacity];
  char const* from[capacity];
  int count;
};

/// Adds to a request's flags; several blocks may.
__device__ inline void add_flags(accepted const& path, index_t b, std::uint32_t flags) {
  if (flags != 0) atomicOr(path.flags + b, flags);
}

/// The widest power of two up to 16 that divides all of the given addresses and strides.
__device__ inline unsigned common_width(std::uint64_t all_or_ed) {
  return 1u << (__ffsll(static_cast<long long>(all_or_ed | 16u)) - 1);
}

template <class Word>
__device__ void move_column(move_list const& moves, index_t offset) {
  constexpr int chunk = 16;
  for (int first = 0; first < moves.count; first += chunk) {
    Word held[chunk];
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
      if (first + i < moves.count) {
        held[i] = *reinterpret_cast<Word const*>(moves.from[first + i] + offset);
      }
    }
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
      if (first + i < moves.count) {
        *reinterpret_cast<Word*>(moves.to[first + i] + offset) = held[i];
      }
    }
  }
}

/// Where the rows of a tensor have bytes: `heads` pieces of `row_bytes`, head_stride apart.
struct row_pieces {
  index_t heads;
  index_t head_stride;
  index_t row_bytes;
};

/// Moves the columns first, first + step, ... in units of Word.
template <class Word>
__device__ void move_columns(move_list const& moves, row_pieces const& row, index_t first,
                             index_t step) {
  index_t const columns = row.row_bytes / static_cast<index_t>(sizeof(Word));
  for (index_t i = first; i < row.heads * columns; i += step) {
    index_t const head = i / columns;
    move_column<Word>(
        moves, head * row.head_stride + (i - head * columns) * static_cast<index_t>(sizeof(Word)));
  }
}

/// The same in the widest units that `width` (see common_width) allows.
__device__ inline void move_columns(move_list const& moves, row_pieces const& row, unsigned width,
                                    index_t first, index_t step) {
  switch (width) {
    case 16: return move_columns<uint4>(moves, row, first, step);
    case 8: return move_columns<uint2>(moves, row, first, step);
    case 4: return move_columns<std::uint32_t>(moves, row, first, step);
    case 2: return move_columns<std::uint16_t>(moves, row, first, step);
    default: return move_columns<std::uint8_t>(moves, row, first, step);
  }
}

/// Block-wide: fills the list in the order of r = 0, 1, ... with the moves that find(r, move) gives
/// (false = none). All threads of the first warp call find, once at most; ends with a barrier.
struct one_move {
  char* to;
  char const* from;
};
template <class Find>
__device__ void list_moves(std::int32_t count, move_list& moves, Find find) {
  static_assert(move_list::capacity <= 32, "a lane for every entry of a path");
  if (threadIdx.x < 32) {
    auto const r = static_cast<std::int32_t>(threadIdx.x);
    one_move move{nullptr, nullptr};
    bool const moves_row = r <= count && find(r, move);
    unsigned const all = __ballot_sync(0xffffffffu, moves_row);
    if (moves_row) {
      int const at = __popc(all & ((1u << r) - 1));
      moves.to[at] = move.to;
      moves.from[at] = move.from;
    }
    if (r == 0) moves.count = __popc(all);
  }
  __syncthreads();
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
