// SPDX-License-Identifier: Apache-2.0
// Rows further apart than 32 bits can say, the widest trees, and results that depend on a row
// alone.
#include "ddtree/ddtree.hpp"

#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/cuda_memory.hpp"
#include "support/cuda_scene.hpp"
#include "support/device.hpp"
#include "support/huge_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::operation;
using ddtree::round_shape;

/// Elements, or bytes, from row to row: beyond 2^31, and not a multiple of much.
constexpr index_t stride = (index_t{1} << 31) + 24;

/// Two requests with three rows each: all of them fit into six strides.
round_shape sparse_shape() {
  round_shape s;
  s.batch = 2;
  s.vocab = 64;
  s.depth = 3;
  s.top_k = 4;
  s.budget = 2;
  return s;
}

named_call const& call_of(operation op) {
  return *std::find_if(std::begin(calls), std::end(calls),
                       [&](named_call const& call) { return call.op == op; });
}

/// A scene on the CPU and one on the GPU with the same inputs, whose views a test points elsewhere.
struct sparse_scenes {
  explicit sparse_scenes(context const& ctx, dtype type)
      : cpu(context::cpu(), sparse_shape(), type),
        gpu(ctx, sparse_shape(), type),
        huge(ctx, std::size_t{6} * stride * element_bytes(type)) {
    if (huge.data() == nullptr) return;
    make_inputs(cpu, 31, 2);
    gpu.memory.copy_inputs(cpu.memory);
    for (scene* s : {&cpu, &gpu}) s->memory.fill_outputs(poison_byte);
    gpu.memory.upload();
  }
  bool fit() const { return huge.data() != nullptr; }

  /// Puts rows of so many bytes a stride of `step` bytes apart.
  void spread(unsigned char const* rows, index_t count, std::size_t bytes, index_t step) const {
    for (index_t i = 0; i < count; ++i) huge.write(i * step, rows + sized(i) * bytes, bytes);
  }
  std::vector<unsigned char> gather(index_t count, std::size_t bytes, index_t step) const {
    std::vector<unsigned char> all;
    for (index_t i = 0; i < count; ++i) {
      auto const row = huge.read(i * step, bytes);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  /// Runs a call over both; "" where all arrays of the scenes are equal then.
  std::string difference(operation op) {
    REQUIRE(call_of(op).run(gpu));
    gpu.memory.download();
    REQUIRE(call_of(op).run(cpu));
    return gpu.memory.difference(cpu.memory);
  }

  scene cpu, gpu;
  huge_memory huge;
};

/// The bytes of one batch row of an output.
template <class T>
std::vector<T> row_of(placed<T> const& all, index_t batch, index_t b) {
  auto const size = static_cast<index_t>(all.size) / batch;
  return {all.host + b * size, all.host + (b + 1) * size};
}

/// All that the expand and accept calls write for a row.
struct row_result {
  std::vector<std::int32_t> token, path, accepted;
  std::vector<float> log_prob, accepted_log_prob;
  bool operator==(row_result const& other) const {
    return token == other.token && path == other.path && accepted == other.accepted &&
           same_bits(log_prob, other.log_prob) &&
           same_bits(accepted_log_prob, other.accepted_log_prob);
  }
  static bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }
};

/// Every call over trees of budget + 1 rows, against the CPU.
void check_width(std::int32_t budget) {
  round_shape shape;
  shape.batch = 2;
  shape.vocab = 150;
  shape.depth = 15;
  shape.top_k = 64;
  shape.budget = budget;
  scene cpu(context::cpu(), shape, dtype::bf16);
  make_inputs(cpu, 41, 2);
  for (named_call const& call : calls) {
    for (auto const& named : contexts_for(call.op)) {
      CAPTURE(ddtree::name(call.op), named.name, budget);
      scene gpu(named.ctx, shape, dtype::bf16), own(context::cpu(), shape, dtype::bf16);
      for (scene* s : {&gpu, &own}) {
        s->memory.copy_inputs(cpu.memory);
        s->memory.fill_outputs(poison_byte);
      }
      gpu.memory.upload();
      REQUIRE(call.run(gpu));
      gpu.memory.download();
      REQUIRE(call.run(own));
      CHECK(gpu.memory.difference(own.memory) == "");
    }
  }
}

}  // namespace

TEST_CASE("expand and accept read rows more than 2^31 elements apart", "[contract][cuda]") {
  for (auto const op : {operation::expand, operation::accept_greedy, operation::accept_sampled}) {
    for (auto const& named : contexts_for(op)) {
      CAPTURE(ddtree::name(op), named.name);
      sparse_scenes s(named.ctx, dtype::bf16);
      if (!s.fit()) DDTREE_SKIP("too little device memory");
      bool const drafts = op == operation::expand;
      s.spread(drafts ? s.cpu.draft.host : s.cpu.target.host, 6, s.cpu.row(), 2 * stride);
      auto& view = drafts ? s.gpu.draft_view : s.gpu.target_view;
      view.data = s.huge.data();
      view.row_stride = stride;
      CHECK(s.difference(op) == "");
    }
  }
}

