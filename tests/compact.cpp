// SPDX-License-Identifier: Apache-2.0
#include "ddtree/compact.hpp"

#include "ddtree/ddtree.hpp"

#include "oracle/compact.hpp"
#include "support/buffer.hpp"
#include "support/cache_scene.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::errc;
using ddtree::operation;

}  // namespace

TEST_CASE("compact_kv moves accepted rows in every layout and touches nothing else", "[compact]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (auto const& how : layouts) {
      for (number page_size : {1, 16, 5}) {
        for (dtype type : {dtype::i32, dtype::i64}) {
          CAPTURE(context.name, how.name, page_size, type == dtype::i64);
          for (unsigned seed = 0; seed < 4; ++seed) {
            check_moves(context.ctx, type, paged_scene(seed, how, page_size));
          }
        }
      }
    }
  }
}

TEST_CASE("compact_kv takes the page out of an entry by mask and scale", "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (dtype type : {dtype::i32, dtype::i64}) {
      scene s = paged_scene(7, layouts[0], 4);
      // Entries count pairs of pages, with the engine's mark in a high bit, that of the sign too.
      for (auto& tensor : s.tensors) tensor.pages = 2 * tensor.pages;
      s.tensors.resize(1);
      random_numbers random(3);
      s.memory = random_bytes(random, s.tensors[0].pages * s.tensors[0].page_stride);
      for (auto& table : s.tables) {
        table.mask = 0xffff;
        table.scale = 2;
        for (auto& row : table.rows) {
          for (std::size_t c = 0; c < row.size(); ++c) {
            number const mark = c % 3 == 0 ? -(number{1} << 31) : number(c % 2) << 20;
            row[c] = row[c] + mark;
          }
        }
      }
      CAPTURE(context.name, type == dtype::i64);
      check_moves(context.ctx, type, s);
    }
  }
}

TEST_CASE("compact_kv moves rows of a contiguous cache, a page per request", "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      scene s = paged_scene(seed, layouts[0], 64);
      oracle::page_table contiguous;
      contiguous.page_size = 64;
      s.tables = {contiguous};
      CAPTURE(context.name, seed);
      check_moves(context.ctx, dtype::i32, s);
    }
  }
}

TEST_CASE("compact_kv widens before it multiplies", "[compact][small]") {
  // Page 3 of pages 2^30 bytes apart; the memory that is there is page 3 alone.
  random_numbers random(8);
  scene s;
  s.shape = {.batch = 1, .vocab = 9, .depth = 5, .top_k = 1, .budget = 11, .requests = 4};
  s.entries = {{3, {0, 2, 5, 11}}};
  s.lengths = {0, 0, 0, 20};
  number const stride = number{1} << 30;
  s.tensors = {{-3 * stride, stride, 16, 8, 4, 2, 8, 0}};
  s.tables.resize(1);
  s.tables[0].page_size = 32;
  s.memory = random_bytes(random, 32 * 16);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    check_moves(context.ctx, dtype::i32, s);
  }
}

TEST_CASE("compact_kv moves paths of up to 31 nodes in wide trees", "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (std::int32_t budget : {31, 40, 2047}) {
      for (unsigned seed = 0; seed < 5; ++seed) {
        random_numbers random(seed);
        scene s;
        s.shape.batch = 2;
        s.shape.vocab = 100;
        s.shape.depth = 31;
        s.shape.budget = budget;
        s.lengths = {40, 33};
        for (number request : {0, 1}) {
          s.entries.push_back({request, random_path(random, 31 - seed, s.shape.width())});
        }
        number const pages = 2 * (40 + s.shape.width()) / 16 + 6;
        s.tables = {paged(random, s.lengths, s.shape.width(), pages, 16)};
        s.memory = random_bytes(random, separate_nhd<1, 4>(s.tensors, pages, 16));
        CAPTURE(context.name, budget, seed);
        check_moves(context.ctx, dtype::i32, s);
      }
    }
  }
}

TEST_CASE("compact_kv looks nothing up for a chain", "[compact][small]") {
  scene s = paged_scene(1, layouts[0], 16);
  for (auto& e : s.entries) e.path = {0, 1, 2, 3, 4, 5, 6, 7};
  s.entries[1].path = {0};
  // Neither tables nor tensors that would do: nothing may be flagged.
  for (auto& table : s.tables) {
    for (auto& row : table.rows) row.assign(1, -5);
  }
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    CHECK(got.memory == s.memory);
    CHECK(got.flags == std::vector<std::uint32_t>(3, earlier));
  }
}

TEST_CASE("compact_kv looks no row in place up, nor a tensor that has nothing to move",
          "[compact][small]") {
  scene s = paged_scene(1, layouts[0], 1);
  s.lengths = {10, 11, 12};
  for (auto& e : s.entries) e.path = {0, 1, 2, 7};
  for (auto& table : s.tables) {
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t node : {0u, 1u, 2u}) table.rows[r][sized(s.lengths[r]) + node] = -1;
    }
  }
  scene chains = s;
  for (auto& e : chains.entries) e.path = {0, 1, 2};
  for (auto& t : chains.tensors) t.heads = 0;
  for (auto const& context : contexts_for(operation::compact_kv)) {
    check_moves(context.ctx, dtype::i32, s);
    check_moves(context.ctx, dtype::i32, chains);
  }
}

