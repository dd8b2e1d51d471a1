// SPDX-License-Identifier: Apache-2.0
// Rows go in ascending order. As path[r] >= r, no row is written before it was read.
#include "cpu/compact.hpp"

#include "rules/path.hpp"
#include "rules/slots.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

using rules::accepted_row;

constexpr std::int32_t num_tables = 4;

/// Several pieces of one request may run at once.
void add_flags(accepted const& path, index_t b, std::uint32_t flags) {
  if (flags == 0) return;
  std::atomic_ref<std::uint32_t>(path.flags[b]).fetch_or(flags, std::memory_order_relaxed);
}

/// False for an empty path and for a chain.
bool moves_anything(accepted_row const& row) {
  for (std::int32_t r = 1; r <= row.count; ++r) {
    if (row.path[r] != r) return true;
  }
  return false;
}

bool is_sound(kv_tensor const& t) {
  return t.base != nullptr && t.heads > 0 && t.row_bytes > 0 && t.table >= 0 &&
         t.table < num_tables;
}

/// Where slot `slot` starts in a tensor; null where it is outside.
char* find_slot(kv_tensor const& tensor, kv_table const& table, index_t request, index_t slot) {
  rules::place const at = rules::locate(table, request, slot);
  if (!at.found || at.page >= tensor.pages) return nullptr;
  return static_cast<char*>(tensor.base) + at.page * tensor.page_stride +
         at.row * tensor.token_stride;
}

void move_heads(kv_tensor const& tensor, char* to, char const* from) {
  for (std::int32_t head = 0; head < tensor.heads; ++head) {
    index_t const offset = head * tensor.head_stride;
    std::memmove(to + offset, from + offset, static_cast<std::size_t>(tensor.row_bytes));
  }
}

/// Moves one request's rows in one tensor; returns what it met.
std::uint32_t move_rows(support::compact_kv_call const& call, kv_tensor const& tensor,
                        accepted_row const& row) {
  if (!moves_anything(row)) return 0;
  if (!is_sound(tensor)) return flag::slot_out_of_range;
  kv_table const& table = call.cache.table[tensor.table];
  if (table.index_only) return 0;
  std::uint32_t met = 0;
  for (std::int32_t r = 1; r <= row.count; ++r) {
    node_t const node = row.path[r];
    if (node == r) continue;
    if (!rules::is_on_path(node, r, call.shape)) {
      met |= flag::id_out_of_range;
      continue;
    }
    char* const to = find_slot(tensor, table, row.at.request, row.at.cache_len + r);
    char const* const from = find_slot(tensor, table, row.at.request, row.at.cache_len + node);
    if (to == nullptr || from == nullptr) {
      met |= flag::slot_out_of_range;
      continue;
    }
    move_heads(tensor, to, from);
  }
  return met;
}

bool rises(accepted_row const& row, round_shape const& shape) {
  for (std::int32_t r = 1; r <= row.count; ++r) {
    node_t const before = r == 1 ? 0 : row.path[r - 1];
    if (row.path[r] <= before || row.path[r] >= shape.width()) return false;
  }
  return true;
}

/// Puts the entries of accepted nodes first, entries[0] being the root's. The others before the
/// last accepted one close up behind them.
template <class T>
void permute(T* entries, accepted_row const& row) {
  T first[max_depth + 1];
  for (std::int32_t r = 1; r <= row.count; ++r) first[r] = entries[row.path[r]];
  std::int32_t next = row.count;  // the accepted node to be met next, from the back
  node_t to = row.path[row.count];
  for (node_t node = to; node >= 1; --node) {
    if (next >= 1 && node == row.path[next]) {
      --next;
    } else {
      entries[to--] = entries[node];
    }
  }
  for (std::int32_t r = 1; r <= row.count; ++r) entries[r] = first[r];
}

/// Permutes one request's entries of an index_only table; returns what it met.
std::uint32_t permute_entries(support::compact_kv_call const& call, kv_table const& table,
                              accepted_row const& row) {
  if (!table.index_only || !moves_anything(row)) return 0;
  if (!rises(row, call.shape)) return flag::id_out_of_range;
  if (row.at.cache_len + row.path[row.count] >= table.columns) return flag::slot_out_of_range;
  index_t const root = row.at.request * table.entries.stride + row.at.cache_len;
  if (table.entries.type == dtype::i64) {
    permute(static_cast<std::int64_t*>(table.entries.data) + root, row);
  } else {
    permute(static_cast<std::int32_t*>(table.entries.data) + root, row);
  }
  return 0;
}

