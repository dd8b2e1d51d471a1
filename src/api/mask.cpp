// SPDX-License-Identifier: Apache-2.0
#include "ddtree/mask.hpp"

#include "api/tables.hpp"
#include "cpu/mask.hpp"
#include "support/calls.hpp"
#include "support/validate.hpp"
#include "support/variants.hpp"

#if defined(DDTREE_WITH_CUDA)
#include "mask/mask.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using support::write_mask_call;
using support::write_verify_inputs_call;

constexpr support::variant<write_mask_call> write_mask_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::write_mask},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::write_mask},
#endif
};

constexpr support::variant<write_verify_inputs_call> write_verify_inputs_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::write_verify_inputs},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::write_verify_inputs},
#endif
};

using check_mask = support::check<"write_mask">;
using check_inputs = support::check<"write_verify_inputs">;

/// Elements or words of a dense row.
index_t dense_row(round_shape const& shape, mask_view const& out) {
  index_t const columns = out.region == mask_columns::tree ? shape.width() : out.columns;
  return out.kind == mask_kind::bits ? (columns + 31) / 32 : columns;
}

status check_view(mask_view const& out) {
  if (out.kind != mask_kind::bits && out.kind != mask_kind::boolean &&
      out.kind != mask_kind::additive) {
    return check_mask::fail<"out.kind is none">();
  }
  if (out.region != mask_columns::tree && out.region != mask_columns::full &&
      out.region != mask_columns::recent) {
    return check_mask::fail<"out.region is none">();
  }
  if (out.kind == mask_kind::boolean && out.type != dtype::u8) {
    return check_mask::fail<"out.type is not u8">();
  }
  if (out.kind == mask_kind::additive && !support::is_float(out.type)) {
    return check_mask::fail<"out.type is not f32, f16 or bf16">();
  }
  if (out.columns < 0) return check_mask::fail<"out.columns < 0">();
  if (out.window < 0) return check_mask::fail<"out.window < 0">();
  return {};
}

/// Arrays without elements may be null.
status check_mask_arrays(round_shape const& shape, draft_tree const& tree, mask_view const& out) {
  if (shape.batch == 0) return {};
  if (auto s = check_mask::bound<"tree.ancestors">(tree.ancestors); !s) return s;
  if (auto s = check_mask::bound<"out.data">(out.data); !s) return s;
  return out.window > 0 ? check_mask::bound<"tree.depth">(tree.depth) : status{};
}

status check_strides(round_shape const& shape, mask_view const& out) {
  if (out.row_stride < 0 || (out.row_stride > 0 && out.row_stride < dense_row(shape, out))) {
    return check_mask::fail<"out.row_stride shorter than a row">();
  }
  if (out.batch_stride < 0) return check_mask::fail<"out.batch_stride < 0">();
  return {};
}

status check_tree(round_shape const& shape, draft_tree const& tree) {
  if (shape.batch == 0) return {};
  return support::first_failure(check_inputs::bound<"tree.token">(tree.token),
                                check_inputs::bound<"tree.depth">(tree.depth),
                                check_inputs::bound<"tree.num_nodes">(tree.num_nodes));
}

/// An optional [batch, width] output named What.
template <support::text What>
status check_rows(round_shape const& shape, ids_out const& out) {
  if (auto s = check_inputs::ids<What>(out); !s || out.data == nullptr) return s;
  if (out.stride > 0 && out.stride < shape.width()) {
    return check_inputs::fail<What + support::text{".stride shorter than a row"}>();
  }
  return {};
}

status check_options(verify_options const& options) {
  if (options.padding != padding_slot::minus_one && options.padding != padding_slot::dummy &&
      options.padding != padding_slot::in_sequence) {
    return check_inputs::fail<"options.padding is none">();
  }
  if (auto s = check_inputs::ids<"options.capacity">(options.capacity); !s) return s;
  return check_inputs::table<"options.table">(options.table);
}

}  // namespace

status write_mask(context const& ctx, round_shape const& shape, batch_view const& batch,
                  draft_tree const& tree, mask_view const& out) noexcept {
  status const bad = support::first_failure(
      check_mask::context(ctx), check_mask::shape(shape), check_mask::batch(batch), check_view(out),
      check_strides(shape, out), check_mask_arrays(shape, tree, out));
  if (!bad) return bad;
  if (out.region != mask_columns::tree && batch.cache_len.data == nullptr) {
    return check_mask::fail<"batch.cache_len is null">();
  }

  write_mask_call call{ctx, shape, batch, tree, out};
  support::set_if_zero(call.out.row_stride, dense_row(shape, out));
  support::set_if_zero(call.out.batch_stride, shape.width() * call.out.row_stride);
  return support::dispatch(write_mask_table, operation::write_mask, call);
}

status write_verify_inputs(context const& ctx, round_shape const& shape, batch_view const& batch,
                           draft_tree const& tree, verify_inputs const& out,
                           verify_options const& options) noexcept {
  status const bad = support::first_failure(
      check_inputs::context(ctx), check_inputs::shape(shape), check_inputs::batch(batch),
      check_tree(shape, tree), check_rows<"out.token">(shape, out.token),
      check_rows<"out.position">(shape, out.position), check_rows<"out.slot">(shape, out.slot),
      check_options(options));
  if (!bad) return bad;
  if (batch.cache_len.data == nullptr &&
      (out.position.data != nullptr || out.slot.data != nullptr)) {
    return check_inputs::fail<"batch.cache_len is null">();
  }

  write_verify_inputs_call call{ctx, shape, batch, tree, out, options};
  support::set_if_zero(call.out.token.stride, shape.width());
  support::set_if_zero(call.out.position.stride, shape.width());
  support::set_if_zero(call.out.slot.stride, shape.width());
  support::set_if_zero(call.options.table.entries.stride, options.table.columns);
  return support::dispatch(write_verify_inputs_table, operation::write_verify_inputs, call);
}

namespace api {

std::size_t list_mask(backend_kind backend, variant_info* out, std::size_t capacity,
                      std::size_t n) noexcept {
  n = support::list(write_mask_table, operation::write_mask, backend, out, capacity, n);
  return support::list(write_verify_inputs_table, operation::write_verify_inputs, backend, out,
                       capacity, n);
}

char const* selected_mask(context const& ctx, operation op, round_shape const& shape) noexcept {
  if (op == operation::write_mask) {
    return support::name_of_choice(write_mask_table, op, ctx, shape);
  }
  return support::name_of_choice(write_verify_inputs_table, op, ctx, shape);
}

}  // namespace api
}  // namespace v0
}  // namespace ddtree
