// SPDX-License-Identifier: Apache-2.0
// The kernel that runs a job of src/formats.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

#include "common/block.cuh"
#include "common/launch.hpp"
#include "formats/formats.hpp"
#include "formats/job.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline constexpr int format_threads = 256;
/// Blocks over which a launch spreads what a few requests have to write: about a wave, since each
/// adds up the requests before it. H200, SGLang's full mask, 64 requests of 65 rows over 4,096
/// columns: 11.9 us with 512, 13.3 with 1,024, 16.0 with 2,048.
inline constexpr index_t format_blocks = 512;

template <class Job>
struct format_params {
  Job job;
  index_t blocks_per_request;
};

/// What the requests before b add up to. Every block adds for itself: a batch is rarely longer than
/// a block, and a launch is saved.
template <class Job>
__device__ typename Job::sums sum_before(Job const& job, index_t b) {
  typename Job::sums before{};
  if constexpr (Job::sums::count > 0) {
    __shared__ typename Job::sums partial[warps_of<format_threads>];
    for (index_t i = threadIdx.x; i < b; i += format_threads) before = before + job.extent(i);
    before = block_reduce<format_threads>(before, plus{}, partial);
  }
  return before;
}

template <class Job>
__global__ __launch_bounds__(format_threads) void format_kernel(format_params<Job> const p) {
  index_t const b = blockIdx.x / p.blocks_per_request;
  index_t const block = blockIdx.x - b * p.blocks_per_request;
  auto const request = p.job.open(b, sum_before(p.job, b));
  index_t const units = p.job.units(request);
  index_t const stride = p.blocks_per_request * format_threads;
  for (index_t unit = block * format_threads + threadIdx.x; unit < units; unit += stride) {
    p.job.write(request, unit);
  }
}

template <class Job>
status run_format(context const& ctx, Job const& job) noexcept {
  index_t const requests = job.requests();
  if (requests == 0) return launch<format_params<Job>>(ctx, format_kernel<Job>, {}, {job, 1});
  index_t const useful = formats::divide_up(job.most_units(), format_threads);
  index_t const most = formats::larger(format_blocks / requests, 1);
  index_t const blocks = formats::larger(formats::smaller(useful, most), 1);
  return launch<format_params<Job>>(ctx, format_kernel<Job>, {requests * blocks, format_threads, 0},
                                    {job, blocks});
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
