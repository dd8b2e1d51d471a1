// SPDX-License-Identifier: Apache-2.0
// The library's kernel launches, as a test program sees them. Only where the library is static.
#pragma once

#include <cstddef>

namespace ddtree_test {

/// While it lives, no kernel is launched to begin before the one before it has ended.
class without_overlap {
 public:
  without_overlap();
  ~without_overlap();
  without_overlap(without_overlap const&) = delete;
  without_overlap& operator=(without_overlap const&) = delete;
};

/// Launches so far that may begin before the kernel before them has ended.
std::size_t count_overlapping_launches();

}  // namespace ddtree_test
