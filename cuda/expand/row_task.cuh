// SPDX-License-Identifier: Apache-2.0
// The row that a block of an expand kernel works on, and the flags of its request.
#pragma once

#include "ddtree/expand.hpp"
#include "ddtree/views.hpp"

#include "common/block.cuh"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Threads of a block, two of which share a multiprocessor at least.
inline constexpr int row_threads = 512;
inline constexpr int row_blocks_per_multiprocessor = 2;

/// Row (b, i) of a call. Grids are exact: a block per row, at most 65,535 * 31.
struct row_task {
  std::int32_t row;
  std::int32_t b;
  std::int32_t i;
};

__device__ inline row_task find_task(round_shape const& shape) {
  auto const row = static_cast<std::int32_t>(blockIdx.x);
  std::int32_t const b = row / shape.depth;
  return {row, b, row - b * shape.depth};
}

template <class Call>
__device__ rules::batch_row find_request(Call const& call, row_task const& task) {
  return rules::find_row(call.batch, call.shape.request_rows(), task.b);
}

/// 1 / temperature of an active request.
__device__ inline float reciprocal_temperature(expand_options const& options, index_t request) {
  float const* const by_request = options.temperature_by_request;
  return rules::reciprocal_temperature(by_request != nullptr ? by_request[request]
                                                             : options.temperature);
}

/// Adds what the threads of a warp met to the flags of a request.
__device__ inline void raise_flags(std::uint32_t* request_flags, std::uint32_t met) {
  met = __reduce_or_sync(all_lanes, met);
  if (met != 0 && lane_index() == 0) atomicOr(request_flags, met);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