TEST_CASE("compact_kv leaves dead rows alone, though their tables point at live pages",
          "[compact][small]") {
  scene s = paged_scene(5, layouts[0], 4);
  s.shape.batch = 5;
  s.shape.requests = 5;
  s.lengths.push_back(s.lengths[0]);           // request 3: stale, on request 0's pages
  s.lengths.push_back((number{1} << 40) + 1);  // request 4: length out of range
  for (auto& table : s.tables) {
    table.rows.push_back(table.rows[0]);
    table.rows.push_back(table.rows[1]);
  }
  s.entries[0].path.clear();  // num_accepted -1
  s.entries.push_back({-1, {0, 3, 9}});
  s.entries.push_back({4, {0, 3, 9}});
  SECTION("as they are") {}
  SECTION("request beyond the pool") { s.entries[3].request = 5; }
  SECTION("num_accepted of a finished request") {
    s.entries[3].request = 3;
    s.entries[3].path.clear();
  }
  scene expected = s;
  expected.entries.resize(3);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i64, s);
    REQUIRE(got.status);
    CHECK(got.memory == expected_memory(expected));
    CHECK(got.flags == std::vector<std::uint32_t>(5, earlier));
  }
}

TEST_CASE("compact_kv over no rows does nothing", "[compact][small]") {
  scene s = paged_scene(5, layouts[0], 4);
  s.shape.batch = 0;
  s.shape.requests = 3;
  s.entries.clear();
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    CHECK(got.memory == s.memory);
  }
}

TEST_CASE("compact_kv skips and flags rows outside table or tensor, and moves the others",
          "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      for (int fault : {0, 1, 2, 3}) {
        scene s = paged_scene(seed, layouts[0], 4);
        if (fault == 0) {
          for (auto& row : s.tables[0].rows) row.resize(6);
        } else if (fault == 1) {
          for (auto& t : s.tensors) t.pages -= 12;
        } else if (fault == 2) {
          for (auto& row : s.tables[0].rows) row[row.size() - 3] = -1;
        } else {
          for (auto& row : s.tables[0].rows) row[row.size() - 4] = number{1} << 62;
        }
        std::vector<bool> skipped(3, false);
        auto const expected = expected_memory(s, &skipped);
        dtype const type = dtype::i64;
        outcome const got = run(context.ctx, type, s);
        CAPTURE(context.name, seed, fault);
        REQUIRE(got.status);
        CHECK(got.memory == expected);
        for (std::size_t b = 0; b < 3; ++b) {
          std::uint32_t const met = skipped[b] ? ddtree::flag::slot_out_of_range : 0u;
          CHECK(got.flags[b] == (earlier | met));
        }
      }
    }
  }
}

TEST_CASE("compact_kv skips and flags path entries that are no path", "[compact][small]") {
  scene const good = paged_scene(2, layouts[0], 4);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (number bad : {number{-1}, number{1}, number{21}, number{1} << 30, -(number{1} << 31)}) {
      scene s = good;
      s.entries[0].path = {0, 4, bad, 9, 15};
      // The others move to where they belong, as if the bad entry were in place.
      scene expected = s;
      expected.entries[0].path[2] = 2;
      outcome const got = run(context.ctx, dtype::i32, s);
      CAPTURE(context.name, bad);
      REQUIRE(got.status);
      CHECK(got.memory == expected_memory(expected));
      CHECK(got.flags[0] == (earlier | ddtree::flag::id_out_of_range));
      CHECK(got.flags[1] == earlier);
    }
  }
}

TEST_CASE("compact_kv holds num_accepted to depth", "[compact][small]") {
  scene s = paged_scene(2, layouts[0], 4);
  s.entries[2].path = {0, 2, 3, 5, 7, 9, 11, 13, 15, 17};  // the last two are not in the array
  scene expected = s;
  expected.entries[2].path.resize(8);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    CHECK(got.memory == expected_memory(expected));
    CHECK(got.flags[2] == (earlier | ddtree::flag::id_out_of_range));
    CHECK(got.flags[0] == earlier);
  }
}

TEST_CASE("compact_kv skips and flags tensors that are none", "[compact][small]") {
  scene const s = paged_scene(2, layouts[0], 4);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    buffer<unsigned char> memory(context.ctx, s.memory);
    std::vector<ddtree::kv_tensor> bad(7, tensor_of(s.tensors[0], memory.data()));
    bad[0].base = nullptr;
    bad[1].heads = 0;
    bad[2].heads = -4;
    bad[3].row_bytes = 0;
    bad[4].row_bytes = -16;
    bad[5].table = 4;
    bad[6].table = -1;
    for (auto const& tensor : bad) {
      buffer<ddtree::kv_tensor> list(context.ctx, std::vector<ddtree::kv_tensor>{tensor});
      table_buffer table(context.ctx, dtype::i32, s.tables[0]);
      accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
      ddtree::kv_cache cache{list.data(), 1, {table.view(false), {}, {}, {}}};
      REQUIRE(ddtree::compact_kv(context.ctx, s.shape, batch.view(), batch.accepted(), cache));
      CHECK(memory.values() == s.memory);
      CHECK(batch.flags()[1] == (earlier | ddtree::flag::slot_out_of_range));
    }
  }
}

