// SPDX-License-Identifier: Apache-2.0
// Argument checks that the engines' calls share.
#pragma once

#include "ddtree/formats/query_rows.hpp"
#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

#include "support/validate.hpp"
#include "support/variants.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {

template <support::text Op>
struct check : support::check<Op> {
  using base = support::check<Op>;

  /// What every call begins with. A format has one implementation per backend, so that entries of
  /// context.variant concern other calls; the text must be sound all the same.
  static status call(ddtree::context const& ctx, round_shape const& shape,
                     batch_view const& batch) {
    if (!support::is_well_formed(ctx.variant)) {
      return {errc::invalid_argument, 0, "context.variant: not a list of operation=variant"};
    }
    return support::first_failure(base::context(ctx), base::shape(shape), base::batch(batch));
  }

  /// An optional [n, columns] array named What.
  template <support::text What>
  static constexpr status rows(ids_in const& ids, index_t columns) {
    if (auto s = base::template ids<What>(ids); !s || ids.data == nullptr) return s;
    if (ids.stride > 0 && ids.stride < columns) {
      return base::template fail<What + support::text{".stride shorter than a row"}>();
    }
    return {};
  }

  /// As `rows`, and bound.
  template <support::text What>
  static constexpr status bound_rows(ids_in const& ids, index_t columns) {
    if (ids.data == nullptr) return base::template fail<What + support::text{" is null"}>();
    return rows<What>(ids, columns);
  }

  template <support::text What>
  static constexpr status rows_option(query_rows rows) {
    if (rows == query_rows::width || rows == query_rows::nodes) return {};
    return base::template fail<What + support::text{" is none"}>();
  }

  /// An accepted path to be written.
  static constexpr status path_out(round_shape const& shape, accepted const& out) {
    bool const all = out.path && out.num_accepted && out.token && out.bonus && out.flags;
    if (!all && shape.batch > 0) return base::template fail<"out has a null array">();
    if (out.log_prob != nullptr) return base::template fail<"out.log_prob is not null">();
    return {};
  }

  /// An array that must be bound where `wanted`; without elements it may be null.
  template <support::text What>
  static constexpr status needed(bool wanted, round_shape const& shape, void const* data) {
    return wanted && shape.batch > 0 ? base::template bound<What>(data) : status{};
  }
};

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
