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
constexpr unsigned move_threads = 128;
// Blocks of a multiprocessor, at least. 6 to 8 and a chunk of 8 rows are alike on an H200; a chunk
// of 16 takes 5 blocks and is slower at 7 rows, one wave of blocks over several tensors is slower
// at 64 requests and more.
constexpr unsigned move_blocks = 8;
constexpr unsigned permute_threads = 256;
constexpr index_t max_blocks = (index_t{1} << 31) - 1;

__device__ bool is_sound(kv_tensor const& t) {
  return t.base != nullptr && t.heads > 0 && t.row_bytes > 0 && t.table >= 0 &&
         t.table < num_tables;
}

/// All words at once; see ask_for.
__device__ kv_tensor load_tensor(kv_tensor const* from) {
  constexpr int words = sizeof(kv_tensor) / sizeof(std::uint64_t);
  static_assert(words * sizeof(std::uint64_t) == sizeof(kv_tensor));
  std::uint64_t word[words];
#pragma unroll
  for (int i = 0; i < words; ++i) word[i] = reinterpret_cast<std::uint64_t const*>(from)[i];
#pragma unroll
  for (int i = 0; i < words; ++i) ask_for(word[i]);
  kv_tensor tensor;
  memcpy(&tensor, word, sizeof(tensor));
  return tensor;
}

/// Where a slot starts in a tensor; null where it is outside.
__device__ char* find_slot(kv_tensor const& tensor, kv_table const& table, index_t request,
                           index_t slot) {
  rules::place const at = rules::locate(table, request, slot);
  if (!at.found || at.page >= tensor.pages) return nullptr;
  return static_cast<char*>(tensor.base) + at.page * tensor.page_stride +
         at.row * tensor.token_stride;
}

/// A block for each request (x) and tensor (y); its warps share the columns and look the slots up
/// each for itself.
__global__ void __launch_bounds__(move_threads, move_blocks)
    move_rows_kernel(support::compact_kv_call const call) {
  __shared__ move_list lists[move_threads / 32];
  move_list& moves = lists[warp_index()];
  index_t const b = blockIdx.x;
  for (index_t t = blockIdx.y; t < call.cache.num_tensors; t += gridDim.y) {
    kv_tensor const tensor = load_tensor(call.cache.tensors + t);
    path_lane const path = find_path_lane(call, b);
    if (path.row.count < 0) return;
    if (t == 0 && threadIdx.x == 0) add_flags(call.path, b, path.row.flags);
    bool const moves_lane = lane_index() <= path.row.count && path.node != lane_index();
    if (!__any_sync(all_lanes, moves_lane)) return;
    if (!is_sound(tensor)) {
      if (threadIdx.x == 0) add_flags(call.path, b, flag::slot_out_of_range);
      continue;
    }
    kv_table const& table = call.cache.table[tensor.table];
    if (table.index_only) continue;
    rules::batch_row const& at = path.row.at;
    list_moves(call, b, path, true, moves, [&](index_t entry, bool) {
      return find_slot(tensor, table, at.request, at.cache_len + entry);
    });
    unsigned const width =
        common_width(reinterpret_cast<std::uintptr_t>(tensor.base) |
                     static_cast<std::uint64_t>(tensor.page_stride | tensor.token_stride |
                                                tensor.head_stride | tensor.row_bytes));
    move_columns(moves, {tensor.heads, tensor.head_stride, tensor.row_bytes}, width, threadIdx.x,
                 move_threads);
  }
}

/// False for an empty path and for a chain.
__device__ bool moves_anything(rules::accepted_row const& row) {
  for (std::int32_t r = 1; r <= row.count; ++r) {
    if (row.path[r] != r) return true;
  }
  return false;
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

status move_rows(support::compact_kv_call const& call) noexcept {
  index_t const tensors = call.cache.num_tensors;
  constexpr index_t most = 65535;  // that a grid has in its second dimension
  return launch(
      call.ctx, move_rows_kernel,
      {tensors > 0 ? call.shape.batch : 0, move_threads, 0, tensors < most ? tensors : most}, call);
}

}  // namespace

status compact_kv(support::compact_kv_call const& call) noexcept {
  index_t const batch = call.shape.batch;
  status const moved = move_rows(call);
  if (!moved || !permutes(call.cache)) return moved;
  // Afterwards: a table may stand among the cache's twice, once for its rows.
  return launch(call.ctx, permute_entries_kernel, {held(num_tables * batch), permute_threads},
                call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
