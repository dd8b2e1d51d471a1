// SPDX-License-Identifier: Apache-2.0
// What every call promises on a GPU: it can be captured, it neither allocates nor waits, it leaves
// the caller's device and errors alone, and it gives the CPU's results whatever memory held before.
#include "ddtree/ddtree.hpp"

#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/cuda_graph.hpp"
#include "support/cuda_memory.hpp"
#include "support/cuda_scene.hpp"
#include "support/device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::errc;
using ddtree::round_shape;

round_shape small_shape() {
  round_shape s;
  s.batch = 4;
  s.vocab = 1000;
  s.depth = 5;
  s.top_k = 8;
  s.budget = 16;
  s.requests = 6;
  return s;
}

/// Gives the scene the CPU scene's inputs, and both the same in what calls write.
void copy_scene(scene& to, scene& from, unsigned char fill) {
  to.memory.copy_inputs(from.memory);
  from.memory.fill_outputs(fill);
  to.memory.fill_outputs(fill);
  to.memory.upload();
}

/// Runs a call on the CPU over the scene's own inputs and compares.
void check_against_cpu(named_call const& call, scene& gpu, scene& cpu) {
  gpu.memory.download();
  auto const status = call.run(cpu);
  CAPTURE(status.message);
  REQUIRE(status);
  CHECK(gpu.memory.difference(cpu.memory) == "");
}

/// Calls every operation once on the scene's stream; each must succeed.
void run_all(scene const& s) {
  for (named_call const& call : calls) {
    auto const status = call.run(s);
    CAPTURE(ddtree::name(call.op), status.message);
    REQUIRE(status);
  }
}

/// A scene on the GPU with inputs in it.
void prepare(scene& gpu) {
  scene cpu(context::cpu(), gpu.shape, gpu.type);
  make_inputs(cpu, 1, gpu.shape.batch - 1);
  copy_scene(gpu, cpu, 0xFF);
}

int current_device() {
  int device = -1;
  check_cuda(cudaGetDevice(&device));
  return device;
}

/// Makes device `device` current while it lives.
class other_device {
 public:
  explicit other_device(int device) : before_(current_device()) {
    check_cuda(cudaSetDevice(device));
  }
  other_device(other_device const&) = delete;
  other_device& operator=(other_device const&) = delete;
  ~other_device() { (void)cudaSetDevice(before_); }

 private:
  int before_;
};

}  // namespace

// First in the file: with lazy loading the kernels of these calls are not on the device yet.
TEST_CASE("calls can be captured before any of them ran", "[contract][cuda][small]") {
  context const ctx = cuda_context();
  scene cpu(context::cpu(), small_shape(), dtype::bf16), gpu(ctx, small_shape(), dtype::bf16);
  make_inputs(cpu, 7, 3);
  copy_scene(gpu, cpu, poison_byte);
  captured_graph graph(ctx.stream, [&] { REQUIRE(calls[0].run(gpu)); });
  CHECK(is_kernels_and_memsets(graph.nodes()));
  graph.replay();
  check_against_cpu(calls[0], gpu, cpu);
}

TEST_CASE("every call gives the same bits whatever the workspace held", "[contract][cuda][small]") {
  std::mt19937 random(61);
  for (named_call const& call : calls) {
    for (auto const& named : contexts_for(call.op)) {
      CAPTURE(ddtree::name(call.op), named.name);
      scene cpu(context::cpu(), small_shape(), dtype::f16);
      scene gpu(named.ctx, small_shape(), dtype::f16);
      make_inputs(cpu, 6, 3);
      std::vector<unsigned char> first;
      for (int fill = 0; fill < 4; ++fill) {
        CAPTURE(fill);
        gpu.memory.copy_inputs(cpu.memory);
        gpu.memory.fill_outputs(poison_byte);
        gpu.memory.fill_scratch([&] {
          unsigned const fills[] = {0x00, 0xFF, static_cast<unsigned>(random())};
          return static_cast<unsigned char>(fills[std::min(fill, 2)]);
        });
        gpu.memory.upload();
        REQUIRE(call.run(gpu));
        gpu.memory.download();
        CHECK(gpu.memory.overrun() == "");
        if (fill == 0) first = gpu.memory.results();
        CHECK(gpu.memory.results() == first);
      }
    }
  }
}

TEST_CASE("every call gives the CPU's results over memory filled with 0xFF",
          "[contract][cuda][small]") {
  for (named_call const& call : calls) {
    for (auto const& named : contexts_for(call.op)) {
      scene cpu(context::cpu(), small_shape(), dtype::bf16);
      scene gpu(named.ctx, small_shape(), dtype::bf16);
      CAPTURE(ddtree::name(call.op), named.name);
      make_inputs(cpu, 2, 3);
      copy_scene(gpu, cpu, 0xFF);
      auto const status = call.run(gpu);
      CAPTURE(status.message);
      REQUIRE(status);
      check_against_cpu(call, gpu, cpu);
    }
  }
}

TEST_CASE("every call can be captured as kernels and memsets and replayed over changed data",
          "[contract][cuda][small]") {
  for (named_call const& call : calls) {
    for (auto const& named : contexts_for(call.op)) {
      scene cpu(context::cpu(), small_shape(), dtype::f32),
          gpu(named.ctx, small_shape(), dtype::f32);
      gpu.memory.upload();
      CAPTURE(ddtree::name(call.op), named.name);
      captured_graph graph(named.ctx.stream, [&] {
        auto const status = call.run(gpu);
        CAPTURE(status.message);
        REQUIRE(status);
      });
      CHECK(is_kernels_and_memsets(graph.nodes()));
      ddtree::index_t const live[] = {4, 1, 3, 0, 4};
      for (std::uint64_t replay = 0; replay < 5; ++replay) {
        CAPTURE(replay);
        make_inputs(cpu, 10 + replay, live[replay]);
        copy_scene(gpu, cpu, replay % 2 == 0 ? poison_byte : 0xFF);
        graph.replay();
        check_against_cpu(call, gpu, cpu);
      }
    }
  }
}