TEST_CASE("compact_kv gives a request the same bytes alone and in a batch", "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (unsigned seed = 20; seed < 24; ++seed) {
      scene const all = paged_scene(seed, layouts[0], 5);
      scene one_by_one = all;
      for (std::size_t b : {2u, 0u, 1u}) {
        scene alone = one_by_one;
        alone.shape.batch = 1;
        alone.shape.requests = 3;
        alone.entries = {all.entries[b]};
        one_by_one.memory = run(context.ctx, dtype::i32, alone).memory;
      }
      CHECK(one_by_one.memory == run(context.ctx, dtype::i32, all).memory);
    }
  }
}

// ---- index_only

namespace {

/// Slot lists of three requests, page size 1; the tensor of that table must not move.
scene slot_scene(unsigned seed) {
  scene s = paged_scene(seed, layouts[0], 1);
  s.tables.resize(1);
  s.index_only = {true};
  return s;
}

}  // namespace

TEST_CASE("compact_kv permutes a slot list: accepted first, the others in their old order",
          "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    for (dtype type : {dtype::i32, dtype::i64}) {
      for (unsigned seed = 0; seed < 40; ++seed) {
        scene const s = slot_scene(seed);
        auto expected = rows_of(s.tables);
        for (auto const& walk : s.walks()) {
          auto& row = expected[0][sized(walk.request)];
          row = oracle::permute_slots(row, walk, s.shape.width());
        }
        outcome const got = run(context.ctx, type, s);
        CAPTURE(context.name, type == dtype::i64, seed);
        REQUIRE(got.status);
        CHECK(got.tables == expected);
        CHECK(got.memory == s.memory);
        CHECK(got.flags == std::vector<std::uint32_t>(3, earlier));
        for (std::size_t r = 0; r < 3; ++r) {
          CHECK(std::is_permutation(got.tables[0][r].begin(), got.tables[0][r].end(),
                                    s.tables[0].rows[r].begin()));
        }
      }
    }
  }
}

TEST_CASE("compact_kv keeps the marks of a permuted slot list, and needs no tensor",
          "[compact][small]") {
  scene s = slot_scene(3);
  s.tensors.clear();
  s.entries[0] = {2, {0, 3, 4, 8}};
  for (auto& row : s.tables[0].rows) {
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = -number(c) * 1000 - 7;
  }
  s.tables[0].mask = 0xff;
  s.tables[0].scale = 2;
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    auto const& row = got.tables[0][2];
    auto const entry = [](number c) { return -c * 1000 - 7; };
    // S = 2: the root at column 2, then nodes 3, 4, 8, then 1, 2, 5, 6, 7, then 9 and on as before.
    std::vector<number> const columns{0, 1, 2, 5, 6, 10, 3, 4, 7, 8, 9, 11, 12};
    for (std::size_t c = 0; c < columns.size(); ++c) CHECK(row[c] == entry(columns[c]));
  }
}

TEST_CASE("compact_kv permutes nothing where an accepted slot is outside the list",
          "[compact][small]") {
  scene s = slot_scene(4);
  s.entries[0] = {2, {0, 3, 9}};
  s.entries[1] = {0, {0, 3, 9}};
  s.entries[2] = {1, {0}};
  // Columns for the accepted slots of request 2 (S = 2), not for those of request 0 (S > 16). The
  // tree's other slots need not be there.
  for (auto& row : s.tables[0].rows) row.resize(12);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    auto expected = rows_of(s.tables);
    expected[0][2] = oracle::permute_slots(expected[0][2], {2, 2, {0, 3, 9}}, s.shape.width());
    CHECK(got.tables == expected);
    CHECK(got.flags[0] == earlier);
    CHECK(got.flags[1] == (earlier | ddtree::flag::slot_out_of_range));
    CHECK(got.flags[2] == earlier);
  }
  for (auto& row : s.tables[0].rows) row.resize(11);
  for (auto const& context : contexts_for(operation::compact_kv)) {
    outcome const got = run(context.ctx, dtype::i32, s);
    CHECK(got.tables == rows_of(s.tables));
    CHECK(got.flags[0] == (earlier | ddtree::flag::slot_out_of_range));
  }
}

TEST_CASE("compact_kv permutes nothing where the path does not rise", "[compact][small]") {
  std::vector<std::vector<number>> const paths{
      {0, 4, 4}, {0, 5, 3}, {0, -1, 3}, {0, 0, 3}, {0, 2, 21}};
  for (auto const& path : paths) {
    scene s = slot_scene(4);
    s.entries[1].path = path;
    s.entries[0].path = s.entries[2].path = {0};
    for (auto const& context : contexts_for(operation::compact_kv)) {
      outcome const got = run(context.ctx, dtype::i32, s);
      REQUIRE(got.status);
      CHECK(got.tables == rows_of(s.tables));
      CHECK(got.flags[1] == (earlier | ddtree::flag::id_out_of_range));
    }
  }
}

TEST_CASE("compact_kv moves the tensors of one table and permutes another", "[compact][small]") {
  for (auto const& context : contexts_for(operation::compact_kv)) {
    scene s = paged_scene(11, layouts[6], 1);  // rows under table 0, scales under table 1
    s.index_only = {false, true};
    scene moved = s;
    moved.tensors.resize(1);
    auto expected = rows_of(s.tables);
    for (auto const& walk : s.walks()) {
      auto& row = expected[1][sized(walk.request)];
      row = oracle::permute_slots(row, walk, s.shape.width());
    }
    outcome const got = run(context.ctx, dtype::i32, s);
    REQUIRE(got.status);
    CHECK(got.memory == expected_memory(moved));
    CHECK(got.tables == expected);
  }
}

