// SPDX-License-Identifier: Apache-2.0
// main() of every test program, compiled once.
//
// Catch2's exit code may be the number of failures, and 4 failures must not look like a skipped
// program: the code is made here. 0 passed, 1 failed, 4 all test cases skipped.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "support/catch.hpp"

#include <cstdio>

#if __has_include(<catch2/catch_all.hpp>)
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

namespace {

int cases = 0;
int skipped = 0;
bool failed = false;

struct case_counter : listener_base {
  using listener_base::listener_base;

  void testCaseStarting(Catch::TestCaseInfo const&) override { ddtree_tests::skipped = false; }
  void testCaseEnded(Catch::TestCaseStats const& stats) override {
    ++cases;
    skipped += ddtree_tests::skipped;
    failed |= stats.totals.assertions.failed > 0;
  }
};
CATCH_REGISTER_LISTENER(case_counter)

}  // namespace

int main(int argc, char** argv) {
  int const result = Catch::Session().run(argc, argv);
  if (cases == 0) return result;  // a listing, or a wrong argument
  if (skipped > 0) std::printf("%d of %d test cases skipped\n", skipped, cases);
  if (skipped == cases && !failed) return 4;
  return result != 0;
}
