// SPDX-License-Identifier: Apache-2.0
// Whole rounds on a GPU: captured once and replayed over changed batches, over caches that share
// pages, on two streams at a time.
#include "ddtree/ddtree.hpp"

#include "support/catch.hpp"
#include "support/cuda_graph.hpp"
#include "support/cuda_memory.hpp"
#include "support/cuda_round.hpp"
#include "support/cuda_scene.hpp"
#include "support/device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::round_shape;

round_shape round_of(index_t batch, index_t requests) {
  round_shape s;
  s.batch = batch;
  s.vocab = 300;
  s.depth = 4;
  s.top_k = 6;
  s.budget = 12;
  s.requests = requests;
  return s;
}

oracle::bytes cache_of(scene const& s) { return {s.kv.begin(), s.kv.end()}; }

std::vector<std::int64_t> lengths_of(scene const& s) {
  return {s.cache_len.begin(), s.cache_len.end()};
}

/// Gives the scene the CPU scene's inputs and both poisoned outputs.
void hand_over(scene& gpu, scene& cpu) {
  gpu.memory.copy_inputs(cpu.memory);
  for (scene* s : {&gpu, &cpu}) s->memory.fill_outputs(poison_byte);
  gpu.memory.upload();
}

/// Runs `replay` over the scene and checks every array and the cache.
template <class Replay>
void check_round(scene& gpu, scene& cpu, bool sampled, Replay const& replay) {
  hand_over(gpu, cpu);
  oracle::bytes const before = cache_of(cpu);
  auto const lengths = lengths_of(cpu);
  replay();
  gpu.memory.download();
  CHECK(cache_of(gpu) == committed(gpu, before, lengths));
  CHECK(difference_from_cpu(gpu, cpu, sampled) == "");
}

/// A round of its own arrays over a scene, which leaves its inputs as they are: it commits to its
/// own cache and advances lengths that it does not read. The bytes of its arrays are the record of
/// what it did.
class recorded_round {
 public:
  explicit recorded_round(scene& s) : s_(s) {
    ddtree::round_options options;
    options.log_prob = true;
    options.build = s.build();
    REQUIRE(ddtree::decoding_round::create(s.ctx, s.shape, s.round_memory.as_workspace(), &round_,
                                           options));
  }
  void use_scratch(ddtree::workspace shared) { round_.scratch = shared; }
  std::size_t scratch_bytes() const { return round_.scratch.bytes; }
  std::size_t record_bytes() const {
    return static_cast<std::size_t>(static_cast<unsigned char*>(round_.scratch.data) -
                                    s_.round_memory.data);
  }
  void enqueue() const {
    REQUIRE(round_.draft(s_.batch(), s_.draft_view, s_.root.data, s_.inputs, s_.mask_view));
    REQUIRE(round_.accept(s_.batch(), s_.target_view, s_.how()));
    REQUIRE(round_.commit(s_.batch(), s_.cache(), s_.new_len.data));
  }

  scene& s_;
  ddtree::decoding_round round_;
};

/// A captured recorded_round and a log of what its replays left, on the device.
class logged_round {
 public:
  logged_round(scene& s, std::size_t entries, ddtree::workspace scratch = {})
      : round_(s), bytes_(round_.record_bytes()), log_(s.ctx, entries * bytes_) {
    if (scratch.data != nullptr) round_.use_scratch(scratch);
    graph_ = std::make_unique<captured_graph>(s.ctx.stream, [&] { round_.enqueue(); });
  }
  void replay() {
    cudaStream_t const stream = round_.s_.ctx.stream;
    auto* const arrays = round_.s_.round_memory.data;
    check_cuda(cudaMemsetAsync(arrays, poison_byte, bytes_, stream));
    graph_->replay();
    check_cuda(cudaMemcpyAsync(log_.data() + used_++ * bytes_, arrays, bytes_,
                               cudaMemcpyDeviceToDevice, stream));
  }
  std::vector<oracle::bytes> records() const {
    auto const all = log_.values();
    std::vector<oracle::bytes> out;
    for (std::size_t i = 0; i < used_; ++i) {
      auto const begin = all.begin() + static_cast<std::ptrdiff_t>(i * bytes_);
      out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(bytes_));
    }
    return out;
  }

 private:
  recorded_round round_;
  std::size_t bytes_;
  device_array<unsigned char> log_;
  std::size_t used_ = 0;
  std::unique_ptr<captured_graph> graph_;
};