// ---- rounds

TEST_CASE("1,000 rounds of two requests that share a prefix leave both sequences intact",
          "[compact]") {
  constexpr number page_size = 5, prompt = 13, limit = 90, row = 8;
  for (auto const& context : contexts_for(operation::compact_kv)) {
    random_numbers random(99);
    scene s;
    s.shape = {.batch = 2, .vocab = 100, .depth = 6, .top_k = 1, .budget = 17};
    number const pages = 64;
    s.memory = random_bytes(random, separate_nhd<2, row>(s.tensors, pages, page_size));
    std::vector<std::vector<std::uint64_t>> content(2);  // what each committed slot must hold
    std::uint64_t stamp = 0;
    auto const write = [&](number request, number slot, std::uint64_t value) {
      for (auto const& tensor : s.tensors) {
        number const at = *oracle::find_slot(tensor, s.tables[0], request, slot);
        for (number head : {0, 1}) {
          std::memcpy(&s.memory[sized(at + head * tensor.head_stride)], &value, sizeof value);
        }
      }
    };
    for (int round = 0; round < 1000; ++round) {
      bool const full = !s.lengths.empty() && std::max(s.lengths[0], s.lengths[1]) > limit;
      if (s.lengths.empty() || full) {
        s.lengths = {prompt, prompt};
        s.tables = {paged(random, {limit + 8, prompt}, s.shape.width(), pages, page_size)};
        content = {{}, {}};
        for (number slot = 0; slot < prompt; ++slot) {
          // Whole pages of the prompt are shared; both write the same there.
          std::uint64_t const value = ++stamp;
          for (number r : {0, 1}) {
            write(r, slot, value);
            content[sized(r)].push_back(value);
          }
        }
      }
      s.entries.clear();
      for (number r : {0, 1}) {
        s.entries.push_back({r, random_path(random, random.below(7), s.shape.width())});
        number const begin = s.lengths[sized(r)];
        std::vector<std::uint64_t> tree(sized(s.shape.width()));
        for (number i = 0; i < s.shape.width(); ++i) {
          write(r, begin + i, tree[sized(i)] = ++stamp);
        }
        for (number node : s.entries.back().path) content[sized(r)].push_back(tree[sized(node)]);
      }
      outcome const got = run(context.ctx, dtype::i32, s);
      REQUIRE(got.status);
      s.memory = got.memory;
      for (std::size_t r = 0; r < 2; ++r) s.lengths[r] += number(s.entries[r].path.size());
      bool same = true;
      for (number r : {0, 1}) {
        for (number slot = 0; slot < s.lengths[sized(r)]; ++slot) {
          for (auto const& tensor : s.tensors) {
            number const at = *oracle::find_slot(tensor, s.tables[0], r, slot);
            same = same && std::memcmp(&s.memory[sized(at)], &content[sized(r)][sized(slot)],
                                       sizeof(std::uint64_t)) == 0;
          }
        }
      }
      CAPTURE(context.name, round);
      REQUIRE(same);
    }
  }
}

// ---- compact_rows

namespace {

struct row_scene {
  round_shape shape{.batch = 3, .vocab = 10, .depth = 5, .top_k = 1, .budget = 11, .requests = 4};
  std::vector<batch_entry> entries{{3, {0, 2, 5, 11}}, {-1, {0, 1}}, {0, {0}}};
  std::vector<number> lengths{4, 5, 6, 7};
  index_t row_bytes = 6;
};

/// Rows (b, path[r]) of `from` to rows (b, r) of `to`, both dense with these strides.
oracle::bytes expected_rows(row_scene const& s, oracle::bytes const& from, index_t from_stride,
                            std::vector<number> const& from_first, oracle::bytes to,
                            index_t to_stride, std::vector<number> const& to_first) {
  for (std::size_t b = 0; b < s.entries.size(); ++b) {
    if (s.entries[b].request < 0) continue;
    auto const& path = s.entries[b].path;
    for (std::size_t r = 0; r < path.size(); ++r) {
      for (index_t i = 0; i < s.row_bytes; ++i) {
        to.at(sized((to_first[b] + number(r)) * to_stride + i)) =
            from.at(sized((from_first[b] + path[r]) * from_stride + i));
      }
    }
  }
  return to;
}

}  // namespace

TEST_CASE("compact_rows copies root and accepted rows in place", "[compact][small]") {
  row_scene const s;
  random_numbers random(1);
  index_t const width = s.shape.width();
  std::vector<number> const first{0, width, 2 * width};
  for (auto const& context : contexts_for(operation::compact_rows)) {
    for (dtype type : {dtype::i32, dtype::i64}) {
      auto const before = random_bytes(random, 3 * width * s.row_bytes);
      buffer<unsigned char> memory(context.ctx, before);
      accepted_batch batch(context.ctx, type, s.shape, s.entries, s.lengths);
      ddtree::rows_view const rows{memory.data(), s.row_bytes, 0, 0, {}};
      REQUIRE(
          ddtree::compact_rows(context.ctx, s.shape, batch.view(), batch.accepted(), rows, rows));
      CHECK(memory.values() ==
            expected_rows(s, before, s.row_bytes, first, before, s.row_bytes, first));
      CHECK(memory.intact());
      CHECK(batch.intact());
      CHECK(batch.flags() == std::vector<std::uint32_t>(3, earlier));
    }
  }
}

