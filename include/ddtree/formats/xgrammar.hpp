// SPDX-License-Identifier: Apache-2.0
/// @file xgrammar.hpp
/// XGrammar: the arrays by which a grammar matcher walks a draft tree and fills a bitmask for every
/// node. docs/embed/xgrammar.md says where the call goes.
#ifndef DDTREE_FORMATS_XGRAMMAR_HPP
#define DDTREE_FORMATS_XGRAMMAR_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace xgrammar {

/// Bytes of the traversal arrays.
constexpr index_t traversal_bytes(round_shape const& shape) noexcept {
  return 3 * shape.batch * shape.width() * 8;
}

/// Writes retrieve_next_token, retrieve_next_sibling and draft_tokens, int64 [3, batch, width], one
/// after the other, so that one copy takes them to the host, where the matcher is: first child,
/// next sibling (both local, -1 = none), token. Padding rows repeat the root's token and are linked
/// from nowhere; rows of an inactive request are a root alone.
///
/// Enqueues only: no synchronisation, no allocation, one kernel, capturable.
///
/// @param shape  batch, budget are used.
/// @param tree   token, first_child, next_sibling are used.
/// @param out    int64 [3, batch, width], aligned to 8 bytes.
/// @return `invalid_argument`, `unsupported_device`.
DDTREE_API status write_traversal(context const& ctx, round_shape const& shape,
                                  batch_view const& batch, draft_tree const& tree,
                                  std::int64_t* out) noexcept;

}  // namespace xgrammar
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_XGRAMMAR_HPP
