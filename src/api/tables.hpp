// SPDX-License-Identifier: Apache-2.0
// What each floor tells of its variant tables; src/api/variants.cpp puts them together.
#pragma once

#include <cstddef>

#include "ddtree/variants.hpp"

namespace ddtree {
inline namespace v0 {
namespace api {

/// Copies the floor's variants of a backend to out[n...]; returns the position after the last.
using list_function = std::size_t(backend_kind backend, variant_info* out, std::size_t capacity,
                                  std::size_t n) noexcept;
list_function list_expand, list_build, list_mask, list_accept, list_compact;

/// The variant that the operation (one of the floor's) would run, or null.
using selected_function = char const*(context const& ctx, operation op,
                                      round_shape const& shape) noexcept;
selected_function selected_expand, selected_build, selected_mask, selected_accept,
    selected_compact;

}  // namespace api
}  // namespace v0
}  // namespace ddtree
