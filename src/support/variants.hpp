// SPDX-License-Identifier: Apache-2.0
// A variant is data: a row in an explicit table per operation. The first row of the context's
// backend that supports and prefers the call wins, else the first that supports it; a row that the
// context names needs only `supports`.
#pragma once

#include <cstddef>

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"
#include "ddtree/variants.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

/// One implementation of an operation; `Call` is its argument struct (support/calls.hpp).
template <class Call>
struct variant {
  char const* name;
  backend_kind backend;
  /// Can it run this call? Null = always.
  bool (*supports)(Call const&);
  /// Should it win here? Null = always.
  bool (*prefers)(Call const&);
  /// Bytes it needs, from the call's context and extents alone. Null = none.
  std::size_t (*workspace)(Call const&);
  /// Validated arguments, resolved strides.
  status (*launch)(Call const&);
};

/// What a context's `variant` text says about one operation.
struct forced_variant {
  /// Not null-terminated; null = not forced.
  char const* name = nullptr;
  std::size_t length = 0;
  /// Named through its floor, which need not have this variant in every operation.
  bool by_floor = false;
};

/// Whether the text consists of `operation=variant` entries with known operations.
bool is_well_formed(char const* text) noexcept;
forced_variant find_forced(char const* text, operation op) noexcept;
bool equals(char const* name, forced_variant const& forced) noexcept;

/// Whether any operation of op's floor has this variant; the list of all variants is in src/api.
bool floor_has(operation op, backend_kind backend, forced_variant const& forced) noexcept;

template <class Call>
struct selection {
  variant<Call> const* row = nullptr;
  status why;  // not ok where row is null
};

template <class Call, std::size_t N>
selection<Call> choose(variant<Call> const (&table)[N], operation op, Call const& call) noexcept {
  forced_variant const forced = find_forced(call.ctx.variant, op);
  if (!is_well_formed(call.ctx.variant)) {
    return {nullptr, {errc::invalid_argument, 0, "context.variant: not a list of operation=variant"}};
  }
  variant<Call> const* first = nullptr;
  variant<Call> const* preferred = nullptr;
  bool backend_seen = false;
  bool name_seen = false;
  for (variant<Call> const& row : table) {
    if (row.backend != call.ctx.backend) continue;
    backend_seen = true;
    bool const named = forced.name != nullptr && equals(row.name, forced);
    name_seen = name_seen || named;
    if (row.supports != nullptr && !row.supports(call)) continue;
    if (named) return {&row, {}};
    if (first == nullptr) first = &row;
    if (preferred == nullptr && (row.prefers == nullptr || row.prefers(call))) preferred = &row;
  }
  if (!backend_seen) {
    return {nullptr, {errc::unsupported_device, 0, "context.backend: not in this build"}};
  }
  if (name_seen) {
    return {nullptr, {errc::unsupported, 0, "context.variant: cannot run this call"}};
  }
  if (forced.name != nullptr && !(forced.by_floor && floor_has(op, call.ctx.backend, forced))) {
    return {nullptr, {errc::invalid_argument, 0, "context.variant: no such variant"}};
  }
  if (preferred != nullptr) return {preferred, {}};
  if (first != nullptr) return {first, {}};
  return {nullptr, {errc::unsupported, 0, "no variant supports this call"}};
}

/// Runs the variant that the call chooses.
template <class Call, std::size_t N>
status dispatch(variant<Call> const (&table)[N], operation op, Call const& call) noexcept {
  selection<Call> const chosen = choose(table, op, call);
  return chosen.row != nullptr ? chosen.row->launch(call) : chosen.why;
}

/// A call that knows its context and extents only: what sizes and `selected` are asked with.
template <class Call>
Call sized_call(context const& ctx, round_shape const& shape) noexcept {
  Call call{};
  call.ctx = ctx;
  call.shape = shape;
  return call;
}

/// The name of the variant that a call of these extents chooses, or null.
template <class Call, std::size_t N>
char const* name_of_choice(variant<Call> const (&table)[N], operation op, context const& ctx,
                           round_shape const& shape) noexcept {
  selection<Call> const chosen = choose(table, op, sized_call<Call>(ctx, shape));
  return chosen.row != nullptr ? chosen.row->name : nullptr;
}

/// Bytes over every row that the context may choose.
template <class Call, std::size_t N>
std::size_t workspace_of(variant<Call> const (&table)[N], Call const& call) noexcept {
  std::size_t bytes = 0;
  for (variant<Call> const& row : table) {
    if (row.backend != call.ctx.backend || row.workspace == nullptr) continue;
    std::size_t const needed = row.workspace(call);
    bytes = needed > bytes ? needed : bytes;
  }
  return bytes;
}

/// Copies a table's rows to a list of variants from position `n` on; returns the position after.
template <class Call, std::size_t N>
std::size_t list(variant<Call> const (&table)[N], operation op, backend_kind backend,
                 variant_info* out, std::size_t capacity, std::size_t n) noexcept {
  for (variant<Call> const& row : table) {
    if (row.backend != backend) continue;
    if (n < capacity) out[n] = {op, row.backend, row.name};
    ++n;
  }
  return n;
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
