// SPDX-License-Identifier: Apache-2.0
// The benchmark program: what the results were measured on goes into their context.
#include "ddtree/version.h"

#include "cases.hpp"
#include "support/gpu.hpp"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

namespace {

std::string gigabytes(double bytes_per_second) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", bytes_per_second * 1e-9);
  return text;
}

void describe_gpu() {
  for (auto const& [name, value] : bench::gpu::description()) {
    benchmark::AddCustomContext(name, value);
  }
  auto const& roof = bench::gpu::roofs();
  benchmark::AddCustomContext("roof_read_gb_per_s", gigabytes(roof.read));
  benchmark::AddCustomContext("roof_write_gb_per_s", gigabytes(roof.write));
  benchmark::AddCustomContext("roof_copy_gb_per_s", gigabytes(roof.copy));
}

std::string version() {
  return std::to_string(DDTREE_VERSION_MAJOR) + "." + std::to_string(DDTREE_VERSION_MINOR) + "." +
         std::to_string(DDTREE_VERSION_PATCH);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("ddtree", version());
  if (bench::gpu::available()) {
    describe_gpu();
  } else {
    std::fprintf(stderr, "no GPU rows: %s\n", bench::gpu::why_not().c_str());
  }
  bench::add_expand_cases();
  bench::add_build_cases();
  bench::add_mask_cases();
  bench::add_accept_cases();
  bench::add_compact_cases();
  bench::add_round_cases();
  bench::add_shard_cases();
  benchmark::RunSpecifiedBenchmarks();
}
