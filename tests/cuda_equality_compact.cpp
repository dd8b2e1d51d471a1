// SPDX-License-Identifier: Apache-2.0
// Commits on a GPU leave caches, tables, rows, states, lengths and flags as the CPU does.
#include "ddtree/compact.hpp"

#include "support/cache_scene.hpp"
#include "support/catch.hpp"
#include "support/device_array.hpp"

#include <cstdint>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;

/// Paths over random requests, some of them dead, some not rising or out of range.
struct random_commit {
  explicit random_commit(unsigned seed) : random(seed) {
    shape.batch = 1 + random.below(40);
    shape.vocab = 100;
    shape.depth = static_cast<std::int32_t>(1 + random.below(20));
    shape.budget = static_cast<std::int32_t>(1 + random.below(100));
    shape.requests = shape.batch + 3;
    std::vector<number> ids(sized(shape.requests));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random.engine);
    for (number b = 0; b < shape.batch; ++b) {
      batch_entry e;
      e.request = random.below(8) == 0 ? -1 : ids[sized(b)];
      if (random.below(8) != 0) e.path = random_path(random, random.below(22), shape.width());
      if (random.below(10) == 0 && e.path.size() > 2) e.path[2] = random.below(200) - 50;
      entries.push_back(e);
    }
    for (number r = 0; r < shape.requests; ++r) {
      lengths.push_back(random.below(20) == 0 ? -1 : random.below(1000));
    }
    type = random.below(2) == 0 ? dtype::i32 : dtype::i64;
  }

  random_numbers random;
  round_shape shape;
  std::vector<batch_entry> entries;
  std::vector<number> lengths;
  dtype type = dtype::i32;
};

struct copied {
  oracle::bytes bytes;
  std::vector<std::uint32_t> flags;
  bool operator==(copied const& other) const {
    return bytes == other.bytes && flags == other.flags;
  }
};

/// compact_rows, in place or to other memory.
copied copy_rows(context const& ctx, random_commit const& c, oracle::bytes const& bytes,
                 number row_bytes, bool in_place) {
  device_array<unsigned char> from(ctx, bytes), to(ctx, oracle::bytes(bytes.size(), 0x5A));
  accepted_batch batch(ctx, c.type, c.shape, c.entries, c.lengths);
  ddtree::rows_view const source{from.data(), row_bytes, row_bytes + 3, 0, {}};
  ddtree::rows_view target = source;
  if (!in_place) target.data = to.data();
  REQUIRE(ddtree::compact_rows(ctx, c.shape, batch.view(), batch.accepted(), source, target));
  oracle::bytes all = from.values();
  oracle::bytes const other = to.values();
  all.insert(all.end(), other.begin(), other.end());
  return {all, batch.flags()};
}

struct state_sizes {
  number bytes, slots;
};

/// compact_state over two tensors, with slots and entries of the path that may be out of range.
copied copy_states(context const& ctx, random_commit const& c, oracle::bytes const& bytes,
                   state_sizes const& size) {
  number const node_stride = size.bytes + 1;
  number const slot_stride = c.shape.width() * node_stride + 5;
  device_array<unsigned char> from(ctx, bytes);
  device_array<unsigned char> to(ctx, oracle::bytes(sized(2 * size.slots * size.bytes), 0x5A));
  std::vector<ddtree::state_tensor> tensors;
  for (number t = 0; t < 2; ++t) {
    tensors.push_back({from.data() + t * size.slots * slot_stride, slot_stride, node_stride,
                       size.slots, to.data() + t * size.slots * size.bytes, size.bytes, size.slots,
                       size.bytes});
  }
  device_array<ddtree::state_tensor> list(ctx, tensors);
  accepted_batch batch(ctx, c.type, c.shape, c.entries, c.lengths);
  std::vector<number> from_slots, to_slots, takes;
  random_numbers random(5);
  for (number r = 0; r < c.shape.requests; ++r) {
    from_slots.push_back(random.below(size.slots + 1));
    to_slots.push_back(random.below(10) == 0 ? -1 : r);
  }
  for (number b = 0; b < c.shape.batch; ++b) takes.push_back(random.below(5) - 1);
  id_buffer from_slot(ctx, c.type, from_slots), to_slot(ctx, c.type, to_slots);
  id_buffer take(ctx, c.type, takes);
  ddtree::state_view const view{list.data(), 2, from_slot.view(), to_slot.view(), take.view()};
  REQUIRE(ddtree::compact_state(ctx, c.shape, batch.view(), batch.accepted(), view));
  return {to.values(), batch.flags()};
}

std::vector<number> lengths_after(context const& ctx, random_commit const& c) {
  accepted_batch batch(ctx, c.type, c.shape, c.entries, c.lengths);
  REQUIRE(ddtree::advance(ctx, c.shape, batch.view(), batch.accepted(), batch.cache_len.view()));
  return batch.cache_len.values();
}

}  // namespace

TEST_CASE("compact_kv equals the CPU's in every layout", "[compact][cuda]") {
  unsigned seed = 0;
  for (named_layout const& how : layouts) {
    for (number const page_size : {1, 4, 16, 64}) {
      for (int round = 0; round < 6; ++round) {
        scene const s = paged_scene(++seed, how, page_size);
        dtype const type = seed % 2 == 0 ? dtype::i32 : dtype::i64;
        outcome const expected = run(context::cpu(), type, s);
        outcome const got = run(cuda_context(), type, s);
        CAPTURE(how.name, page_size, seed);
        REQUIRE(expected.status);
        REQUIRE(got.status);
        CHECK(got.memory == expected.memory);
        CHECK(got.tables == expected.tables);
        CHECK(got.flags == expected.flags);
      }
    }
  }
}

TEST_CASE("compact_kv permutes slot lists as the CPU does", "[compact][cuda][small]") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    scene s = paged_scene(seed, layouts[seed % 8], 1);
    s.index_only = {true, seed % 2 == 0};
    outcome const expected = run(context::cpu(), dtype::i32, s);
    outcome const got = run(cuda_context(), dtype::i32, s);
    CAPTURE(seed);
    REQUIRE(expected.status);
    REQUIRE(got.status);
    CHECK(got.memory == expected.memory);
    CHECK(got.tables == expected.tables);
    CHECK(got.flags == expected.flags);
  }
}

TEST_CASE("compact_rows, compact_state and advance equal the CPU's", "[compact][cuda][small]") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    random_commit c(seed);
    CAPTURE(seed);
    number const row_bytes = std::vector<number>{1, 7, 16, 130, 4096}[seed % 5];
    auto const rows = random_bytes(c.random, c.shape.batch * c.shape.width() * (row_bytes + 3));
    for (bool const in_place : {true, false}) {
      CHECK(copy_rows(cuda_context(), c, rows, row_bytes, in_place) ==
            copy_rows(context::cpu(), c, rows, row_bytes, in_place));
    }
    state_sizes const size{std::vector<number>{1, 12, 33, 1024}[seed % 4], c.shape.requests};
    auto const states =
        random_bytes(c.random, 2 * size.slots * (c.shape.width() * (size.bytes + 1) + 5));
    CHECK(copy_states(cuda_context(), c, states, size) ==
          copy_states(context::cpu(), c, states, size));
    CHECK(lengths_after(cuda_context(), c) == lengths_after(context::cpu(), c));
  }
}
