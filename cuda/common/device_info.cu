// SPDX-License-Identifier: Apache-2.0
#include "common/device_info.hpp"

#include <cuda_runtime_api.h>

#include <atomic>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr std::int32_t max_devices = 64;
constexpr std::int32_t oldest_capability = 80;

/// Per-device values, 0 = not asked yet. Racing threads write the same value.
struct property_cache {
  std::atomic<std::int32_t> value[max_devices] = {};
};
constinit property_cache capabilities;
constinit property_cache multiprocessor_counts;

/// Whether the runtime has the device. A query of one that it does not have would fail, and its
/// error would take the place of one of the caller's; the count alone fails only where there is no
/// driver, which is then what every call of the caller's has failed with too.
cudaError_t find(std::int32_t device) noexcept {
  own_errors const own;
  int count = 0;
  cudaError_t const error = cudaGetDeviceCount(&count);
  if (own.take(error) != cudaSuccess) return error;
  return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

std::int32_t attribute(cudaDeviceAttr which, std::int32_t device, cudaError_t& error) noexcept {
  int value = 0;
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, which, device);
  return value;
}

/// The cached value, or what `ask` says; what is not positive is not cached.
template <class Ask>
std::int32_t cached(property_cache& cache, std::int32_t device, Ask ask) noexcept {
  if (device < 0 || device >= max_devices) return ask();
  std::int32_t value = cache.value[device].load(std::memory_order_relaxed);
  if (value == 0) {
    value = ask();
    if (value > 0) cache.value[device].store(value, std::memory_order_relaxed);
  }
  return value;
}

}  // namespace

own_errors::own_errors() noexcept : is_one_pending_(cudaPeekAtLastError() != cudaSuccess) {}

int own_errors::take(int error) const noexcept {
  if (error != cudaSuccess && !is_one_pending_) (void)cudaGetLastError();
  return error;
}

std::int32_t capability(std::int32_t device) noexcept {
  return cached(capabilities, device, [device] {
    cudaError_t error = find(device);
    std::int32_t const major = attribute(cudaDevAttrComputeCapabilityMajor, device, error);
    std::int32_t const minor = attribute(cudaDevAttrComputeCapabilityMinor, device, error);
    return error == cudaSuccess ? 10 * major + minor : -static_cast<std::int32_t>(error);
  });
}

std::int32_t multiprocessors(std::int32_t device) noexcept {
  return cached(multiprocessor_counts, device, [device] {
    cudaError_t error = find(device);
    std::int32_t const count = attribute(cudaDevAttrMultiProcessorCount, device, error);
    return error == cudaSuccess ? count : 0;
  });
}

status usable(std::int32_t device) noexcept {
  std::int32_t const found = capability(device);
  if (found < 0) {
    return {errc::unsupported_device, -found, "context.device: no such device, or no driver"};
  }
  if (found < oldest_capability) {
    return {errc::no_kernel_image, found, "context.device: older than every compiled architecture"};
  }
  return {};
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
