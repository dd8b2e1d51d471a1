// SPDX-License-Identifier: Apache-2.0
// The one header through which tests see Catch2, version 2 or 3.
//
// DDTREE_SKIP(reason) leaves a test case that cannot run here, for want of a GPU. A program whose
// test cases were all skipped exits with 4, which ctest reports as skipped, never as passed.
#ifndef DDTREE_TESTS_SUPPORT_CATCH_HPP
#define DDTREE_TESTS_SUPPORT_CATCH_HPP

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#define SKIP(reason)             \
  do {                           \
    WARN("skipped: " << reason); \
    return;                      \
  } while (false)
#endif

namespace ddtree_test {
inline bool case_is_skipped = false;  // the test case that runs now
}

#define DDTREE_SKIP(reason)              \
  do {                                   \
    ddtree_test::case_is_skipped = true; \
    SKIP(reason);                        \
  } while (false)

#endif  // DDTREE_TESTS_SUPPORT_CATCH_HPP
