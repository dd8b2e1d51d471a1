// SPDX-License-Identifier: Apache-2.0
#include "common/cluster.hpp"
#include "common/device_info.hpp"
#include "common/launch.hpp"

#include <cuda_runtime.h>

#include <atomic>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int max_devices = 64;
constexpr int cluster_blocks = 8;
constexpr int cluster_threads = 1024;
constexpr int cluster_shared_bytes = 64 * 1024;

/// 0 = not asked yet, 1 = no, 2 = yes. Racing threads write the same value.
constinit std::atomic<int> known[max_devices] = {};
constinit std::atomic<int> pretended{-1};

/// Stands for every kernel that a cluster of this size runs.
__global__ __launch_bounds__(cluster_threads) void cluster_probe(int const) {}

bool ask(std::int32_t device) noexcept {
  if (capability(device) < 90) return false;
  device_scope const scope(device);
  if (!scope.why()) return false;
  auto const kernel = reinterpret_cast<void const*>(cluster_probe);
  if (scope.own().take(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            cluster_shared_bytes)) != cudaSuccess) {
    return false;
  }
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {cluster_blocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(cluster_blocks);
  config.blockDim = dim3(cluster_threads);
  config.dynamicSmemBytes = cluster_shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  int const error = scope.own().take(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return error == cudaSuccess && clusters > 0;
}

}  // namespace

bool can_run_clusters(std::int32_t device) noexcept {
  int const told = pretended.load(std::memory_order_relaxed);
  if (told >= 0) return told != 0;
  if (device < 0 || device >= max_devices) return ask(device);
  int answer = known[device].load(std::memory_order_relaxed);
  if (answer == 0) {
    answer = ask(device) ? 2 : 1;
    known[device].store(answer, std::memory_order_relaxed);
  }
  return answer == 2;
}

void pretend_clusters_fit(int answer) noexcept {
  pretended.store(answer, std::memory_order_relaxed);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
