// SPDX-License-Identifier: Apache-2.0
// What calls leave in the caller's last error. Runs with and without a device.
#include "ddtree/ddtree.hpp"

#include "support/catch.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <set>

namespace {

using ddtree::errc;

/// A call that is sound but for its device.
ddtree::status call_on(std::int32_t device) {
  static unsigned char memory[4096];  // never touched: no kernel runs
  ddtree::context ctx = ddtree::context::cuda(0, cudaStreamPerThread);
  ctx.device = device;
  ddtree::round_shape shape;
  shape.vocab = 100;
  shape.depth = 3;
  shape.top_k = 4;
  auto* const ids = reinterpret_cast<std::int32_t*>(memory);
  ddtree::candidates out{ids, reinterpret_cast<float*>(memory),
                         reinterpret_cast<std::uint32_t*>(memory)};
  ddtree::logits_view draft{memory, ddtree::dtype::f32};
  return ddtree::expand(ctx, shape, {}, draft, out, {memory, sizeof memory});
}

/// Ordinals that name no device here.
std::set<std::int32_t> missing_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  (void)cudaGetLastError();
  std::set<std::int32_t> all;
  for (std::int32_t const device : {count, count + 1, 63, 64, 65, 1000, 2147483647}) {
    if (device >= count) all.insert(device);
  }
  return all;
}

/// The last error where nothing is pending: without a driver the runtime has one always.
cudaError_t clean_error() {
  (void)cudaGetLastError();
  return cudaPeekAtLastError();
}

}  // namespace

TEST_CASE("a device that is not there is told by the status alone", "[contract][cuda][small]") {
  for (std::int32_t const device : missing_devices()) {
    CAPTURE(device);
    cudaError_t const clean = clean_error();
    CHECK(call_on(device).code == errc::unsupported_device);
    CHECK(cudaPeekAtLastError() == clean);
    CHECK(call_on(device).code == errc::unsupported_device);
    CHECK(cudaGetLastError() == clean);
  }
}

TEST_CASE("a call without its device leaves an earlier error alone", "[contract][cuda]") {
  for (std::int32_t const device : missing_devices()) {
    // Not the error that a failed query would leave itself.
    void* memory = nullptr;
    (void)cudaMalloc(&memory, std::size_t{1} << 60);
    cudaError_t const pending = cudaPeekAtLastError();
    CAPTURE(device, pending);
    REQUIRE(pending != cudaSuccess);
    REQUIRE(pending != cudaErrorInvalidDevice);
    CHECK(call_on(device).code == errc::unsupported_device);
    CHECK(cudaGetLastError() == pending);
  }
}

TEST_CASE("a negative device is an argument error", "[contract][cuda]") {
  cudaError_t const clean = clean_error();
  CHECK(call_on(-1).code == errc::invalid_argument);
  CHECK(cudaGetLastError() == clean);
}