TEST_CASE("compact_rows copies root and accepted rows to other memory", "[compact][small]") {
  row_scene const s;
  random_numbers random(1);
  index_t const width = s.shape.width();
  for (auto const& context : contexts_for(operation::compact_rows)) {
    auto const before = random_bytes(random, 3 * width * s.row_bytes);
    buffer<unsigned char> from(context.ctx, before);
    buffer<unsigned char> to(context.ctx, sized(3 * 6 * 9));
    auto const to_before = to.values();
    accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
    ddtree::rows_view const rows{from.data(), s.row_bytes, 0, 0, {}};
    // depth + 1 rows per request, 9 bytes apart.
    ddtree::rows_view const target{to.data(), s.row_bytes, 9, s.shape.depth + 1, {}};
    REQUIRE(
        ddtree::compact_rows(context.ctx, s.shape, batch.view(), batch.accepted(), rows, target));
    CHECK(to.values() ==
          expected_rows(s, before, s.row_bytes, {0, width, 2 * width}, to_before, 9, {0, 6, 12}));
    CHECK(from.values() == before);
    CHECK(to.intact());
  }
}

TEST_CASE("compact_rows finds packed rows by row_offset", "[compact][small]") {
  row_scene const s;
  random_numbers random(2);
  for (auto const& context : contexts_for(operation::compact_rows)) {
    auto const bytes = random_bytes(random, 30 * s.row_bytes);
    buffer<unsigned char> from(context.ctx, bytes);
    buffer<unsigned char> to(context.ctx, sized(10 * s.row_bytes));
    auto const before = to.values();
    accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
    id_buffer from_offset(context.ctx, dtype::i64, {13, -7, 1});
    id_buffer to_offset(context.ctx, dtype::i32, {1, 1 << 30, 6});
    ddtree::rows_view const rows{from.data(), s.row_bytes, 0, 0, from_offset.view()};
    ddtree::rows_view const target{to.data(), s.row_bytes, 0, 0, to_offset.view()};
    REQUIRE(
        ddtree::compact_rows(context.ctx, s.shape, batch.view(), batch.accepted(), rows, target));
    CHECK(to.values() ==
          expected_rows(s, bytes, s.row_bytes, {13, -7, 1}, before, s.row_bytes, {1, 0, 6}));
    CHECK(to.intact());
    CHECK(batch.flags() == std::vector<std::uint32_t>(3, earlier));
  }
}

TEST_CASE("compact_rows skips and flags what is out of range", "[compact][small]") {
  row_scene s;
  s.entries = {{3, {0, 2, 12, 6}}, {1, {0, 3}}, {0, {0, 1, 3, 4, 5, 6, 9}}};
  random_numbers random(3);
  for (auto const& context : contexts_for(operation::compact_rows)) {
    auto const bytes = random_bytes(random, 36 * s.row_bytes);
    buffer<unsigned char> from(context.ctx, bytes);
    accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
    id_buffer offset(context.ctx, dtype::i64, {0, -1, 24});
    ddtree::rows_view const rows{from.data(), s.row_bytes, 0, 0, offset.view()};
    REQUIRE(ddtree::compact_rows(context.ctx, s.shape, batch.view(), batch.accepted(), rows, rows));
    row_scene expected = s;
    expected.entries = {{3, {0, 2, 2, 6}}, {-1, {}}, {0, {0, 1, 3, 4, 5, 6}}};
    auto const moved =
        expected_rows(expected, bytes, s.row_bytes, {0, 0, 24}, bytes, s.row_bytes, {0, 0, 24});
    // Entry 2 of the first path was skipped: its destination keeps its bytes.
    auto want = moved;
    std::copy_n(bytes.begin() + 2 * s.row_bytes, s.row_bytes, want.begin() + 2 * s.row_bytes);
    CHECK(from.values() == want);
    CHECK(batch.flags()[0] == (earlier | ddtree::flag::id_out_of_range));
    CHECK(batch.flags()[1] == (earlier | ddtree::flag::slot_out_of_range));
    CHECK(batch.flags()[2] == (earlier | ddtree::flag::id_out_of_range));
  }
}

// ---- compact_state

namespace {

constexpr index_t state_bytes = 7, node_stride = 9, nodes = 12, from_stride = 120, to_stride = 8;
constexpr std::size_t from_slots = 4, to_slots = 6;

struct state_buffers {
  explicit state_buffers(ddtree::context const& ctx)
      : from(ctx, 2 * from_slots * sized(from_stride)),
        to(ctx, 2 * to_slots * sized(to_stride)),
        list(ctx, 2) {
    random_numbers random(17);
    from.assign(random_bytes(random, number(from.size())));
    std::vector<ddtree::state_tensor> tensors(2);
    for (std::size_t t = 0; t < 2; ++t) {
      tensors[t] = {
          from.data() + t * from_slots * sized(from_stride), from_stride, node_stride, from_slots,
          to.data() + t * to_slots * sized(to_stride),       to_stride,   to_slots,    state_bytes};
    }
    list.assign(tensors);
  }
  ddtree::state_view view() { return {list.data(), 2, {}, {}, {}}; }
  bool intact() const { return from.intact() && to.intact() && list.intact(); }

