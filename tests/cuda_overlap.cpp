// SPDX-License-Identifier: Apache-2.0
// Kernels that may begin before the one before them has ended give the bits that they give in turn,
// between an engine's kernels which write their inputs late and overwrite everything right after.
#include "cuda_overlap.hpp"

#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/cuda_graph.hpp"
#include "support/cuda_memory.hpp"
#include "support/cuda_round.hpp"
#include "support/cuda_scene.hpp"
#include "support/device.hpp"
#include "support/device_array.hpp"
#include "support/launches.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::round_shape;

round_shape overlap_shape() {
  round_shape s;
  s.batch = 4;
  s.vocab = 500;
  s.depth = 5;
  s.top_k = 8;
  s.budget = 16;
  s.requests = 6;
  return s;
}

/// Every array of one scene that `wanted` takes by its role, to or from the same array of another.
template <class Wanted>
std::vector<moved_bytes> pair_up(scene const& to, scene const& from, Wanted const& wanted) {
  std::vector<moved_bytes> pieces;
  from.memory.for_each([&](role what, unsigned char* memory, std::size_t bytes) {
    pieces.push_back({wanted(what) ? memory : nullptr, memory, bytes});
  });
  std::size_t next = 0;
  to.memory.for_each([&](role, unsigned char* memory, std::size_t) {
    moved_bytes& piece = pieces[next++];
    if (piece.to != nullptr) piece.to = memory;
  });
  std::erase_if(pieces, [](moved_bytes const& piece) { return piece.to == nullptr; });
  return pieces;
}

/// A scene whose inputs come late and whose arrays are taken away right after what is enqueued.
class hurried_scene {
 public:
  hurried_scene(context const& ctx, std::uint64_t seed)
      : used(ctx, overlap_shape(), dtype::bf16),
        given_(ctx, overlap_shape(), dtype::bf16),
        taken_(ctx, overlap_shape(), dtype::bf16),
        late_(ctx, pair_up(used, given_, [](role what) { return what == role::input; })),
        taking_(ctx, pair_up(taken_, used, [](role what) {
                  // A round keeps counters in its memory.
                  return what != role::own && what != role::scratch;
                })) {
    scene cpu(context::cpu(), overlap_shape(), dtype::bf16);
    make_inputs(cpu, seed, 3);
    given_.memory.copy_inputs(cpu.memory);
    given_.memory.upload();
    taken_.memory.upload();
  }

  /// What all arrays hold right after a replay of what `enqueue` puts on the stream.
  template <class Enqueue>
  std::vector<unsigned char> run(Enqueue const& enqueue) {
    used.memory.fill_outputs(poison_byte);
    used.memory.upload();
    cudaStream_t const stream = used.ctx.stream;
    captured_graph graph(stream, [&] {
      copy_late(stream, late_.data(), late_.size());
      enqueue();
      take_and_poison(stream, taking_.data(), taking_.size());
    });
    for (int replay = 0; replay < 2; ++replay) graph.replay();
    taken_.memory.download();
    return taken_.memory.results();
  }

  scene used;

 private:
  scene given_, taken_;
  device_array<moved_bytes> late_, taking_;
};

template <class Enqueue>
void check_alike(hurried_scene& s, Enqueue const& enqueue) {
  std::vector<unsigned char> in_turn;
  {
    without_overlap const scope;
    in_turn = s.run(enqueue);
  }
  for (int run = 0; run < 2; ++run) REQUIRE(s.run(enqueue) == in_turn);
}

}  // namespace

TEST_CASE("calls whose kernels overlap give the bits that they give in turn",
          "[contract][cuda][small]") {
  std::size_t const before = count_overlapping_launches();
  for (named_call const& call : calls) {
    for (auto const& named : contexts_for(call.op)) {
      CAPTURE(ddtree::name(call.op), named.name);
      hurried_scene s(named.ctx, 71);
      check_alike(s, [&] { REQUIRE(call.run(s.used)); });
    }
  }
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK((count_overlapping_launches() > before) == (major >= 9));
}

TEST_CASE("rounds whose kernels overlap give the bits that they give in turn",
          "[contract][cuda][small]") {
  auto const sampled = GENERATE(false, true);
  hurried_scene s(cuda_context(), 72);
  scene_round const round(s.used, sampled);
  check_alike(s, [&] { round.enqueue(); });
}
