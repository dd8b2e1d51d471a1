// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "compact/compact.hpp"
#include "compact/move_rows.cuh"
#include "rules/path.hpp"
#include "rules/slots.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr std::int32_t num_tables = 4;
constexpr unsigned move_threads = 128;  // 8 heads of 128 two-byte values are 128 columns
constexpr unsigned permute_threads = 256;
constexpr index_t max_blocks = (index_t{1} << 31) - 1;

__device__ bool is_sound(kv_tensor const& t) {
  return t.base != nullptr && t.heads > 0 && t.row_bytes > 0 && t.table >= 0 &&
         t.table < num_tables;
}

/// False for an empty path and for a chain.
__device__ bool moves_anything(rules::accepted_row const& row) {
  for (std::int32_t r = 1; r <= row.count; ++r) {
    if (row.path[r] != r) return true;
  }
  return false;
}

/// Where slot `slot` starts in a tensor; null where it is outside.
__device__ char* find_slot(kv_tensor const& tensor, kv_table const& table, index_t request,
                           index_t slot) {
  rules::place const at = rules::locate(table, request, slot);
  if (!at.found || at.page >= tensor.pages) return nullptr;
  return static_cast<char*>(tensor.base) + at.page * tensor.page_stride +
         at.row * tensor.token_stride;
}

/// The move of entry r of the path, if there is one; what is wrong with it goes into the flags.
__device__ bool find_move(support::compact_kv_call const& call, kv_tensor const& tensor,
                          rules::accepted_row const& row, index_t b, std::int32_t r,
                          one_move& move) {
  node_t const node = r == 0 ? 0 : row.path[r];
  if (node == r) return false;
  if (!rules::is_on_path(node, r, call.shape)) {
    add_flags(call.path, b, flag::id_out_of_range);
    return false;
  }
  kv_table const& table = call.cache.table[tensor.table];
  move.to = find_slot(tensor, table, row.at.request, row.at.cache_len + r);
  move.from = find_slot(tensor, table, row.at.request, row.at.cache_len + node);
  if (move.to != nullptr && move.from != nullptr) return true;
  add_flags(call.path, b, flag::slot_out_of_range);
  return false;
}

/// A block for each (tensor, request).
__global__ void __launch_bounds__(move_threads)
    move_rows_kernel(support::compact_kv_call const call) {
  __shared__ move_list moves;
  index_t const batch = call.shape.batch;
  for (index_t i = blockIdx.x; i < call.cache.num_tensors * batch; i += gridDim.x) {
    index_t const b = i % batch;
    rules::accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
    if (row.count < 0) continue;
    if (threadIdx.x == 0) add_flags(call.path, b, row.flags);
    if (!moves_anything(row)) continue;
    kv_tensor const tensor = call.cache.tensors[i / batch];
    if (!is_sound(tensor)) {
      if (threadIdx.x == 0) add_flags(call.path, b, flag::slot_out_of_range);
      continue;
    }
    if (call.cache.table[tensor.table].index_only) continue;
    list_moves(row.count, moves, [&](std::int32_t r, one_move& move) {
      return find_move(call, tensor, row, b, r, move);
    });
    unsigned const width =
        common_width(reinterpret_cast<std::uintptr_t>(tensor.base) |
                     static_cast<std::uint64_t>(tensor.page_stride | tensor.token_stride |
                                                tensor.head_stride | tensor.row_bytes));
    move_columns(moves, {tensor.heads, tensor.head_stride, tensor.row_bytes}, width, threadIdx.x,
                 blockDim.x);
    __syncthreads();  // the list serves the next pair
  }
}

__device__ bool rises(rules::accepted_row const& row, round_shape const& shape) {
  for (std::int32_t r = 1; r <= row.count; ++r) {
    node_t const before = r == 1 ? 0 : row.path[r - 1];
    if (row.path[r] <= before || row.path[r] >= shape.width()) return false;
  }
  return true;
}

/// Where the entry of node `i` goes: accepted nodes first, the others behind them in their order.
__device__ std::int32_t new_place(rules::accepted_row const& row, std::int32_t i) {
  std::int32_t accepted_before = 0;
  for (std::int32_t r = 1; r <= row.count; ++r) {
    if (row.path[r] == i) return r;
    accepted_before += row.path[r] < i ? 1 : 0;
  }
  return row.count + i - accepted_before;
}

/// Block-wide: permutes entries 1..last, entries[0] being the root's.
template <class T>
__device__ void permute(T* entries, rules::accepted_row const& row) {
  constexpr int per_thread = (max_budget + permute_threads) / permute_threads;
  std::int32_t const last = row.path[row.count];
  T held[per_thread];
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    auto const i = static_cast<std::int32_t>(threadIdx.x + j * permute_threads);
    if (i >= 1 && i <= last) held[j] = entries[i];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    auto const i = static_cast<std::int32_t>(threadIdx.x + j * permute_threads);
    if (i >= 1 && i <= last) entries[new_place(row, i)] = held[j];
  }
}

/// A block for each (table, request). All threads of a block take the same branches.
__global__ void __launch_bounds__(permute_threads)
    permute_entries_kernel(support::compact_kv_call const call) {
  index_t const batch = call.shape.batch;
  for (index_t i = blockIdx.x; i < num_tables * batch; i += gridDim.x) {
    index_t const b = i % batch;
    kv_table const& table = call.cache.table[i / batch];
    rules::accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
    if (row.count < 0) continue;
    // Without tensors this kernel is the only one to tell.
    if (threadIdx.x == 0) add_flags(call.path, b, row.flags);
    if (!table.index_only || !moves_anything(row)) continue;
    bool const sound = rises(row, call.shape);
    if (!sound || row.at.cache_len + row.path[row.count] >= table.columns) {
      if (threadIdx.x == 0) {
        add_flags(call.path, b, sound ? flag::slot_out_of_range : flag::id_out_of_range);
      }
      continue;
    }
    index_t const root = row.at.request * table.entries.stride + row.at.cache_len;
    if (table.entries.type == dtype::i64) {
      permute(static_cast<std::int64_t*>(table.entries.data) + root, row);
    } else {
      permute(static_cast<std::int32_t*>(table.entries.data) + root, row);
    }
  }
}

bool permutes(kv_cache const& cache) {
  for (kv_table const& table : cache.table) {
    if (table.index_only) return true;
  }
  return false;
}

index_t held(index_t blocks) { return blocks < max_blocks ? blocks : max_blocks; }

}  // namespace

status compact_kv(support::compact_kv_call const& call) noexcept {
  index_t const batch = call.shape.batch;
  status const moved = launch(call.ctx, move_rows_kernel,
                              {held(call.cache.num_tensors * batch), move_threads}, call);
  if (!moved || !permutes(call.cache)) return moved;
  // Afterwards: a table may stand among the cache's twice, once for its rows.
  return launch(call.ctx, permute_entries_kernel, {held(num_tables * batch), permute_threads},
                call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