  buffer<unsigned char> from;
  buffer<unsigned char> to;
  buffer<ddtree::state_tensor> list;
};

struct state_copy {
  std::size_t from_slot, node, to_slot;
};

oracle::bytes expected_states(state_buffers const& buffers, oracle::bytes to,
                              std::vector<state_copy> const& copies) {
  auto const from = buffers.from.values();
  for (std::size_t t = 0; t < 2; ++t) {
    for (auto const& c : copies) {
      auto const source =
          (t * from_slots + c.from_slot) * sized(from_stride) + c.node * sized(node_stride);
      auto const target = (t * to_slots + c.to_slot) * sized(to_stride);
      std::copy_n(from.begin() + index_t(source), state_bytes, to.begin() + index_t(target));
    }
  }
  return to;
}

}  // namespace

TEST_CASE("compact_state copies the state of the accepted node to the request's slot",
          "[compact][small]") {
  row_scene const s;  // batch rows: request 3 with nodes 0 2 5 11, dead, request 0 with the root
  for (auto const& context : contexts_for(operation::compact_state)) {
    for (dtype type : {dtype::i32, dtype::i64}) {
      state_buffers states(context.ctx);
      auto const before = states.to.values();
      accepted_batch batch(context.ctx, type, s.shape, s.entries, s.lengths);
      ddtree::state_view view = states.view();
      REQUIRE(ddtree::compact_state(context.ctx, s.shape, batch.view(), batch.accepted(), view));
      CHECK(states.to.values() == expected_states(states, before, {{0, 11, 3}, {2, 0, 0}}));

      // Once more for a checkpoint: other slots, an earlier node.
      id_buffer from_slot(context.ctx, type, {2, 0, 0, 1});
      id_buffer to_slot(context.ctx, type, {5, 9, 9, 2});
      id_buffer take(context.ctx, type, {2, 7, 0});
      view.from_slot = from_slot.view();
      view.to_slot = to_slot.view();
      view.take = take.view();
      REQUIRE(ddtree::compact_state(context.ctx, s.shape, batch.view(), batch.accepted(), view));
      CHECK(states.to.values() ==
            expected_states(states, before, {{0, 11, 3}, {2, 0, 0}, {1, 5, 2}, {2, 0, 5}}));
      CHECK(states.intact());
      CHECK(batch.flags() == std::vector<std::uint32_t>(3, earlier));
    }
  }
}

TEST_CASE("compact_state skips -1 silently and flags what is out of range", "[compact][small]") {
  row_scene s;
  s.shape.batch = 6;
  s.shape.requests = 6;
  s.lengths.assign(6, 1);
  s.entries.clear();
  for (number r = 0; r < 6; ++r) s.entries.push_back({r, {0, 2, 5}});
  struct slots_case {
    std::vector<number> from, to, take;
    std::vector<state_copy> copies;
  };
  std::vector<number> const each{0, 1, 2, 3, 0, 1}, own{0, 1, 2, 3, 4, 5}, last(6, 2);
  // In each case row 0 is skipped by the caller, rows 4 and 5 are out of range.
  std::vector<slots_case> const cases{
      {each, own, {-1, 0, 1, 2, 3, -2}, {{1, 0, 1}, {2, 2, 2}, {3, 5, 3}}},
      {each, {-1, 5, 4, 3, 6, -2}, last, {{1, 5, 5}, {2, 5, 4}, {3, 5, 3}}},
      {{0, 1, 2, 3, 4, -1}, {-1, 1, 2, 3, 4, 5}, last, {{1, 5, 1}, {2, 5, 2}, {3, 5, 3}}},
  };
  for (auto const& context : contexts_for(operation::compact_state)) {
    for (auto const& c : cases) {
      state_buffers states(context.ctx);
      auto const before = states.to.values();
      accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
      id_buffer from_slot(context.ctx, dtype::i64, c.from);
      id_buffer to_slot(context.ctx, dtype::i64, c.to);
      id_buffer take(context.ctx, dtype::i64, c.take);
      ddtree::state_view const view{states.list.data(), 2, from_slot.view(), to_slot.view(),
                                    take.view()};
      REQUIRE(ddtree::compact_state(context.ctx, s.shape, batch.view(), batch.accepted(), view));
      CHECK(states.to.values() == expected_states(states, before, c.copies));
      CHECK(states.intact());
      std::uint32_t const bad = earlier | ddtree::flag::slot_out_of_range;
      CHECK(batch.flags() ==
            std::vector<std::uint32_t>{earlier, earlier, earlier, earlier, bad, bad});
    }
  }
}

