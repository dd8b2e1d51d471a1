// SPDX-License-Identifier: Apache-2.0
#include "ddtree/tree.hpp"

#include "support/arrays.hpp"
#include "support/carve.hpp"
#include "support/validate.hpp"

namespace ddtree {
inline namespace v0 {
namespace {

using check_bind = support::check<"bind_accepted">;

}  // namespace

std::size_t accepted_bytes(round_shape const& shape) noexcept {
  if (!support::is_valid(shape)) return 0;
  support::carver count;
  (void)support::carve_accepted(count, shape);
  return count.bytes();
}

status bind_accepted(round_shape const& shape, workspace memory, accepted* out) noexcept {
  status const bad =
      support::first_failure(check_bind::shape(shape), check_bind::bound<"out">(out));
  if (!bad) return bad;
  std::size_t const needed = accepted_bytes(shape);
  if (memory.bytes < needed) {
    return check_bind::fail<"memory.bytes too small">(errc::workspace_too_small);
  }
  if (needed != 0 && memory.data == nullptr) {
    return check_bind::fail<"memory.data is null">(errc::workspace_too_small);
  }
  support::carver carver(memory);
  *out = support::carve_accepted(carver, shape);
  return {};
}

}  // namespace v0
}  // namespace ddtree