/// A scene with inputs on the device.
void fill(scene& s, std::uint64_t seed, index_t live) {
  scene cpu(context::cpu(), s.shape, s.type);
  make_inputs(cpu, seed, live);
  hand_over(s, cpu);
}

}  // namespace

TEST_CASE("a round captured at batch 64 is replayed with 64, 50, 1 and 0 live requests",
          "[contract][cuda][small]") {
  for (bool const sampled : {false, true}) {
    scene cpu(context::cpu(), round_of(64, 70), dtype::bf16);
    scene gpu(cuda_context(), round_of(64, 70), dtype::bf16);
    gpu.memory.upload();
    scene_round const round(gpu, sampled);
    captured_graph graph(gpu.ctx.stream, [&] { round.enqueue(); });
    CHECK(is_kernels_and_memsets(graph.nodes()));
    for (index_t const live : {64, 50, 1, 0, 64}) {
      CAPTURE(sampled, live);
      make_inputs(cpu, 100 + static_cast<std::uint64_t>(live), live);
      check_round(gpu, cpu, sampled, [&] { graph.replay(); });
      auto const& accepted = gpu.accepted_out.num_accepted;
      CHECK(std::count_if(accepted.begin(), accepted.end(), [](auto n) { return n >= 0; }) == live);
    }
  }
}

TEST_CASE("a round runs on the named default streams", "[contract][cuda][small]") {
  for (cudaStream_t const stream : {cudaStreamPerThread, cudaStreamLegacy}) {
    CAPTURE(stream == cudaStreamLegacy);
    scene cpu(context::cpu(), round_of(5, 7), dtype::f16);
    scene gpu(context::cuda(0, stream), round_of(5, 7), dtype::f16);
    make_inputs(cpu, 5, 4);
    scene_round const round(gpu, true);
    check_round(gpu, cpu, true, [&] { round.enqueue(); });
  }
}

TEST_CASE("pages below S stay as they are over 1,000 rounds of requests that share a prefix",
          "[contract][cuda]") {
  constexpr index_t shared = 4 * scene::page_size;
  scene cpu(context::cpu(), round_of(2, 2), dtype::f32);
  scene gpu(cuda_context(), round_of(2, 2), dtype::f32);
  gpu.memory.upload();
  scene_round const round(gpu, false);
  captured_graph graph(gpu.ctx.stream, [&] { round.enqueue(); });
  make_inputs(cpu, 1, 2);
  // Both tables begin with the same pages.
  std::copy_n(cpu.table.host, shared / scene::page_size, cpu.table.host + cpu.columns);
  std::vector<std::int64_t> lengths(2, shared);
  index_t const longest = cpu.columns * scene::page_size - cpu.shape.width();
  std::mt19937 random(3);
  int moved = 0;
  oracle::bytes cache = cache_of(cpu);
  auto const shared_pages = [&](oracle::bytes const& all) {
    oracle::bytes out;
    index_t const page_bytes = cpu.kv_tensors.host[0].page_stride;
    for (index_t t = 0; t < scene::tensors; ++t) {
      for (index_t c = 0; c < shared / scene::page_size; ++c) {
        auto const begin = all.begin() + t * cpu.tensor_bytes() + cpu.table.host[c] * page_bytes;
        out.insert(out.end(), begin, begin + page_bytes);
      }
    }
    return out;
  };
  auto const prefix = shared_pages(cache);
  std::vector<std::int32_t> const table(cpu.table.begin(), cpu.table.end());
  for (std::uint64_t i = 0; i < 1000; ++i) {
    CAPTURE(i);
    make_inputs(cpu, 1000 + i, 2);
    std::copy(table.begin(), table.end(), cpu.table.begin());
    std::copy(cache.begin(), cache.end(), cpu.kv.begin());
    for (auto& length : lengths) {
      if (length > longest) length = shared;  // the next text after the same prefix
    }
    std::copy(lengths.begin(), lengths.end(), cpu.cache_len.begin());
    hand_over(gpu, cpu);
    graph.replay();
    gpu.memory.download();
    auto const after = cache_of(gpu);
    REQUIRE(after == committed(gpu, cache, lengths));
    REQUIRE(shared_pages(after) == prefix);
    moved += after != cache;
    cache = after;
    lengths = lengths_of(gpu);
    // As a forward pass does: new rows where the next trees will stand.
    for (auto& byte : cache) {
      if (random() % 4 == 0) byte = static_cast<unsigned char>(random());
    }
    // But not in the prefix.
    index_t const page_bytes = cpu.kv_tensors.host[0].page_stride;
    std::size_t at = 0;
    for (index_t t = 0; t < scene::tensors; ++t) {
      for (index_t c = 0; c < shared / scene::page_size; ++c, at += sized(page_bytes)) {
        std::copy_n(prefix.begin() + static_cast<std::ptrdiff_t>(at), page_bytes,
                    cache.begin() + t * cpu.tensor_bytes() + table[sized(c)] * page_bytes);
      }
    }
  }
  CHECK(moved > 300);
  CHECK(gpu.memory.overrun() == "");
}