TEST_CASE("compact_state flags a bad path entry and a tensor without memory", "[compact][small]") {
  row_scene s;
  s.entries = {{3, {0, 2, 12}}, {1, {0, 2}}, {0, {0}}};
  for (auto const& context : contexts_for(operation::compact_state)) {
    state_buffers states(context.ctx);
    auto const before = states.to.values();
    accepted_batch batch(context.ctx, dtype::i32, s.shape, s.entries, s.lengths);
    REQUIRE(
        ddtree::compact_state(context.ctx, s.shape, batch.view(), batch.accepted(), states.view()));
    CHECK(states.to.values() == expected_states(states, before, {{1, 2, 1}, {2, 0, 0}}));
    CHECK(batch.flags()[0] == (earlier | ddtree::flag::id_out_of_range));
    CHECK(batch.flags()[1] == earlier);

    auto tensors = states.list.values();
    tensors[0].from = nullptr;
    tensors[1].bytes = 0;
    states.list.assign(tensors);
    states.to.assign(before);
    REQUIRE(
        ddtree::compact_state(context.ctx, s.shape, batch.view(), batch.accepted(), states.view()));
    CHECK(states.to.values() == before);
    CHECK(batch.flags()[1] == (earlier | ddtree::flag::slot_out_of_range));
  }
}

// ---- advance

TEST_CASE("advance adds what each live request emitted, the bonus included", "[compact][small]") {
  round_shape const shape{
      .batch = 5, .vocab = 10, .depth = 5, .top_k = 1, .budget = 11, .requests = 7};
  std::vector<batch_entry> const entries{
      {6, {0, 2, 5}}, {-1, {0, 1}}, {0, {}}, {3, {0}}, {4, {0, 1, 2, 3, 4, 5, 6, 7}}};
  std::vector<number> const lengths{10, 20, 30, 40, 50, 60, 70};
  for (auto const& context : contexts_for(operation::advance)) {
    for (dtype type : {dtype::i32, dtype::i64}) {
      accepted_batch batch(context.ctx, type, shape, entries, lengths);
      ddtree::accepted counts;
      counts.num_accepted = batch.path.num_accepted.data();
      REQUIRE(ddtree::advance(context.ctx, shape, batch.view(), counts, batch.cache_len.view()));
      CHECK(batch.cache_len.values() == std::vector<number>{10, 20, 30, 41, 56, 60, 73});
      CHECK(batch.intact());
    }
  }
}

TEST_CASE("advance adds to another array than the batch's, and leaves bad lengths alone",
          "[compact][small]") {
  round_shape const shape{.batch = 3, .vocab = 10, .depth = 5, .top_k = 1, .budget = 11};
  std::vector<batch_entry> const entries{{0, {0, 2, 5}}, {1, {0, 1}}, {2, {0, 4}}};
  number const far = (number{1} << 40) + 1;
  for (auto const& context : contexts_for(operation::advance)) {
    accepted_batch batch(context.ctx, dtype::i64, shape, entries, {5, -1, 7});
    id_buffer other(context.ctx, dtype::i64, {100, 200, far});
    REQUIRE(ddtree::advance(context.ctx, shape, batch.view(), batch.accepted(), other.view()));
    CHECK(other.values() == std::vector<number>{103, 200, far});
    CHECK(batch.cache_len.values() == std::vector<number>{5, -1, 7});

    ddtree::batch_view const unbound{};
    REQUIRE(ddtree::advance(context.ctx, shape, unbound, batch.accepted(), other.view()));
    CHECK(other.values() == std::vector<number>{106, 202, far});
  }
}

// ---- bad arguments

namespace {

void check_refused(ddtree::status const& s, char const* message,
                   errc code = errc::invalid_argument) {
  CHECK(std::string(s.message) == message);
  CHECK(s.code == code);
}

}  // namespace

TEST_CASE("compact_kv refuses bad arguments by name", "[compact][small]") {
  auto const ctx = ddtree::context::cpu();
  scene const s = paged_scene(2, layouts[0], 1);
  buffer<unsigned char> memory(ctx, s.memory);
  accepted_batch batch(ctx, dtype::i32, s.shape, s.entries, s.lengths);
  table_buffer table(ctx, dtype::i32, s.tables[0]);
  ddtree::kv_tensor const tensor = tensor_of(s.tensors[0], memory.data());
  ddtree::kv_cache const good{&tensor, 1, {table.view(false), {}, {}, {}}};

  auto const call = [&](auto change) {
    auto c = ctx;
    auto shape = s.shape;
    auto view = batch.view();
    auto path = batch.accepted();
    auto cache = good;
    change(c, shape, view, path, cache);
    return ddtree::compact_kv(c, shape, view, path, cache);
  };
#define REFUSES(message, statement)                                                   \
  check_refused(call([&](auto& c, auto& shape, auto& view, auto& path, auto& cache) { \
                  (void)c, (void)shape, (void)view, (void)path, (void)cache;          \
                  statement;                                                          \
                }),                                                                   \
                message)
  REFUSES("compact_kv: context.threads < 1", c.threads = 0);
  REFUSES("compact_kv: shape.depth outside [0, 31]", shape.depth = 32);
  REFUSES("compact_kv: batch.cache_len is null", view.cache_len = {});
  REFUSES("compact_kv: batch.cache_len is neither i32 nor i64", view.cache_len.type = dtype::f32);
  REFUSES("compact_kv: batch.request is neither i32 nor i64", view.request.type = dtype::u8);
  REFUSES("compact_kv: path.path is null", path.path = nullptr);
  REFUSES("compact_kv: path.num_accepted is null", path.num_accepted = nullptr);
  REFUSES("compact_kv: path.flags is null", path.flags = nullptr);
  REFUSES("compact_kv: cache.num_tensors < 0", cache.num_tensors = -1);
  REFUSES("compact_kv: cache.tensors is null", cache.tensors = nullptr);
  REFUSES("compact_kv: cache.table.entries is neither i32 nor i64",
          cache.table[0].entries.type = dtype::bf16);
  REFUSES("compact_kv: cache.table.entries.stride < 0", cache.table[0].entries.stride = -1);
  REFUSES("compact_kv: cache.table.entries.stride shorter than a row",
          cache.table[0].entries.stride = cache.table[0].columns - 1);
  REFUSES("compact_kv: cache.table.columns < 0", cache.table[3].columns = -1);
  REFUSES("compact_kv: cache.table.page_size < 1", cache.table[2].page_size = 0);
  REFUSES("compact_kv: cache.table.entry_scale outside [1, 1048576]",
          cache.table[1].entry_scale = 0);
  REFUSES("compact_kv: cache.table.entry_scale outside [1, 1048576]",
          cache.table[1].entry_scale = (1 << 20) + 1);
  REFUSES("compact_kv: cache.table.index_only with page_size > 1",
          (cache.table[0].index_only = true, cache.table[0].page_size = 2));
  REFUSES("compact_kv: cache.table.entries of index_only is null",
          cache.table[1].index_only = true);
#undef REFUSES
  CHECK(memory.values() == s.memory);
  CHECK(batch.flags() == std::vector<std::uint32_t>(3, earlier));
}