TEST_CASE("calls run on the named default streams", "[contract][cuda][small]") {
  for (cudaStream_t const stream : {cudaStreamPerThread, cudaStreamLegacy}) {
    scene gpu(context::cuda(0, stream), small_shape(), dtype::f32);
    scene cpu(context::cpu(), small_shape(), dtype::f32);
    for (named_call const& call : calls) {
      CAPTURE(ddtree::name(call.op), stream == cudaStreamLegacy);
      make_inputs(cpu, 3, 3);
      copy_scene(gpu, cpu, poison_byte);
      REQUIRE(call.run(gpu));
      check_against_cpu(call, gpu, cpu);
    }
  }
}

TEST_CASE("an earlier error of the caller is neither reported nor cleared", "[contract][cuda]") {
  scene gpu(cuda_context(), small_shape(), dtype::f32);
  prepare(gpu);
  SECTION("of an allocation that cannot be") {
    void* memory = nullptr;
    cudaError_t const planted = cudaMalloc(&memory, std::size_t{1} << 60);
    REQUIRE(planted != cudaSuccess);
    run_all(gpu);
    CHECK(cudaPeekAtLastError() == planted);
  }
  SECTION("of a device that is not there") {
    REQUIRE(cudaSetDevice(9999) == cudaErrorInvalidDevice);
    run_all(gpu);
    ddtree::decoding_round round;
    CHECK(ddtree::decoding_round::create(gpu.ctx, gpu.shape, gpu.round_memory.as_workspace(),
                                         &round));
    CHECK(round.reset(gpu.ctx));
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  }
  (void)cudaGetLastError();
  wait_for(gpu.ctx);
  gpu.memory.download();
  CHECK(gpu.memory.overrun() == "");
}

TEST_CASE("the current device is what it was", "[contract][cuda][small]") {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices));
  scene gpu(cuda_context(), small_shape(), dtype::f32);
  prepare(gpu);
  // Where there is a second device, it is current while calls run on the first.
  int const current = devices > 1 ? 1 : 0;
  other_device const scope(current);
  for (named_call const& call : calls) {
    CAPTURE(ddtree::name(call.op));
    CHECK(call.run(gpu));
    CHECK(current_device() == current);
  }
  wait_for(gpu.ctx);
}

TEST_CASE("calls run on the second device while the first is current", "[contract][cuda]") {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices));
  if (devices < 2) {
    WARN("one device: calls on a second one were not run");
    return;
  }
  scene cpu(context::cpu(), small_shape(), dtype::f32);
  for (named_call const& call : calls) {
    CAPTURE(ddtree::name(call.op));
    other_device const making(1);
    owned_stream const stream;
    scene gpu(context::cuda(1, stream.get()), small_shape(), dtype::f32);
    make_inputs(cpu, 4, 3);
    copy_scene(gpu, cpu, poison_byte);
    {
      other_device const calling(0);
      REQUIRE(call.run(gpu));
      CHECK(current_device() == 0);
    }
    check_against_cpu(call, gpu, cpu);
  }
}

TEST_CASE("a call that fails enqueues nothing", "[contract][cuda]") {
  context const ctx = cuda_context();
  scene gpu(ctx, small_shape(), dtype::f32);
  prepare(gpu);
  auto const check_failure = [&](errc expected) {
    for (named_call const& call : calls) {
      CAPTURE(ddtree::name(call.op), gpu.ctx.device);
      ddtree::status status;
      captured_graph const graph(ctx.stream, [&] { status = call.run(gpu); });
      CAPTURE(status.message);
      CHECK(status.code == expected);
      CHECK(graph.nodes().empty());
      CHECK(current_device() == 0);
    }
  };
  SECTION("for want of the device") {
    gpu.ctx.device = 9999;
    check_failure(errc::unsupported_device);
    ddtree::decoding_round round;
    auto const status =
        ddtree::decoding_round::create(gpu.ctx, gpu.shape, gpu.round_memory.as_workspace(), &round);
    CHECK(status.code == errc::unsupported_device);
  }
  SECTION("for want of the variant") {
    gpu.ctx.variant = "expand=none,build=none,mask=none,accept=none,compact=none";
    check_failure(errc::invalid_argument);
  }
  gpu.ctx = ctx;
  (void)cudaGetLastError();
  wait_for(ctx);
  auto const before =
      std::vector<std::int32_t>(gpu.tree_out.token.begin(), gpu.tree_out.token.end());
  gpu.memory.download();
  CHECK(std::vector<std::int32_t>(gpu.tree_out.token.begin(), gpu.tree_out.token.end()) == before);
  CHECK(gpu.memory.overrun() == "");
}

TEST_CASE("calls allocate no device memory", "[contract][cuda]") {
  scene gpu(cuda_context(), small_shape(), dtype::f32);
  prepare(gpu);
  run_all(gpu);
  wait_for(gpu.ctx);
  std::size_t before = 0, after = 0, total = 0;
  check_cuda(cudaMemGetInfo(&before, &total));
  for (int i = 0; i < 100; ++i) run_all(gpu);
  check_cuda(cudaMemGetInfo(&after, &total));
  CHECK(after == before);
  wait_for(gpu.ctx);
  check_cuda(cudaMemGetInfo(&after, &total));
  CHECK(after == before);
}
