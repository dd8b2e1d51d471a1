// SPDX-License-Identifier: Apache-2.0
/// @file variants.hpp
/// Which implementations this build has, and which one a call would run.
#ifndef DDTREE_VARIANTS_HPP
#define DDTREE_VARIANTS_HPP

#include <cstddef>
#include <cstdint>

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {

/// Every operation that has variants.
enum class operation : std::int32_t {
  expand = 0,
  expand_shard,
  expand_merge,
  build_tree,
  link_tree,
  write_mask,
  write_verify_inputs,
  accept_tokens,
  accept_greedy,
  accept_sampled,
  accept_shard,
  accept_merge,
  compact_kv,
  compact_rows,
  compact_state,
  advance,
};
inline constexpr std::int32_t num_operations = 16;

/// The call's name, such as "accept_greedy"; "unknown" for a value that is none.
DDTREE_API char const* name(operation op) noexcept;

/// The floor that the call belongs to: "expand", "build", "mask", "accept" or "compact".
DDTREE_API char const* floor_of(operation op) noexcept;

/// One implementation of one operation.
struct variant_info {
  operation op = operation::expand;
  backend_kind backend = backend_kind::cpu;
  /// Static storage.
  char const* name = "";
};

/// Lists the variants of a backend in this build, in order of choice.
///
/// @param out       room for `capacity` entries; may be null with capacity 0.
/// @return          how many there are, also where that is more than `capacity`.
DDTREE_API std::size_t variants(backend_kind backend, variant_info* out,
                                std::size_t capacity) noexcept;

/// The variant that a call of this shape would run, forced or chosen; null where none would, as for
/// a forced name that does not exist. Static storage.
DDTREE_API char const* selected(context const& ctx, operation op,
                                round_shape const& shape) noexcept;

/// Compute capabilities with code in this build, such as 90 for sm_90, ascending; empty in a build
/// without CUDA.
///
/// @return how many there are, also where that is more than `capacity`.
DDTREE_API std::size_t compiled_architectures(std::int32_t* out, std::size_t capacity) noexcept;

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_VARIANTS_HPP