TEST_CASE("compact_rows refuses bad arguments by name", "[compact][small]") {
  auto const ctx = ddtree::context::cpu();
  row_scene const s;
  buffer<unsigned char> rows(ctx, 36 * 6);
  auto const before = rows.values();
  accepted_batch batch(ctx, dtype::i32, s.shape, s.entries, s.lengths);
  auto const call = [&](auto change) {
    auto path = batch.accepted();
    ddtree::rows_view from{rows.data(), 6, 0, 0, {}};
    auto to = from;
    change(path, from, to);
    return ddtree::compact_rows(ctx, s.shape, batch.view(), path, from, to);
  };
#define REFUSES(message, statement)                          \
  check_refused(call([&](auto& path, auto& from, auto& to) { \
                  (void)path, (void)from, (void)to;          \
                  statement;                                 \
                }),                                          \
                message)
  REFUSES("compact_rows: path.path is null", path.path = nullptr);
  REFUSES("compact_rows: path.flags is null", path.flags = nullptr);
  REFUSES("compact_rows: from.data is null", from.data = nullptr);
  REFUSES("compact_rows: to.data is null", to.data = nullptr);
  REFUSES("compact_rows: from.row_bytes < 1", from.row_bytes = 0);
  REFUSES("compact_rows: to.row_bytes < 1", to.row_bytes = -3);
  REFUSES("compact_rows: to.row_bytes != from.row_bytes", to.row_bytes = 5);
  REFUSES("compact_rows: from.row_stride_bytes shorter than a row", from.row_stride_bytes = 5);
  REFUSES("compact_rows: to.row_stride_bytes shorter than a row", to.row_stride_bytes = -6);
  REFUSES("compact_rows: from.batch_stride < 0", from.batch_stride = -1);
  REFUSES("compact_rows: to.row_offset is neither i32 nor i64",
          to.row_offset = ddtree::ids_in(rows.data(), dtype::u8));
#undef REFUSES
  CHECK(rows.values() == before);
}

TEST_CASE("compact_state and advance refuse bad arguments by name", "[compact][small]") {
  auto const ctx = ddtree::context::cpu();
  row_scene const s;
  accepted_batch batch(ctx, dtype::i32, s.shape, s.entries, s.lengths);
  state_buffers states(ctx);
  auto const call = [&](auto change) {
    auto path = batch.accepted();
    auto view = states.view();
    change(path, view);
    return ddtree::compact_state(ctx, s.shape, batch.view(), path, view);
  };
#define REFUSES(message, statement)                \
  check_refused(call([&](auto& path, auto& view) { \
                  (void)path, (void)view;          \
                  statement;                       \
                }),                                \
                message)
  REFUSES("compact_state: path.num_accepted is null", path.num_accepted = nullptr);
  REFUSES("compact_state: path.flags is null", path.flags = nullptr);
  REFUSES("compact_state: state.num_tensors < 0", view.num_tensors = -1);
  REFUSES("compact_state: state.tensors is null", view.tensors = nullptr);
  float number_that_is_no_id = 0;
  ddtree::ids_in const no_ids(&number_that_is_no_id, dtype::f32);
  REFUSES("compact_state: state.from_slot is neither i32 nor i64", view.from_slot = no_ids);
  REFUSES("compact_state: state.to_slot is neither i32 nor i64", view.to_slot = no_ids);
  REFUSES("compact_state: state.take is neither i32 nor i64", view.take = no_ids);
#undef REFUSES

  auto path = batch.accepted();
  check_refused(ddtree::advance(ctx, s.shape, batch.view(), path, nullptr),
                "advance: cache_len is null");
  check_refused(
      ddtree::advance(ctx, s.shape, batch.view(), path, {batch.cache_len.view().data, dtype::f16}),
      "advance: cache_len is neither i32 nor i64");
  path.num_accepted = nullptr;
  check_refused(ddtree::advance(ctx, s.shape, batch.view(), path, batch.cache_len.view()),
                "advance: path.num_accepted is null");
}
