// SPDX-License-Identifier: Apache-2.0
// What the benchmarks need of a GPU. Builds without CUDA have the same functions over no device
// (no_gpu.cpp). Failures throw std::runtime_error.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include "support/logit.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bench::gpu {

/// Whether there is a device to time, and if not, why.
bool available();
std::string why_not();

/// Device 0, on a stream of the benchmarks' own.
ddtree::context context();
/// Names and values: device, driver, runtime.
std::vector<std::pair<std::string, std::string>> description();
std::size_t l2_bytes();
int multiprocessors();

/// Zeroed device memory.
void* allocate(std::size_t bytes);
void release(void* memory);
/// In any direction, after all that was enqueued. Waits.
void copy(void* to, void const* from, std::size_t bytes);

void fill_logits(void* data, logit_rows const& rows);
/// Sets the elements `at` (host memory) to `value`.
void set_logits(void* data, ddtree::dtype type, std::vector<ddtree::index_t> const& at,
                float value);
/// Enqueues what an all-gather leaves behind: `from` is [ranks, rows, row_bytes], `to` [rows,
/// ranks, row_bytes]. Multiples of 16 bytes.
void gather(void* to, void const* from, ddtree::index_t ranks, ddtree::index_t rows,
            ddtree::index_t row_bytes);

/// Microseconds per launch: of the replays of a captured graph, quantiles.
struct launch_time {
  double median = 0, p10 = 0, p90 = 0;
  int launches = 0, replays = 0;
};
/// Times `enqueue`, which is given the number of the launch, to rotate inputs by. A graph has a
/// multiple of `copies` launches, so that the rotation goes on from replay to replay.
launch_time time_launches(std::function<void(int launch)> const& enqueue, int copies);

/// Bytes per second of the fastest plain kernels on this device, measured once.
struct roof {
  double read = 0, write = 0, copy = 0;
};
roof const& roofs();

}  // namespace bench::gpu
