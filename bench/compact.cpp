// SPDX-License-Identifier: Apache-2.0
// compact_kv over the caches of several models: the root and rows that all move. compact_rows of
// hidden states, compact_state of a recurrent model's states.
#include "ddtree/compact.hpp"

#include "cases.hpp"
#include "support/cache.hpp"
#include "support/names.hpp"
#include "support/series.hpp"

#include <numeric>
#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::index_t;
using ddtree::operation;

constexpr std::int32_t cache_length = 40;

constexpr cache_format hnd{.name = "hnd", .head_major = true};
constexpr cache_format contiguous{.name = "contiguous", .page_size = 112};
/// The latent rows of Kimi K2's 61 layers.
constexpr cache_format mla{.name = "mla", .tensors = 61, .heads = 1, .row_bytes = 1152};

ddtree::round_shape shape_of(index_t batch, int copies, std::int32_t budget = 64) {
  return {.batch = batch, .vocab = 1, .budget = budget, .requests = batch * copies};
}

/// The path that all requests accepted: `rows` rows with the root, four apart.
ddtree::accepted straight_path(scene& s, ddtree::round_shape const& shape, index_t rows) {
  std::vector<ddtree::node_t> path;
  for (index_t b = 0; b < shape.batch; ++b) {
    for (std::int32_t r = 0; r <= shape.depth; ++r) path.push_back(r < rows ? 4 * r : -1);
  }
  ddtree::accepted a;
  a.path = s.array(path);
  a.num_accepted = s.filled(shape.batch, static_cast<std::int32_t>(rows - 1));
  a.flags = s.array<std::uint32_t>(shape.batch);
  return a;
}

/// For each copy, the requests that stand in the batch.
std::vector<std::int32_t*> batches(scene& s, index_t batch) {
  std::vector<std::int32_t*> all;
  for (int copy = 0; copy < s.copies; ++copy) {
    std::vector<std::int32_t> request(sized(batch));
    std::iota(request.begin(), request.end(), static_cast<std::int32_t>(copy * batch));
    all.push_back(s.array(request));
  }
  return all;
}

work make_kv(scene& s, cache_format const& f, index_t batch, index_t rows) {
  auto const shape = shape_of(batch, s.copies);
  auto const requests = batches(s, batch);
  auto* const lengths = s.filled(shape.requests, cache_length);
  kv_pool const pool(s, f, shape.requests, cache_length + shape.width());
  auto const path = straight_path(s, shape, rows);
  double const moved = static_cast<double>(batch * (rows - 1) * f.token_bytes());
  return {
      {moved, moved}, [=, ctx = s.ctx](int copy) {
        return ddtree::compact_kv(ctx, shape, {lengths, requests[sized(copy)]}, path, pool.view());
      }};
}

void kv_series(place where, cache_format const& f, index_t batch, index_t rows) {
  std::string const name = std::string("layout:") + f.name + "/" +
                           labels({{"tensors", f.tensors}, {"batch", batch}, {"rows", rows}});
  double const touched = static_cast<double>(2 * batch * (rows - 1) * f.token_bytes());
  add(operation::compact_kv, {where, name, shape_of(batch, 1), touched,
                              [=](scene& s) { return make_kv(s, f, batch, rows); }});
}

// The hidden states of five layers of 4096 bf16 numbers, as a drafter is fed.
constexpr index_t hidden_bytes = 5 * 4096 * 2;

work make_rows(scene& s, index_t batch, index_t rows) {
  auto const shape = shape_of(batch, 1);
  auto const path = straight_path(s, shape, rows);
  std::vector<ddtree::rows_view> from, to;
  for (int i = 0; i < s.copies; ++i) {
    from.push_back({s.bytes(sized(batch * shape.width() * hidden_bytes)), hidden_bytes});
    ddtree::rows_view out{s.bytes(sized(batch * (shape.depth + 1) * hidden_bytes)), hidden_bytes};
    out.batch_stride = shape.depth + 1;
    to.push_back(out);
  }
  double const moved = static_cast<double>(batch * rows * hidden_bytes);
  return {{moved, moved}, [=, ctx = s.ctx](int copy) {
            return ddtree::compact_rows(ctx, shape, {}, path, from[sized(copy)], to[sized(copy)]);
          }};
}

void rows_series(index_t batch, index_t rows) {
  std::string const name = labels({{"bytes", hidden_bytes}, {"batch", batch}, {"rows", rows}});
  add(operation::compact_rows,
      {place::gpu, name, shape_of(batch, 1), static_cast<double>(2 * batch * rows * hidden_bytes),
       [=](scene& s) { return make_rows(s, batch, rows); }});
}

// The recurrent states of 36 layers, 32 heads of 128 x 128 floats each: 75 MB a node.
constexpr index_t state_layers = 36, state_bytes = 32 * 128 * 128 * 4;
constexpr std::int32_t state_budget = 16;

work make_state(scene& s, index_t batch) {
  auto const shape = shape_of(batch, 1, state_budget);
  auto const path = straight_path(s, shape, 4);
  std::vector<ddtree::state_tensor> tensors;
  for (index_t i = 0; i < state_layers; ++i) {
    ddtree::state_tensor t;
    t.from = s.bytes(sized(batch * shape.width() * state_bytes));
    t.from_node_stride = state_bytes;
    t.from_slot_stride = shape.width() * state_bytes;
    t.from_slots = batch;
    t.to = s.bytes(sized(batch * state_bytes));
    t.to_slot_stride = state_bytes;
    t.to_slots = batch;
    t.bytes = state_bytes;
    tensors.push_back(t);
  }
  ddtree::state_view state;
  state.tensors = s.array(tensors);
  state.num_tensors = state_layers;
  double const moved = static_cast<double>(batch * state_layers * state_bytes);
  return {{moved, moved},
          [=, ctx = s.ctx](int) { return ddtree::compact_state(ctx, shape, {}, path, state); }};
}

void state_series(index_t batch) {
  std::string const name =
      labels({{"layers", state_layers}, {"bytes", state_bytes}, {"batch", batch}});
  // More than 300 MB with one copy.
  double const touched = 2.0 * static_cast<double>(batch * state_layers * state_bytes);
  add(operation::compact_state, {place::gpu, name, shape_of(batch, 1, state_budget), touched,
                                 [=](scene& s) { return make_state(s, batch); }});
}

}  // namespace

void add_compact_cases() {
  for (index_t const batch : {1, 4}) {
    kv_series(place::cpu, qwen3_8b, batch, 8);
    kv_series(place::cpu, hnd, batch, 8);
  }
  for (cache_format const& f : {qwen3_8b, hnd, contiguous, mla}) {
    for (index_t const batch : {1, 64}) kv_series(place::gpu, f, batch, 8);
    kv_series(place::gpu, f, 256, 16);
  }
  for (index_t const batch : {1, 64}) rows_series(batch, 8);
  for (index_t const batch : {4, 8}) state_series(batch);
}

}  // namespace bench