/// Copies one request's rows; returns what it met.
std::uint32_t copy_rows(support::compact_rows_call const& call, accepted_row const& row,
                        index_t b) {
  index_t const first_from = rules::row_index(call.from, b, 0);
  index_t const first_to = rules::row_index(call.to, b, 0);
  if (first_from < 0 || first_to < 0) return flag::slot_out_of_range;
  std::uint32_t met = 0;
  for (std::int32_t r = 0; r <= row.count; ++r) {
    node_t const node = r == 0 ? 0 : row.path[r];
    if (!rules::is_on_path(node, r, call.shape)) {
      met |= flag::id_out_of_range;
      continue;
    }
    char* const to = static_cast<char*>(call.to.data) + (first_to + r) * call.to.row_stride_bytes;
    char const* const from =
        static_cast<char const*>(call.from.data) + (first_from + node) * call.from.row_stride_bytes;
    if (to != from) std::memmove(to, from, static_cast<std::size_t>(call.to.row_bytes));
  }
  return met;
}

bool is_slot(index_t slot, index_t slots) { return slot >= 0 && slot < slots; }

bool is_sound(state_tensor const& t) { return t.from != nullptr && t.to != nullptr && t.bytes > 0; }

/// Copies one request's state in one tensor; returns what it met.
std::uint32_t copy_state(support::compact_state_call const& call, state_tensor const& tensor,
                         accepted_row const& row, index_t b) {
  state_view const& state = call.state;
  index_t const take = state.take.data != nullptr ? rules::load_id(state.take, b) : row.count;
  index_t const from =
      state.from_slot.data != nullptr ? rules::load_id(state.from_slot, row.at.request) : b;
  index_t const to = state.to_slot.data != nullptr ? rules::load_id(state.to_slot, row.at.request)
                                                   : row.at.request;
  if (take == -1 || to == -1) return 0;
  if (take < 0 || take > row.count || !is_sound(tensor) || !is_slot(from, tensor.from_slots) ||
      !is_slot(to, tensor.to_slots)) {
    return flag::slot_out_of_range;
  }
  auto const r = static_cast<std::int32_t>(take);
  node_t const node = r == 0 ? 0 : row.path[r];
  if (!rules::is_on_path(node, r, call.shape)) return flag::id_out_of_range;
  std::memmove(static_cast<char*>(tensor.to) + to * tensor.to_slot_stride,
               static_cast<char const*>(tensor.from) + from * tensor.from_slot_stride +
                   node * tensor.from_node_stride,
               static_cast<std::size_t>(tensor.bytes));
  return 0;
}

/// Runs body(piece of the request, accepted row, b) for every live request, `pieces` of each, and
/// collects what it returns in the request's flags.
template <class Call, class Body>
void for_each_piece(Call const& call, index_t pieces, Body body) {
  index_t const batch = call.shape.batch;
  support::parallel_for(call.ctx.threads, pieces * batch, [&](index_t i, std::int32_t) {
    index_t const b = i % batch;
    accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
    if (row.count >= 0) add_flags(call.path, b, row.flags | body(i / batch, row, b));
  });
}

}  // namespace

status compact_kv(support::compact_kv_call const& call) noexcept {
  for_each_piece(call, call.cache.num_tensors, [&](index_t t, accepted_row const& row, index_t) {
    return move_rows(call, call.cache.tensors[t], row);
  });
  // Afterwards: a table may stand among the cache's twice, once for its rows.
  bool const permutes = std::any_of(call.cache.table, call.cache.table + num_tables,
                                    [](kv_table const& table) { return table.index_only; });
  for_each_piece(call, permutes ? num_tables : 0, [&](index_t t, accepted_row const& row, index_t) {
    return permute_entries(call, call.cache.table[t], row);
  });
  return {};
}

status compact_rows(support::compact_rows_call const& call) noexcept {
  for_each_piece(call, 1, [&](index_t, accepted_row const& row, index_t b) {
    return copy_rows(call, row, b);
  });
  return {};
}

status compact_state(support::compact_state_call const& call) noexcept {
  for_each_piece(call, call.state.num_tensors, [&](index_t t, accepted_row const& row, index_t b) {
    return copy_state(call, call.state.tensors[t], row, b);
  });
  return {};
}

status advance(support::advance_call const& call) noexcept {
  for (index_t b = 0; b < call.shape.batch; ++b) {
    accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
    if (row.count < 0) continue;
    index_t const length = rules::load_id(call.cache_len, row.at.request);
    if (length < 0 || length > rules::max_cache_len) continue;
    rules::store_id(call.cache_len, row.at.request, length + row.count + 1);
  }
  return {};
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
