// SPDX-License-Identifier: Apache-2.0
#include "ddtree/compact.hpp"

#include "api/tables.hpp"
#include "cpu/compact.hpp"
#include "support/calls.hpp"
#include "support/validate.hpp"
#include "support/variants.hpp"

#if defined(DDTREE_WITH_CUDA)
#include "compact/compact.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using support::advance_call;
using support::compact_kv_call;
using support::compact_rows_call;
using support::compact_state_call;

constexpr support::variant<compact_kv_call> compact_kv_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::compact_kv},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::compact_kv},
#endif
};

constexpr support::variant<compact_rows_call> compact_rows_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::compact_rows},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::compact_rows},
#endif
};

constexpr support::variant<compact_state_call> compact_state_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::compact_state},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::compact_state},
#endif
};

constexpr support::variant<advance_call> advance_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::advance},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::advance},
#endif
};

using check_kv = support::check<"compact_kv">;
using check_rows = support::check<"compact_rows">;
using check_state = support::check<"compact_state">;
using check_advance = support::check<"advance">;

/// What every call that reads a path asks of its first arguments. Arrays of an empty batch may be
/// null.
template <class Check>
status check_common(context const& ctx, round_shape const& shape, batch_view const& batch,
                    accepted const& path) {
  status const bad =
      support::first_failure(Check::context(ctx), Check::shape(shape), Check::batch(batch));
  if (!bad || shape.batch == 0) return bad;
  return support::first_failure(Check::template bound<"path.path">(path.path),
                                Check::template bound<"path.num_accepted">(path.num_accepted),
                                Check::template bound<"path.flags">(path.flags));
}

status check_table(kv_table const& table) {
  if (auto s = check_kv::table<"cache.table">(table); !s) return s;
  if (!table.index_only) return {};
  if (table.page_size != 1) return check_kv::fail<"cache.table.index_only with page_size > 1">();
  return check_kv::bound<"cache.table.entries of index_only">(table.entries.data);
}

status check_cache(kv_cache const& cache) {
  if (cache.num_tensors < 0) return check_kv::fail<"cache.num_tensors < 0">();
  if (cache.num_tensors > 0 && cache.tensors == nullptr) {
    return check_kv::fail<"cache.tensors is null">();
  }
  return support::first_failure(check_table(cache.table[0]), check_table(cache.table[1]),
                                check_table(cache.table[2]), check_table(cache.table[3]));
}

/// One of compact_rows' views, named What.
template <support::text What>
status check_view(round_shape const& shape, rows_view const& rows) {
  using support::text;
  if (rows.data == nullptr && shape.batch > 0)
    return check_rows::fail<What + text{".data is null"}>();
  if (rows.row_bytes < 1) return check_rows::fail<What + text{".row_bytes < 1"}>();
  if (rows.row_stride_bytes != 0 && rows.row_stride_bytes < rows.row_bytes) {
    return check_rows::fail<What + text{".row_stride_bytes shorter than a row"}>();
  }
  if (rows.batch_stride < 0) return check_rows::fail<What + text{".batch_stride < 0"}>();
  return check_rows::ids<What + text{".row_offset"}>(rows.row_offset);
}

void resolve(rows_view& rows, round_shape const& shape) {
  support::set_if_zero(rows.row_stride_bytes, rows.row_bytes);
  support::set_if_zero(rows.batch_stride, shape.width());
}

status check_states(state_view const& state) {
  if (state.num_tensors < 0) return check_state::fail<"state.num_tensors < 0">();
  if (state.num_tensors > 0 && state.tensors == nullptr) {
    return check_state::fail<"state.tensors is null">();
  }
  return support::first_failure(check_state::ids<"state.from_slot">(state.from_slot),
                                check_state::ids<"state.to_slot">(state.to_slot),
                                check_state::ids<"state.take">(state.take));
}

}  // namespace

status compact_kv(context const& ctx, round_shape const& shape, batch_view const& batch,
                  accepted const& path, kv_cache const& cache) noexcept {
  status const bad = support::first_failure(
      check_common<check_kv>(ctx, shape, batch, path),
      check_kv::bound<"batch.cache_len">(batch.cache_len.data), check_cache(cache));
  if (!bad) return bad;

  compact_kv_call call{ctx, shape, batch, path, cache};
  for (kv_table& table : call.cache.table) {
    support::set_if_zero(table.entries.stride, table.columns);
  }
  return support::dispatch(compact_kv_table, operation::compact_kv, call);
}

status compact_rows(context const& ctx, round_shape const& shape, batch_view const& batch,
                    accepted const& path, rows_view const& from, rows_view const& to) noexcept {
  status const bad =
      support::first_failure(check_common<check_rows>(ctx, shape, batch, path),
                             check_view<"from">(shape, from), check_view<"to">(shape, to));
  if (!bad) return bad;
  if (from.row_bytes != to.row_bytes) return check_rows::fail<"to.row_bytes != from.row_bytes">();

  compact_rows_call call{ctx, shape, batch, path, from, to};
  resolve(call.from, shape);
  resolve(call.to, shape);
  return support::dispatch(compact_rows_table, operation::compact_rows, call);
}

status compact_state(context const& ctx, round_shape const& shape, batch_view const& batch,
                     accepted const& path, state_view const& state) noexcept {
  status const bad = support::first_failure(check_common<check_state>(ctx, shape, batch, path),
                                            check_states(state));
  if (!bad) return bad;

  compact_state_call const call{ctx, shape, batch, path, state};
  return support::dispatch(compact_state_table, operation::compact_state, call);
}

status advance(context const& ctx, round_shape const& shape, batch_view const& batch,
               accepted const& path, ids_out cache_len) noexcept {
  status const bad = support::first_failure(
      check_advance::context(ctx), check_advance::shape(shape), check_advance::batch(batch),
      check_advance::bound_ids<"cache_len">(cache_len));
  if (!bad) return bad;
  if (path.num_accepted == nullptr && shape.batch > 0) {
    return check_advance::fail<"path.num_accepted is null">();
  }

  advance_call const call{ctx, shape, batch, path, cache_len};
  return support::dispatch(advance_table, operation::advance, call);
}

namespace api {

std::size_t list_compact(backend_kind backend, variant_info* out, std::size_t capacity,
                         std::size_t n) noexcept {
  n = support::list(compact_kv_table, operation::compact_kv, backend, out, capacity, n);
  n = support::list(compact_rows_table, operation::compact_rows, backend, out, capacity, n);
  n = support::list(compact_state_table, operation::compact_state, backend, out, capacity, n);
  return support::list(advance_table, operation::advance, backend, out, capacity, n);
}

char const* selected_compact(context const& ctx, operation op, round_shape const& shape) noexcept {
  switch (op) {
    case operation::compact_kv: return support::name_of_choice(compact_kv_table, op, ctx, shape);
    case operation::compact_rows:
      return support::name_of_choice(compact_rows_table, op, ctx, shape);
    case operation::compact_state:
      return support::name_of_choice(compact_state_table, op, ctx, shape);
    default: return support::name_of_choice(advance_table, op, ctx, shape);
  }
}

}  // namespace api
}  // namespace v0
}  // namespace ddtree
