// SPDX-License-Identifier: Apache-2.0
// main() of every test program, compiled once.
//
// Catch2's exit code may be the number of failures, and 4 failures must not look like a skipped
// program: the code is made here. 0 passed, 1 failed, 4 all test cases skipped.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "support/catch.hpp"
#include "support/device.hpp"

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

  void testCaseStarting(Catch::TestCaseInfo const&) override {
    ddtree_test::case_is_skipped = false;
  }
  void testCaseEnded(Catch::TestCaseStats const& stats) override {
    ++cases;
    skipped += ddtree_test::case_is_skipped;
    failed |= stats.totals.assertions.failed > 0;
  }
};
CATCH_REGISTER_LISTENER(case_counter)

}  // namespace

int main(int argc, char** argv) {
  if (ddtree_test::tested_backend() == ddtree::backend_kind::cuda &&
      !ddtree_test::has_cuda_device()) {
    auto const all = Catch::getAllTestCasesSorted(Catch::Config(Catch::ConfigData()));
    std::printf("no CUDA device: %zu test cases skipped\n", all.size());
    return 4;
  }
  int const result = Catch::Session().run(argc, argv);
  if (cases == 0) return result;  // a listing, or a wrong argument
  if (skipped > 0) std::printf("%d of %d test cases skipped\n", skipped, cases);
  if (skipped == cases && !failed) return 4;
  return result != 0;
}
