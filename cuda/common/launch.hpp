// SPDX-License-Identifier: Apache-2.0
// How a kernel is enqueued: on the context's device and stream, reporting its own result only.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

#include "common/device_info.hpp"

#include <cuda_runtime.h>

#include <cstddef>

namespace ddtree {
inline namespace v0 {
namespace cuda {

inline status from_error(own_errors const& own, cudaError_t error) noexcept {
  (void)own.take(error);
  if (error == cudaSuccess) return {};
  return {errc::cuda_error, static_cast<std::int32_t>(error), cudaGetErrorString(error)};
}

/// Makes the context's device current while it lives.
class device_scope {
 public:
  explicit device_scope(std::int32_t device) noexcept : device_(device), why_(usable(device)) {
    if (!why_) return;
    why_ = from_error(own_, cudaGetDevice(&previous_));
    if (why_ && previous_ != device_) why_ = from_error(own_, cudaSetDevice(device_));
    entered_ = static_cast<bool>(why_);
  }
  ~device_scope() {
    if (entered_ && previous_ != device_) (void)cudaSetDevice(previous_);
  }
  device_scope(device_scope const&) = delete;
  device_scope& operator=(device_scope const&) = delete;

  status why() const noexcept { return why_; }
  own_errors const& own() const noexcept { return own_; }

 private:
  own_errors own_;
  std::int32_t device_;
  int previous_ = 0;
  bool entered_ = false;
  status why_;
};

/// The extents of a launch.
struct launch_shape {
  index_t blocks = 0;  // 0 = nothing to do
  unsigned threads = 0;
  std::size_t shared_bytes = 0;  // dynamic
  index_t rows = 1;              // of a grid of two dimensions
  /// May begin while the kernel enqueued before it by the same call runs, where the device can; it
  /// waits for that kernel with await_previous_kernel().
  bool overlaps = false;
  unsigned cluster = 1;  // consecutive blocks that form a cluster; `blocks` is a multiple of it
};

/// Enqueues one kernel with one parameter struct. No blocks = no launch.
template <class Params>
status launch(context const& ctx, void (*kernel)(Params const), launch_shape const& shape,
              Params const& params) noexcept {
  device_scope const scope(ctx.device);
  if (!scope.why() || shape.blocks == 0) return scope.why();
  // 48 KB is what a block has without asking. The value asked for depends on the kernel and its
  // extents only, and more is never taken back.
  if (shape.shared_bytes > 48 * 1024) {
    cudaError_t const error = cudaFuncSetAttribute(reinterpret_cast<void const*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return from_error(scope.own(), error);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.rows));
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = ctx.stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (shape.overlaps && capability(ctx.device) >= 90) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
  void* arguments[] = {const_cast<Params*>(&params)};
  return from_error(scope.own(),
                    cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(kernel), arguments));
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
