// SPDX-License-Identifier: Apache-2.0
#include "ddtree/variants.hpp"

#include <string_view>

#include "api/tables.hpp"
#include "support/validate.hpp"
#include "support/variants.hpp"

namespace ddtree {
inline namespace v0 {
namespace {

/// Ascending; 0 stands for none, since an array cannot be empty.
#if defined(DDTREE_COMPILED_ARCHITECTURES)
constexpr std::int32_t architectures[] = {DDTREE_COMPILED_ARCHITECTURES};
#else
constexpr std::int32_t architectures[] = {0};
#endif

struct floor_entry {
  char const* name;
  api::list_function* list;
  api::selected_function* selected;
};

constexpr floor_entry floors[] = {
    {"expand", api::list_expand, api::selected_expand},
    {"build", api::list_build, api::selected_build},
    {"mask", api::list_mask, api::selected_mask},
    {"accept", api::list_accept, api::selected_accept},
    {"compact", api::list_compact, api::selected_compact},
};

/// The entry of op's floor; the names in `floors` are those of floor_of. Null for no operation.
floor_entry const* find_floor(operation op) {
  support::forced_variant const wanted{floor_of(op), std::char_traits<char>::length(floor_of(op)),
                                       false};
  for (floor_entry const& f : floors) {
    if (support::equals(f.name, wanted)) return &f;
  }
  return nullptr;
}

}  // namespace

std::size_t variants(backend_kind backend, variant_info* out, std::size_t capacity) noexcept {
  std::size_t n = 0;
  for (floor_entry const& f : floors) n = f.list(backend, out, capacity, n);
  return n;
}

char const* selected(context const& ctx, operation op, round_shape const& shape) noexcept {
  floor_entry const* const f = find_floor(op);
  if (f == nullptr || !support::check<"selected">::context(ctx) || !support::is_valid(shape)) {
    return nullptr;
  }
  return f->selected(ctx, op, shape);
}

std::size_t compiled_architectures(std::int32_t* out, std::size_t capacity) noexcept {
  std::size_t n = 0;
  for (std::int32_t const architecture : architectures) {
    if (architecture == 0) continue;
    if (n < capacity) out[n] = architecture;
    ++n;
  }
  return n;
}

namespace support {

bool floor_has(operation op, backend_kind backend, forced_variant const& forced) noexcept {
  floor_entry const* const f = find_floor(op);
  if (f == nullptr) return false;
  constexpr std::size_t room = 64;
  variant_info all[room];
  std::size_t const n = f->list(backend, all, room, 0);
  for (std::size_t i = 0; i < (n < room ? n : room); ++i) {
    if (equals(all[i].name, forced)) return true;
  }
  return false;
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
