// SPDX-License-Identifier: Apache-2.0
// Moves a request's rows to the front, a column of bytes by each thread. No other thread touches a
// column, and a thread reads up to `move_chunk` rows of it before it writes them: sources never lie
// before destinations, so it works in place without barriers over the data.
#pragma once

#include "ddtree/compact.hpp"

#include "common/block.cuh"
#include "rules/path.hpp"
#include "rules/slots.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Rows that a thread holds at once: more registers would leave too few warps to hide the look-ups.
inline constexpr int move_chunk = 8;

/// The moves of one request in one tensor, in ascending order; in shared memory, a list a warp.
struct move_list {
  static constexpr int capacity = max_depth + 1;
  char* to[capacity];
  char* from[capacity];
  int count;
};

/// Has a value asked for here, not where it is first used, so that loads overlap.
template <class T>
__device__ void ask_for(T& value) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
}

/// A request as a warp sees it: lane r has entry r of its path.
struct path_lane {
  rules::accepted_row row;
  node_t node;
};

template <class Call>
__device__ path_lane find_path_lane(Call const& call, index_t b) {
  int const r = lane_index();
  node_t const* const path = call.path.path + b * (index_t{call.shape.depth} + 1);
  node_t node = 1 <= r && r <= call.shape.depth ? path[r] : 0;
  std::int32_t num_accepted = call.path.num_accepted[b];
  ask_for(node);
  ask_for(num_accepted);
  rules::batch_row const at = rules::find_row(call.batch, call.shape.request_rows(), b);
  if (!at.active) return {{at}, node};
  return {rules::accepted_by(at, path, num_accepted, call.shape), node};
}

/// Adds to a request's flags; several blocks may.
__device__ inline void add_flags(accepted const& path, index_t b, std::uint32_t flags) {
  if (flags != 0) atomicOr(path.flags + b, flags);
}

/// The widest power of two up to 16 that divides all of the given addresses and strides.
__device__ inline unsigned common_width(std::uint64_t all_or_ed) {
  return 1u << (__ffsll(static_cast<long long>(all_or_ed | 16u)) - 1);
}

/// The addresses of moves are to be read from shared memory where they are used: held back in
/// registers, they would take more of them than the data.
__device__ inline void forget_shared_values() { asm volatile("" ::: "memory"); }

template <class Word>
__device__ void move_column(move_list const& moves, index_t offset) {
  int const count = moves.count;
#pragma unroll 1
  for (int first = 0; first < count; first += move_chunk) {
    Word held[move_chunk] = {};
    forget_shared_values();
#pragma unroll
    for (int i = 0; i < move_chunk; ++i) {
      if (first + i < count) {
        held[i] = *reinterpret_cast<Word const*>(moves.from[first + i] + offset);
      }
    }
    forget_shared_values();
#pragma unroll
    for (int i = 0; i < move_chunk; ++i) {
      if (first + i < count) {
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
  bool const is_power = (columns & (columns - 1)) == 0;
  int const shift = rules::log2_of(columns);
#pragma unroll 1
  for (index_t i = first; i < row.heads * columns; i += step) {
    index_t const head = is_power ? i >> shift : i / columns;
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

/// Warp-wide: lists the moves of a path. find(entry, is_source) gives the address of a row, null
/// where there is none: where row r goes (entry r) in lane r % 16, where it comes from (entry
/// path[r]) in the lane 16 further. `in_place`: an entry that names itself needs no move.
template <class Call, class Find>
__device__ void list_moves(Call const& call, index_t b, path_lane const& path, bool in_place,
                           move_list& moves, Find find) {
  constexpr int half = 16;
  int const lane = lane_index() % half;
  bool const is_source = lane_index() >= half;
  int count = 0;
  __syncwarp();  // the list before has been read
#pragma unroll 1
  for (int first = 0; first <= path.row.count; first += half) {
    int const r = first + lane;
    node_t const node = __shfl_sync(all_lanes, path.node, r);
    bool const wanted = r <= path.row.count && !(in_place && node == r);
    bool const sound = wanted && rules::is_on_path(node, r, call.shape);
    std::uintptr_t const mine =
        sound ? reinterpret_cast<std::uintptr_t>(find(is_source ? node : r, is_source)) : 0;
    auto const other = static_cast<std::uintptr_t>(
        __shfl_xor_sync(all_lanes, static_cast<unsigned long long>(mine), half));
    bool const found = mine != 0 && other != 0;
    if (wanted && !found) {
      add_flags(call.path, b, sound ? flag::slot_out_of_range : flag::id_out_of_range);
    }
    unsigned const all = __ballot_sync(all_lanes, found && mine != other) & ((1u << half) - 1);
    int const at = count + __popc(all & ((1u << lane) - 1));
    if ((all >> lane & 1u) != 0) {
      (is_source ? moves.from : moves.to)[at] = reinterpret_cast<char*>(mine);
    }
    count += __popc(all);
  }
  if (lane_index() == 0) moves.count = count;
  __syncwarp();
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
