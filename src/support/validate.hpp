// SPDX-License-Identifier: Apache-2.0
// Argument checks that every call shares, and how a failed one is reported. A message is a string
// literal put together at compile time: the call's name, then the argument at fault.
#pragma once

#include <cstddef>

#include "ddtree/accept.hpp"
#include "ddtree/context.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"
#include "rules/slots.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

template <std::size_t N>
struct text {
  char data[N];
  constexpr text(char const (&s)[N]) {
    for (std::size_t i = 0; i < N; ++i) data[i] = s[i];
  }
  constexpr text() : data{} {}
};

template <std::size_t A, std::size_t B>
constexpr auto operator+(text<A> const& a, text<B> const& b) {
  text<A + B - 1> out;
  for (std::size_t i = 0; i + 1 < A; ++i) out.data[i] = a.data[i];
  for (std::size_t i = 0; i < B; ++i) out.data[A - 1 + i] = b.data[i];
  return out;
}

template <text Message>
inline constexpr auto literal = Message;

/// Whether a shape is within the limits; what size functions ask.
constexpr bool is_valid(round_shape const& s) {
  return s.batch >= 0 && s.batch <= max_batch && s.vocab >= 1 && s.vocab <= max_vocab &&
         s.depth >= 0 && s.depth <= max_depth && s.top_k >= 1 && s.top_k <= max_top_k &&
         s.budget >= 0 && s.budget <= max_budget && s.requests >= 0;
}

constexpr bool is_float(dtype t) { return t == dtype::f32 || t == dtype::f16 || t == dtype::bf16; }

constexpr index_t element_bytes(dtype t) {
  switch (t) {
    case dtype::u8: return 1;
    case dtype::f16:
    case dtype::bf16: return 2;
    case dtype::i32:
    case dtype::f32: return 4;
    case dtype::i64: return 8;
  }
  return 0;
}

/// Resolves a stride: 0 stands for dense.
constexpr void set_if_zero(index_t& stride, index_t dense) {
  if (stride == 0) stride = dense;
}

/// The checks of one call: `check<"expand">::shape(shape)`.
template <text Op>
struct check {
  template <text What>
  static constexpr status fail(errc code = errc::invalid_argument, std::int32_t detail = 0) {
    return {code, detail, literal<Op + text{": "} + What>.data};
  }

  static constexpr status shape(round_shape const& s) {
    if (s.batch < 0 || s.batch > max_batch) return fail<"shape.batch outside [0, 65535]">();
    if (s.vocab < 1 || s.vocab > max_vocab) return fail<"shape.vocab outside [1, 4194304]">();
    if (s.depth < 0 || s.depth > max_depth) return fail<"shape.depth outside [0, 31]">();
    if (s.top_k < 1 || s.top_k > max_top_k) return fail<"shape.top_k outside [1, 1024]">();
    if (s.budget < 0 || s.budget > max_budget) return fail<"shape.budget outside [0, 2047]">();
    if (s.requests < 0) return fail<"shape.requests < 0">();
    return {};
  }

  static constexpr status context(ddtree::context const& ctx) {
    if (ctx.backend != backend_kind::cpu && ctx.backend != backend_kind::cuda) {
      return fail<"context.backend is none">();
    }
    if (ctx.backend == backend_kind::cpu && ctx.threads < 1) return fail<"context.threads < 1">();
    if (ctx.backend == backend_kind::cuda && ctx.device < 0) return fail<"context.device < 0">();
    return {};
  }

  /// An optional array of ids named What: int32 or int64, stride not negative.
  template <text What>
  static constexpr status ids(ids_in const& in) {
    if (in.data == nullptr) return {};
    if (in.type != dtype::i32 && in.type != dtype::i64) {
      return fail<What + text{" is neither i32 nor i64"}>();
    }
    if (in.stride < 0) return fail<What + text{".stride < 0"}>();
    return {};
  }

  /// As `ids`, and bound.
  template <text What>
  static constexpr status bound_ids(ids_in const& in) {
    if (in.data == nullptr) return fail<What + text{" is null"}>();
    return ids<What>(in);
  }

  /// An array that must be bound.
  template <text What>
  static constexpr status bound(void const* data) {
    if (data == nullptr) return fail<What + text{" is null"}>();
    return {};
  }

  static constexpr status batch(batch_view const& b) {
    if (auto s = ids<"batch.cache_len">(b.cache_len); !s) return s;
    return ids<"batch.request">(b.request);
  }

  /// A block table or slot list named What.
  template <text What>
  static constexpr status table(kv_table const& t) {
    if (auto s = ids<What + text{".entries"}>(t.entries); !s) return s;
    if (t.columns < 0) return fail<What + text{".columns < 0"}>();
    if (t.entries.stride > 0 && t.entries.stride < t.columns) {
      return fail<What + text{".entries.stride shorter than a row"}>();
    }
    if (t.page_size < 1) return fail<What + text{".page_size < 1"}>();
    if (t.entry_scale < 1 || t.entry_scale > rules::max_entry_scale) {
      return fail<What + text{".entry_scale outside [1, 1048576]"}>();
    }
    return {};
  }

  /// Every array of a tree to be written.
  static constexpr status tree_out(draft_tree const& t) {
    bool const all = t.token && t.parent && t.depth && t.rank && t.log_weight && t.first_child &&
                     t.next_sibling && t.ancestors && t.num_nodes && t.flags;
    if (!all) return fail<"out has a null array">();
    return {};
  }

  static status scratch(workspace const& w, std::size_t needed) {
    if (w.bytes < needed) return fail<"workspace.bytes too small">(errc::workspace_too_small);
    if (needed != 0 && w.data == nullptr) {
      return fail<"workspace.data is null">(errc::workspace_too_small);
    }
    return {};
  }
};

/// The first failure of a list of checks, in order; all of them are evaluated (they are cheap).
template <class... Status>
constexpr status first_failure(Status... all) {
  status result;
  ((result.code == errc::ok ? void(result = all) : void()), ...);
  return result;
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
