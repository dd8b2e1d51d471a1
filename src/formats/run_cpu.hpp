// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

#include "formats/job.hpp"
#include "support/parallel.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {

/// Runs a job on the CPU. A piece is a share of the units of some requests that follow each other.
template <class Job>
status run_cpu(context const& ctx, Job const& job) noexcept {
  index_t const requests = job.requests();
  index_t const workers = support::count_workers(ctx.threads, support::max_threads);
  index_t const ranges = smaller(requests, 4 * workers);
  index_t const shares = requests < workers ? workers : 1;
  support::parallel_for(ctx.threads, ranges * shares, [&](index_t piece, std::int32_t) {
    index_t const range = piece / shares;
    index_t const share = piece % shares;
    typename Job::sums before{};
    for (index_t b = 0; b < requests * (range + 1) / ranges; ++b) {
      if (b >= requests * range / ranges) {
        auto const request = job.open(b, before);
        index_t const units = job.units(request);
        index_t const end = units * (share + 1) / shares;
        for (index_t unit = units * share / shares; unit < end; ++unit) job.write(request, unit);
      }
      if constexpr (Job::sums::count > 0) {
        if (b + 1 < requests) before = before + job.extent(b);
      }
    }
  });
  return {};
}

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