TEST_CASE("write_mask writes rows more than 2^31 elements apart", "[contract][cuda]") {
  for (auto const& named : contexts_for(operation::write_mask)) {
    CAPTURE(named.name);
    sparse_scenes s(named.ctx, dtype::bf16);
    if (!s.fit()) DDTREE_SKIP("too little device memory");
    s.gpu.mask_view.data = s.huge.data();
    s.gpu.mask_view.kind = ddtree::mask_kind::boolean;
    s.gpu.mask_view.row_stride = stride;
    auto const columns = static_cast<std::size_t>(s.gpu.mask_view.columns);
    std::vector<unsigned char> dense(6 * columns, poison_byte);
    s.cpu.mask_view.data = dense.data();
    s.cpu.mask_view.kind = ddtree::mask_kind::boolean;
    // The scenes' own masks are not written and stay equal.
    CHECK(s.difference(operation::write_mask) == "");
    CHECK(s.gather(6, columns, stride) == dense);
  }
}

TEST_CASE("compact_rows moves rows more than 2^31 bytes apart", "[contract][cuda]") {
  for (auto const& named : contexts_for(operation::compact_rows)) {
    CAPTURE(named.name);
    sparse_scenes s(named.ctx, dtype::bf16);
    if (!s.fit()) DDTREE_SKIP("too little device memory");
    s.spread(s.cpu.hidden.host, 6, scene::hidden_bytes, stride);
    s.gpu.hidden_from.data = s.huge.data();
    s.gpu.hidden_from.row_stride_bytes = stride;
    s.gpu.hidden_to = s.gpu.hidden_from;
    s.cpu.hidden_to = s.cpu.hidden_from;
    REQUIRE(call_of(operation::compact_rows).run(s.gpu));
    auto const got = s.gather(6, scene::hidden_bytes, stride);
    REQUIRE(call_of(operation::compact_rows).run(s.cpu));
    CHECK(got == std::vector<unsigned char>(s.cpu.hidden.begin(), s.cpu.hidden.end()));
  }
}

TEST_CASE("compact_kv moves rows in pages more than 2^31 bytes apart", "[contract][cuda]") {
  for (auto const& named : contexts_for(operation::compact_kv)) {
    CAPTURE(named.name);
    sparse_scenes s(named.ctx, dtype::bf16);
    if (!s.fit()) DDTREE_SKIP("too little device memory");
    // Contiguous: request r is page r, with three tokens. One tensor is enough.
    s.gpu.paging = {};
    s.gpu.paging.page_size = 3;
    s.gpu.pages = 2;
    s.gpu.set_kv(s.huge.data(), 3 * stride, stride);
    s.gpu.kv_tensors.host[1].row_bytes = 0;
    std::size_t const row = scene::heads * scene::row_bytes;
    // The root and its second child.
    for (index_t b = 0; b < 2; ++b) {
      s.gpu.request.host[b] = static_cast<std::int32_t>(b);
      s.gpu.cache_len.host[b] = 0;
      s.gpu.accepted_in.num_accepted.host[b] = 1;
      s.gpu.accepted_in.path.host[b * 4] = 0;
      s.gpu.accepted_in.path.host[b * 4 + 1] = 2;
    }
    s.spread(s.cpu.kv.host, 6, row, stride);
    s.gpu.memory.upload();
    std::vector<unsigned char> const before(s.cpu.kv.begin(), s.cpu.kv.begin() + 6 * row);
    REQUIRE(call_of(operation::compact_kv).run(s.gpu));
    auto expected = before;
    for (std::size_t b = 0; b < 2; ++b) {
      std::copy_n(before.data() + (3 * b + 2) * row, row, expected.data() + (3 * b + 1) * row);
    }
    CHECK(s.gather(6, row, stride) == expected);
  }
}

TEST_CASE("every call takes trees of width 1025", "[contract][cuda][small]") { check_width(1024); }

TEST_CASE("every call takes trees of width 2048", "[contract][cuda]") { check_width(2047); }

TEST_CASE("a row gives the same bits at every index of a batch and alone",
          "[contract][cuda][small]") {
  for (auto const op : {operation::expand, operation::accept_greedy, operation::accept_sampled}) {
    for (std::int32_t const budget : {0, 64}) {
      for (auto const& named : contexts_for(op)) {
        CAPTURE(ddtree::name(op), named.name, budget);
        std::vector<row_result> rows;
        for (index_t const batch : {index_t{1}, index_t{64}}) {
          round_shape shape;
          shape.batch = batch;
          shape.vocab = 700;
          shape.depth = 6;
          shape.top_k = 16;
          shape.budget = budget;
          shape.requests = 1;
          round_shape one = shape;
          one.batch = 1;
          scene single(context::cpu(), one, dtype::bf16), gpu(named.ctx, shape, dtype::bf16);
          make_inputs(single, 51, 1);
          gpu.memory.copy_first_row(single.memory, sized(batch));
          gpu.memory.fill_outputs(poison_byte);
          gpu.memory.upload();
          REQUIRE(call_of(op).run(gpu));
          gpu.memory.download();
          for (index_t b = 0; b < batch; ++b) {
            rows.push_back({row_of(gpu.candidates_out.token, batch, b),
                            row_of(gpu.accepted_out.path, batch, b),
                            row_of(gpu.accepted_out.token, batch, b),
                            row_of(gpu.candidates_out.log_prob, batch, b),
                            row_of(gpu.accepted_out.log_prob, batch, b)});
          }
          CHECK(gpu.memory.overrun() == "");
        }
        for (std::size_t i = 1; i < rows.size(); ++i) {
          CAPTURE(i);
          REQUIRE(rows[i] == rows[0]);
        }
      }
    }
  }
}