TEST_CASE("10,000 rounds on each of two streams are those of one", "[contract][cuda]") {
  constexpr std::size_t rounds = 10000;
  round_shape const shape = round_of(3, 3);
  owned_stream const second;
  scene alone(cuda_context(), shape, dtype::bf16);
  fill(alone, 8, 3);
  scene a(cuda_context(), shape, dtype::bf16),
      b(context::cuda(0, second.get()), shape, dtype::bf16);
  fill(a, 8, 3);
  fill(b, 8, 3);
  // Inputs that both read, and nobody writes.
  b.draft_view = a.draft_view;
  b.target_view = a.target_view;
  b.root = a.root;
  b.request = a.request;
  b.cache_len = a.cache_len;
  b.budget = a.budget;
  b.temperature = a.temperature;
  b.seed = a.seed;
  b.paging = a.paging;

  logged_round one(alone, rounds), on_first(a, rounds), on_second(b, rounds);
  for (std::size_t i = 0; i < rounds; ++i) one.replay();
  auto const expected = one.records();
  for (std::size_t i = 0; i < rounds; ++i) {
    on_first.replay();
    on_second.replay();
  }
  CHECK(on_first.records() == expected);
  CHECK(on_second.records() == expected);
  CHECK(std::all_of(expected.begin(), expected.end(),
                    [&](auto const& record) { return record == expected[0]; }));
  for (scene* s : {&alone, &a, &b}) s->memory.download();
  CHECK(cache_of(a) == cache_of(alone));
  CHECK(cache_of(b) == cache_of(alone));
  for (scene* s : {&a, &b}) {
    CHECK(std::equal(s->new_len.begin(), s->new_len.end(), alone.new_len.begin()));
    CHECK(s->memory.overrun() == "");
  }
}

TEST_CASE("two graphs alternate on one workspace while counts shrink and grow",
          "[contract][cuda]") {
  constexpr std::size_t replays = 1000;
  context const ctx = cuda_context();
  scene large(ctx, round_of(16, 16), dtype::bf16), small(ctx, round_of(5, 5), dtype::f32);
  fill(large, 21, 16);
  fill(small, 22, 5);
  device_array<unsigned char> scratch(
      ctx, std::max(recorded_round(large).scratch_bytes(), recorded_round(small).scratch_bytes()));
  logged_round first(large, replays, scratch.as_workspace());
  logged_round second(small, replays, scratch.as_workspace());
  // Row b of a batch with n live requests is -1 from b = n on.
  std::vector<std::int32_t> by_count;
  for (std::int32_t n = 0; n <= 16; ++n) {
    for (std::int32_t b = 0; b < 16; ++b) by_count.push_back(b < n ? b : -1);
  }
  device_array<std::int32_t> requests(ctx, by_count);
  auto const set_live = [&](scene& s, std::size_t n) {
    check_cuda(cudaMemcpyAsync(s.request.data, requests.data() + n * 16, s.request.size * 4,
                               cudaMemcpyDeviceToDevice, ctx.stream));
  };
  auto const count_at = [](std::size_t i, std::size_t most) {
    std::size_t const step = i % (2 * most);
    return step <= most ? most - step : step - most;
  };
  for (std::size_t i = 0; i < replays; ++i) {
    set_live(large, count_at(i, 16));
    first.replay();
    set_live(small, count_at(i, 5));
    second.replay();
  }
  auto const check = [&](logged_round const& round, std::size_t most) {
    auto const records = round.records();
    std::map<std::size_t, oracle::bytes> seen;
    for (std::size_t i = 0; i < replays; ++i) {
      CAPTURE(i, most);
      REQUIRE(seen.emplace(count_at(i, most), records[i]).first->second == records[i]);
    }
    CHECK(seen.size() == most + 1);
    CHECK(seen[0] != seen[most]);
  };
  check(first, 16);
  check(second, 5);
  CHECK(scratch.values().size() == scratch.size());  // throws where it was overrun
}
