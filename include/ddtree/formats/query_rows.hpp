// SPDX-License-Identifier: Apache-2.0
/// @file query_rows.hpp
/// Which rows of a tree an engine runs.
#ifndef DDTREE_FORMATS_QUERY_ROWS_HPP
#define DDTREE_FORMATS_QUERY_ROWS_HPP

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {

enum class query_rows : std::int32_t {
  /// `width` rows of every request, padding included: a fixed grid.
  width = 0,
  /// The nodes of each tree, packed; none of an inactive request.
  nodes = 1,
};

}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_QUERY_ROWS_HPP
