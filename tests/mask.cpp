// SPDX-License-Identifier: Apache-2.0
#include "ddtree/mask.hpp"

#include "oracle/mask.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"
#include "support/trees.hpp"

#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::dtype;
using ddtree::errc;
using ddtree::index_t;
using ddtree::mask_columns;
using ddtree::mask_kind;
using ddtree::operation;
using ddtree::padding_slot;
using ddtree::round_shape;
using oracle::mask::layout;
using oracle::mask::region;
using oracle::mask::tree;

using id_list = std::vector<std::int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t inactive = -1;  // as a request's cache length

class random_numbers {
 public:
  explicit random_numbers(unsigned seed) : engine_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

tree make_tree(random_numbers& rng, int nodes, index_t width) {
  tree t;
  t.num_nodes = nodes;
  t.parent.assign(sized(width), -1);
  t.depth.assign(sized(width), 0);
  for (int i = 1; i < nodes; ++i) {
    int parent = rng.between(std::max(0, i - 1 - rng.between(0, 40)), i - 1);
    while (t.depth[sized(parent)] >= ddtree::max_depth) parent = rng.between(0, i - 1);
    t.parent[sized(i)] = parent;
    t.depth[sized(i)] = t.depth[sized(parent)] + 1;
  }
  return t;
}

round_shape make_shape(index_t batch, int budget) {
  round_shape s;
  s.batch = batch;
  s.vocab = 1000;
  s.budget = budget;
  s.depth = ddtree::max_depth;
  return s;
}

/// How a column that is seen, and one that is not, look in memory.
struct encoding {
  mask_kind kind;
  dtype type;
  float masked_value;
  std::uint32_t masked;  // bits of masked_value in `type`

  std::size_t bytes() const {
    return kind == mask_kind::boolean ? 1 : kind == mask_kind::bits || type == dtype::f32 ? 4 : 2;
  }
};

encoding const bits = {mask_kind::bits, dtype::u8, 0.0f, 0};
encoding const boolean = {mask_kind::boolean, dtype::u8, 0.0f, 0};
std::vector<encoding> const encodings = {
    bits,
    boolean,
    {mask_kind::additive, dtype::f32, -infinity, 0xff800000u},
    {mask_kind::additive, dtype::f16, -infinity, 0xfc00u},
    {mask_kind::additive, dtype::bf16, -infinity, 0xff80u},
};

mask_columns to_library(region where) {
  return where == region::tree   ? mask_columns::tree
         : where == region::full ? mask_columns::full
                                 : mask_columns::recent;
}

/// A call of write_mask. A request's cache_len of -1 makes it inactive; its tree is then the root
/// alone.
struct mask_case {
  round_shape shape;
  std::vector<tree> trees;
  id_list cache_len;
  layout mask;
  encoding as = bits;
  index_t row_stride = 0;
  index_t batch_stride = 0;
  dtype ids = dtype::i32;

  index_t dense_row() const {
    index_t const columns = oracle::mask::columns_of(mask, shape.width());
    return as.kind == mask_kind::bits ? (columns + 31) / 32 : columns;
  }
  index_t rows_apart() const { return row_stride == 0 ? dense_row() : row_stride; }
  index_t requests_apart() const {
    return batch_stride == 0 ? shape.width() * rows_apart() : batch_stride;
  }
  std::size_t elements() const {
    return sized((shape.batch - 1) * requests_apart() + (shape.width() - 1) * rows_apart() +
                 dense_row());
  }
};

mask_case random_case(random_numbers& rng, int budget, id_list const& cache_len, layout mask,
                      encoding const& as) {
  mask_case c;
  c.shape = make_shape(static_cast<index_t>(cache_len.size()), budget);
  c.cache_len = cache_len;
  c.mask = mask;
  c.as = as;
  for (std::int64_t const length : cache_len) {
    int const nodes = length == inactive ? 1 : rng.between(1, budget + 1);
    c.trees.push_back(make_tree(rng, nodes, c.shape.width()));
  }
  return c;
}

/// Overwrites `memory` as the documentation says that write_mask does.
void expect_mask(mask_case const& c, std::vector<unsigned char>& memory) {
  index_t const width = c.shape.width();
  index_t const columns = oracle::mask::columns_of(c.mask, width);
  for (std::size_t b = 0; b < c.trees.size(); ++b) {
    std::int64_t const length = c.cache_len[b] == inactive ? 0 : c.cache_len[b];
    auto const sees = oracle::mask::ancestors(c.trees[b]);
    for (std::size_t i = 0; i < sized(width); ++i) {
      index_t const row =
          static_cast<index_t>(b) * c.requests_apart() + static_cast<index_t>(i) * c.rows_apart();
      auto const put = [&](index_t at, std::uint32_t value) {
        std::memcpy(memory.data() + sized(row + at) * c.as.bytes(), &value, c.as.bytes());
      };
      auto const visible = [&](index_t column) {
        return oracle::mask::is_visible(c.mask, c.trees[b], sees, length, i, column);
      };
      auto const written = [&](index_t column) {
        return oracle::mask::is_written(c.mask, width, length, column);
      };
      if (c.as.kind != mask_kind::bits) {
        std::uint32_t const shown = c.as.kind == mask_kind::boolean ? 1u : 0u;
        for (index_t column = 0; column < columns; ++column) {
          if (written(column)) put(column, visible(column) ? shown : c.as.masked);
        }
        continue;
      }
      for (index_t word = 0; word * 32 < columns; ++word) {
        std::uint32_t value = 0;
        bool is_written = false;
        for (index_t column = word * 32; column < std::min(columns, word * 32 + 32); ++column) {
          value |= static_cast<std::uint32_t>(visible(column)) << (column % 32);
          is_written = is_written || written(column);
        }
        if (is_written) put(word, value);
      }
    }
  }
}

/// The arrays of a call of write_mask in a context's memory.
class mask_call {
 public:
  mask_call(ddtree::context const& on, mask_case const& c)
      : ctx(on),
        shape(c.shape),
        cache_len(on, c.ids, c.cache_len),
        ancestors(on, words_of(c)),
        depth(on, depths_of(c)),
        memory(on, c.elements() * c.as.bytes()) {
    tree.ancestors = ancestors.data();
    if (c.mask.window > 0) tree.depth = depth.data();
    out.data = memory.data();
    out.kind = c.as.kind;
    out.type = c.as.type;
    out.region = to_library(c.mask.where);
    out.columns = c.mask.columns;
    out.row_stride = c.row_stride;
    out.batch_stride = c.batch_stride;
    out.masked_value = c.as.masked_value;
    out.window = c.mask.window;
  }

  ddtree::status run() {
    return ddtree::write_mask(ctx, shape, {cache_len.view(), nullptr}, tree, out);
  }

  bool intact() const {
    return cache_len.intact() && ancestors.intact() && depth.intact() && memory.intact();
  }

  ddtree::context ctx;
  round_shape shape;
  optional_ids cache_len;
  buffer<std::uint32_t> ancestors;
  buffer<std::int32_t> depth;
  buffer<unsigned char> memory;
  ddtree::draft_tree tree;  // what the call may read; the rest is null
  ddtree::mask_view out;

  static std::vector<std::uint32_t> words_of(mask_case const& c) {
    std::vector<std::uint32_t> all;
    for (oracle::mask::tree const& t : c.trees) {
      for (auto const& row : oracle::mask::ancestors(t)) {
        std::vector<std::uint32_t> words(sized(c.shape.words()), 0u);
        for (std::size_t j = 0; j < row.size(); ++j) {
          words[j / 32] |= static_cast<std::uint32_t>(row[j]) << (j % 32);
        }
        all.insert(all.end(), words.begin(), words.end());
      }
    }
    return all;
  }
  static std::vector<std::int32_t> depths_of(mask_case const& c) {
    std::vector<std::int32_t> all;
    for (oracle::mask::tree const& t : c.trees) {
      all.insert(all.end(), t.depth.begin(), t.depth.end());
    }
    return all;
  }
};

void check(mask_case const& c) {
  std::vector<unsigned char> want(c.elements() * c.as.bytes(), poison_byte);
  expect_mask(c, want);
  for (auto const& on : contexts_for(operation::write_mask)) {
    CAPTURE(on.name);
    mask_call call(on.ctx, c);
    auto const status = call.run();
    CAPTURE(status.message);
    REQUIRE(status);
    REQUIRE(call.intact());
    bool const same = call.memory.values() == want;
    REQUIRE(same);
  }
}

}  // namespace

TEST_CASE("write_mask gives the masks worked out by hand", "[mask][small]") {
  // Node 1 and node 2 are children of the root, node 3 is a child of node 1; row 4 is padding.
  mask_case c;
  c.shape = make_shape(1, 4);
  c.trees = {{{-1, 0, 0, 1, -1}, {0, 1, 1, 2, 0}, 4}};
  c.cache_len = {3};
  for (auto const& on : contexts_for(operation::write_mask)) {
    CAPTURE(on.name);
    auto const words = [&](mask_case const& what) {
      mask_call call(on.ctx, what);
      REQUIRE(call.run());
      REQUIRE(call.intact());
      std::vector<std::uint32_t> found(what.elements());
      auto const bytes = call.memory.values();
      std::memcpy(found.data(), bytes.data(), bytes.size());
      return found;
    };
    CHECK(words(c) == std::vector<std::uint32_t>{0x01, 0x03, 0x05, 0x0b, 0x10});
    c.mask = {region::full, 12, 0};
    CHECK(words(c) == std::vector<std::uint32_t>{0x0f, 0x1f, 0x2f, 0x5f, 0x87});
    c.mask = {region::full, 12, 3};
    // Row 3 has position 5: it sees positions 3 and 4, which are nodes 0 and 1, and itself.
    CHECK(words(c) == std::vector<std::uint32_t>{0x0e, 0x1c, 0x2c, 0x58, 0x86});
    c.mask = {region::tree, 0, 2};
    CHECK(words(c) == std::vector<std::uint32_t>{0x01, 0x03, 0x05, 0x0a, 0x10});
    c.mask = {};
  }
}

TEST_CASE("write_mask writes every kind, type and region of every width", "[mask][small]") {
  int const budget = GENERATE(0, 30, 31, 32, 64);
  auto const where = GENERATE(region::tree, region::full, region::recent);
  auto const form = GENERATE(range(0, 5));
  encoding const as = encodings[sized(form)];
  CAPTURE(budget, where, form);
  random_numbers rng(static_cast<unsigned>(budget));
  for (int const window : {0, 1, 2, 5, 40, 1000}) {
    CAPTURE(window);
    // Caches of no row, of fewer than the width, of about a word, of more.
    auto c = random_case(rng, budget, {0, inactive, budget / 2, budget, 31, 32, 33, 170},
                         {where, 250, window}, as);
    check(c);
    // A stride longer than a row: what lies between rows and between requests stays.
    c.row_stride = c.dense_row() + rng.between(1, 9);
    c.batch_stride = c.shape.width() * c.row_stride + rng.between(0, 9);
    c.ids = dtype::i64;
    check(c);
    // Requests within rows.
    c.batch_stride = c.dense_row() + 1;
    c.row_stride = c.shape.batch * c.batch_stride;
    check(c);
  }
}

TEST_CASE("write_mask writes trees of 1025 and 2048 rows", "[mask]") {
  auto const where = GENERATE(region::tree, region::full, region::recent);
  random_numbers rng(77);
  for (encoding const& as : encodings) {
    check(random_case(rng, 1024, {1, 700}, {where, 1750, 0}, as));
  }
  check(random_case(rng, 1024, {1203}, {where, 2300, 9}, bits));
  check(random_case(rng, 2047, {45}, {where, 2093, 0}, bits));
}

TEST_CASE("write_mask writes a mask without gaps at any address", "[mask][small]") {
  int const budget = GENERATE(1, 2, 6, 31, 32, 33, 95, 127, 128, 129);
  random_numbers rng(static_cast<unsigned>(budget));
  for (encoding const& as : encodings) {
    auto const c = random_case(rng, budget, {0, inactive, 5}, {region::tree, 0, 0}, as);
    std::vector<unsigned char> mask(c.elements() * as.bytes());
    expect_mask(c, mask);
    for (std::size_t skipped = 0; skipped <= 16; skipped += as.bytes()) {
      CAPTURE(budget, skipped, static_cast<int>(as.type));
      for (auto const& on : contexts_for(operation::write_mask)) {
        CAPTURE(on.name);
        mask_call call(on.ctx, c);
        buffer<unsigned char> memory(on.ctx, mask.size() + 16);
        std::vector<unsigned char> want(mask.size() + 16, poison_byte);
        std::copy(mask.begin(), mask.end(), want.begin() + static_cast<std::ptrdiff_t>(skipped));
        call.out.data = memory.data() + skipped;
        REQUIRE(call.run());
        REQUIRE(memory.intact());
        bool const same = memory.values() == want;
        REQUIRE(same);
      }
    }
  }
}

TEST_CASE("write_mask ends at the columns that there are", "[mask][small]") {
  auto const where = GENERATE(region::full, region::recent);
  random_numbers rng(78);
  for (encoding const& as : encodings) {
    for (index_t const columns : {0, 1, 31, 32, 33, 40, 64, 65, 100}) {
      for (int const window : {0, 7}) {
        CAPTURE(columns, window, static_cast<int>(as.type));
        // The tree straddles the last column, or stands past it altogether.
        auto c = random_case(rng, 33, {0, 20, 30, 31, 32, 64, 90, 5000, 123456789},
                             {where, columns, window}, as);
        c.row_stride = c.dense_row() + 1;
        check(c);
      }
    }
  }
}

TEST_CASE("write_mask takes caches and windows of any length", "[mask][small]") {
  auto const where = GENERATE(region::tree, region::full, region::recent);
  index_t const longest = index_t{1} << 40;
  random_numbers rng(79);
  for (index_t const window : {index_t{1}, index_t{1} << 50, std::numeric_limits<index_t>::max()}) {
    for (encoding const& as : encodings) {
      CAPTURE(window, static_cast<int>(as.type));
      auto c = random_case(rng, 9, {longest, longest - 1, 0}, {where, 64, window}, as);
      c.ids = dtype::i64;
      check(c);
    }
  }
}

TEST_CASE("write_mask writes a request past the longest cache as inactive", "[mask][small]") {
  random_numbers rng(80);
  auto c = random_case(rng, 9, {5, inactive}, {region::full, 64, 0}, bits);
  c.ids = dtype::i64;
  std::vector<unsigned char> want(c.elements() * 4, poison_byte);
  expect_mask(c, want);
  c.cache_len[1] = (index_t{1} << 40) + 1;
  for (auto const& on : contexts_for(operation::write_mask)) {
    CAPTURE(on.name);
    mask_call call(on.ctx, c);
    REQUIRE(call.run());
    CHECK(call.memory.values() == want);
  }
}

TEST_CASE("write_mask looks a row's request up", "[mask][small]") {
  dtype const ids = GENERATE(dtype::i32, dtype::i64);
  random_numbers rng(81);
  auto c = random_case(rng, 12, {50, 7, inactive, inactive}, {region::full, 80, 0}, boolean);
  std::vector<unsigned char> want(c.elements(), poison_byte);
  expect_mask(c, want);
  for (auto const& on : contexts_for(operation::write_mask)) {
    CAPTURE(on.name);
    mask_call call(on.ctx, c);
    call.shape.requests = 6;
    optional_ids lengths(on.ctx, ids, id_list{-9, -9, 7, -9, 50, -9});
    optional_ids request(on.ctx, ids, id_list{4, 2, -1, 6});
    REQUIRE(ddtree::write_mask(on.ctx, call.shape, {lengths.view(), request.view()}, call.tree,
                               call.out));
    CHECK(call.memory.values() == want);
  }
}

TEST_CASE("write_mask rounds the masked value to the type, a finite one to a finite one",
          "[mask][small]") {
  // Values worked out by hand; ties go to even.
  auto const as = GENERATE(encoding{mask_kind::additive, dtype::f32, -1e9f, 0xce6e6b28u},
                           encoding{mask_kind::additive, dtype::f32, -0x1.fffffep127f, 0xff7fffffu},
                           encoding{mask_kind::additive, dtype::f16, -10000.0f, 0xf0e2u},
                           encoding{mask_kind::additive, dtype::f16, -65504.0f, 0xfbffu},
                           encoding{mask_kind::additive, dtype::f16, -65520.0f, 0xfbffu},
                           encoding{mask_kind::additive, dtype::f16, -2049.0f, 0xe800u},
                           encoding{mask_kind::additive, dtype::f16, -2051.0f, 0xe802u},
                           encoding{mask_kind::additive, dtype::bf16, -10000.0f, 0xc61cu},
                           encoding{mask_kind::additive, dtype::bf16, -1e9f, 0xce6eu},
                           encoding{mask_kind::additive, dtype::f16, -0x1.fffffep127f, 0xfbffu},
                           encoding{mask_kind::additive, dtype::f16, 1e6f, 0x7bffu},
                           encoding{mask_kind::additive, dtype::bf16, -0x1.fffffep127f, 0xff7fu},
                           encoding{mask_kind::additive, dtype::bf16, -1.00390625f, 0xbf80u},
                           encoding{mask_kind::additive, dtype::bf16, -1.01171875f, 0xbf82u});
  CAPTURE(as.masked_value, as.masked);
  random_numbers rng(82);
  check(random_case(rng, 20, {5, 30}, {region::full, 60, 0}, as));
}

TEST_CASE("write_mask does not trust bits past the width", "[mask][small]") {
  random_numbers rng(83);
  for (auto const where : {region::tree, region::full, region::recent}) {
    auto const c = random_case(rng, 36, {9, 20}, {where, 100, 0}, bits);
    std::vector<unsigned char> want(c.elements() * 4, poison_byte);
    expect_mask(c, want);
    for (auto const& on : contexts_for(operation::write_mask)) {
      CAPTURE(on.name);
      mask_call call(on.ctx, c);
      auto words = mask_call::words_of(c);
      for (std::size_t i = 1; i < words.size(); i += 2) words[i] |= ~0u << 5;
      call.ancestors.assign(words);
      REQUIRE(call.run());
      CHECK(call.memory.values() == want);
    }
  }
}

TEST_CASE("recent keeps a buffer that was written in full once up to date", "[mask]") {
  int const window = GENERATE(0, 1, 7, 50, 400);
  for (encoding const& as : encodings) {
    CAPTURE(window, static_cast<int>(as.type));
    random_numbers rng(84);
    auto c = random_case(rng, 20, {0, 17, 300}, {region::full, 1500, window}, as);
    mask_call persistent(ddtree::context::cpu(), c);
    REQUIRE(persistent.run());
    for (int round = 0; round < 50; ++round) {
      CAPTURE(round);
      // A round commits the root and up to all of the drafted nodes.
      id_list lengths = c.cache_len;
      for (auto& length : lengths) length += rng.between(1, 21);
      c = random_case(rng, 20, lengths, {region::full, 1500, window}, as);
      std::vector<unsigned char> want(c.elements() * as.bytes());
      expect_mask(c, want);
      for (auto const& on : contexts_for(operation::write_mask)) {
        CAPTURE(on.name);
        c.mask.where = region::recent;
        mask_call call(on.ctx, c);
        call.memory.assign(persistent.memory.values());
        REQUIRE(call.run());
        bool const same = call.memory.values() == want;
        REQUIRE(same);
      }
      persistent.memory.assign(want);
    }
  }
}

TEST_CASE("write_mask of a request is the same alone and anywhere in a batch", "[mask]") {
  random_numbers rng(85);
  layout const mask = {GENERATE(region::tree, region::full), 400, 11};
  for (encoding const& as : encodings) {
    auto const alone = random_case(rng, 130, {201}, mask, as);
    auto many = random_case(rng, 130, id_list(64, 77), mask, as);
    for (std::size_t const b : {0u, 31u, 63u}) {
      many.trees[b] = alone.trees[0];
      many.cache_len[b] = 201;
    }
    for (auto const& on : contexts_for(operation::write_mask)) {
      CAPTURE(on.name);
      mask_call one(on.ctx, alone);
      mask_call all(on.ctx, many);
      REQUIRE(one.run());
      REQUIRE(all.run());
      auto const want = one.memory.values();
      auto const got = all.memory.values();
      for (std::size_t const b : {0u, 31u, 63u}) {
        CHECK(std::memcmp(want.data(), got.data() + b * want.size(), want.size()) == 0);
      }
    }
  }
}

TEST_CASE("write_mask names the argument at fault and writes nothing", "[mask][small]") {
  struct bad_call {
    char const* message;
    std::function<void(mask_call&)> change;
  };
  std::vector<bad_call> const all = {
      {"write_mask: context.threads < 1", [](mask_call& c) { c.ctx = ddtree::context::cpu(0); }},
      {"write_mask: shape.budget outside [0, 2047]", [](mask_call& c) { c.shape.budget = 2048; }},
      {"write_mask: tree.ancestors is null", [](mask_call& c) { c.tree.ancestors = nullptr; }},
      {"write_mask: tree.depth is null", [](mask_call& c) { c.out.window = 1; }},
      {"write_mask: out.data is null", [](mask_call& c) { c.out.data = nullptr; }},
      {"write_mask: out.kind is none", [](mask_call& c) { c.out.kind = mask_kind{3}; }},
      {"write_mask: out.region is none", [](mask_call& c) { c.out.region = mask_columns{-1}; }},
      {"write_mask: out.type is not u8",
       [](mask_call& c) {
         c.out.kind = mask_kind::boolean;
         c.out.type = dtype::i32;
       }},
      {"write_mask: out.type is not f32, f16 or bf16",
       [](mask_call& c) { c.out.kind = mask_kind::additive; }},
      {"write_mask: out.columns < 0", [](mask_call& c) { c.out.columns = -1; }},
      {"write_mask: out.window < 0", [](mask_call& c) { c.out.window = -1; }},
      {"write_mask: out.row_stride shorter than a row", [](mask_call& c) { c.out.row_stride = 1; }},
      {"write_mask: out.row_stride shorter than a row",
       [](mask_call& c) { c.out.row_stride = -64; }},
      {"write_mask: out.batch_stride < 0", [](mask_call& c) { c.out.batch_stride = -1; }},
  };
  random_numbers rng(86);
  auto const c = random_case(rng, 20, {5}, {region::full, 64, 0}, bits);
  for (auto const& on : contexts_for(operation::write_mask)) {
    for (bad_call const& bad : all) {
      CAPTURE(on.name, bad.message);
      mask_call call(on.ctx, c);
      bad.change(call);
      auto const status = call.run();
      CHECK(status.code == errc::invalid_argument);
      CHECK(std::string(status.message) == bad.message);
      CHECK(call.memory.values()[0] == poison_byte);
    }
    mask_call call(on.ctx, c);
    auto status = ddtree::write_mask(on.ctx, call.shape, {}, call.tree, call.out);
    CHECK(std::string(status.message) == "write_mask: batch.cache_len is null");
    call.out.region = mask_columns::tree;
    CHECK(ddtree::write_mask(on.ctx, call.shape, {}, call.tree, call.out));
    CHECK(ddtree::write_mask(on.ctx, make_shape(0, 20), {}, {}, {}));
  }
}

namespace {

/// A call of write_verify_inputs. A request's cache_len of -1 makes it inactive.
struct inputs_case {
  round_shape shape;
  std::vector<tree> trees;
  id_list cache_len;
  std::optional<id_list> capacity;
  oracle::mask::page_table table;
  padding_slot padding = padding_slot::minus_one;
  std::int64_t dummy_slot = 0;
  dtype ids = dtype::i32;
  index_t stride = 0;        // of the outputs
  index_t table_stride = 0;  // of the table's rows

  index_t rows_apart() const { return stride == 0 ? shape.width() : stride; }
};

constexpr std::int64_t untouched = 987654;

class inputs_call {
 public:
  inputs_call(ddtree::context const& on, inputs_case const& c)
      : ctx(on),
        shape(c.shape),
        cache_len(on, c.ids, c.cache_len),
        capacity(on, c.ids, c.capacity),
        entries(on, c.ids, entries_of(c), c.table_stride),
        token(on, c.ids, fresh(c), c.stride),
        position(on, c.ids, fresh(c), c.stride),
        slot(on, c.ids, fresh(c), c.stride),
        node_token(on, tokens_of(c)),
        depth(on, depths_of(c)),
        num_nodes(on, counts_of(c)) {
    tree.token = node_token.data();
    tree.depth = depth.data();
    tree.num_nodes = num_nodes.data();
    out = {token.view(), position.view(), slot.view()};
    options.padding = c.padding;
    options.dummy_slot = c.dummy_slot;
    options.capacity = capacity.view();
    options.table.entries = entries.view();
    options.table.page_size = c.table.page_size;
    options.table.entry_mask = c.table.mask;
    options.table.entry_scale = c.table.scale;
    options.table.columns = c.table.rows.empty() ? 0 : static_cast<index_t>(c.table.rows[0].size());
  }

  ddtree::status run() {
    return ddtree::write_verify_inputs(ctx, shape, {cache_len.view(), nullptr}, tree, out, options);
  }

  bool intact() const {
    return cache_len.intact() && capacity.intact() && entries.intact() && token.intact() &&
           position.intact() && slot.intact() && node_token.intact() && depth.intact() &&
           num_nodes.intact();
  }

  static std::vector<ddtree::token_t> tokens_of(inputs_case const& c) {
    std::vector<ddtree::token_t> all;
    for (std::size_t b = 0; b < c.trees.size(); ++b) {
      for (std::size_t i = 0; i < sized(c.shape.width()); ++i) {
        bool const is_node = static_cast<int>(i) < c.trees[b].num_nodes;
        all.push_back(static_cast<ddtree::token_t>(100 * b + (is_node ? 7 * i % 90 : 0)));
      }
    }
    return all;
  }

  ddtree::context ctx;
  round_shape shape;
  optional_ids cache_len, capacity, entries, token, position, slot;
  buffer<ddtree::token_t> node_token;
  buffer<std::int32_t> depth, num_nodes;
  ddtree::draft_tree tree;  // what the call may read; the rest is null
  ddtree::verify_inputs out;
  ddtree::verify_options options;

 private:
  static id_list fresh(inputs_case const& c) {
    return id_list(sized((c.shape.batch - 1) * c.rows_apart() + c.shape.width()), untouched);
  }
  static std::optional<id_list> entries_of(inputs_case const& c) {
    if (c.table.rows.empty()) return std::nullopt;
    id_list all;
    for (auto const& row : c.table.rows) {
      all.insert(all.end(), row.begin(), row.end());
      if (c.table_stride > 0) all.resize(all.size() + sized(c.table_stride) - row.size(), 555);
    }
    return all;
  }
  static std::vector<std::int32_t> depths_of(inputs_case const& c) {
    std::vector<std::int32_t> all;
    for (oracle::mask::tree const& t : c.trees) {
      all.insert(all.end(), t.depth.begin(), t.depth.end());
    }
    return all;
  }
  static std::vector<std::int32_t> counts_of(inputs_case const& c) {
    std::vector<std::int32_t> all;
    for (oracle::mask::tree const& t : c.trees) all.push_back(t.num_nodes);
    return all;
  }
};

void check(inputs_case const& c) {
  index_t const width = c.shape.width();
  id_list token(sized((c.shape.batch - 1) * c.rows_apart() + width), untouched);
  id_list position = token;
  id_list slot = token;
  auto const tokens = inputs_call::tokens_of(c);
  for (std::size_t b = 0; b < c.trees.size(); ++b) {
    bool const active = c.cache_len[b] != inactive;
    for (std::size_t i = 0; i < sized(width); ++i) {
      auto const at = b * sized(c.rows_apart()) + i;
      bool const is_node = static_cast<int>(i) < c.trees[b].num_nodes;
      token[at] = tokens[b * sized(width) + i];
      position[at] = active ? c.cache_len[b] + c.trees[b].depth[i] : 0;
      bool const in_sequence = is_node || c.padding == padding_slot::in_sequence;
      if (active && in_sequence) {
        std::int64_t const limit =
            c.capacity ? (*c.capacity)[b] : std::numeric_limits<std::int64_t>::max();
        slot[at] = oracle::mask::physical_slot(c.table, limit, static_cast<long long>(b),
                                               c.cache_len[b] + static_cast<index_t>(i));
      } else {
        slot[at] = c.padding == padding_slot::dummy ? c.dummy_slot : -1;
      }
    }
  }
  for (auto const& on : contexts_for(operation::write_verify_inputs)) {
    CAPTURE(on.name);
    inputs_call call(on.ctx, c);
    auto const status = call.run();
    CAPTURE(status.message);
    REQUIRE(status);
    REQUIRE(call.intact());
    REQUIRE(call.token.values() == token);
    REQUIRE(call.position.values() == position);
    REQUIRE(call.slot.values() == slot);
  }
}

inputs_case random_inputs(random_numbers& rng, int budget, id_list const& cache_len) {
  inputs_case c;
  c.shape = make_shape(static_cast<index_t>(cache_len.size()), budget);
  c.cache_len = cache_len;
  for (std::int64_t const length : cache_len) {
    int const nodes = length == inactive ? 1 : rng.between(1, budget + 1);
    c.trees.push_back(make_tree(rng, nodes, c.shape.width()));
  }
  return c;
}

/// Distinct pages of every request, in no order.
void add_table(random_numbers& rng, inputs_case& c, int columns, int page_size) {
  c.table.page_size = page_size;
  for (std::size_t b = 0; b < c.trees.size(); ++b) {
    std::vector<long long> row;
    for (int i = 0; i < columns; ++i) {
      row.push_back(static_cast<long long>(b) * 1000 + rng.between(0, 999));
    }
    c.table.rows.push_back(row);
  }
}

}  // namespace

TEST_CASE("write_verify_inputs gives the rows worked out by hand", "[mask][small]") {
  for (auto const& on : contexts_for(operation::write_verify_inputs)) {
    CAPTURE(on.name);
    inputs_case c;
    c.shape = make_shape(2, 4);
    c.trees = {{{-1, 0, 0, 1, -1}, {0, 1, 1, 2, 0}, 4}, {{-1, -1, -1, -1, -1}, {0, 0, 0, 0, 0}, 1}};
    c.cache_len = {30, inactive};
    c.table = {{{5, 2, 9}, {6, 6, 6}}, 16, -1, 1};  // slots 30, 31 in page 2; 32, 33 in page 9
    inputs_call call(on.ctx, c);
    REQUIRE(call.run());
    CHECK(call.token.values() == id_list{0, 7, 14, 21, 0, 100, 100, 100, 100, 100});
    CHECK(call.position.values() == id_list{30, 31, 31, 32, 30, 0, 0, 0, 0, 0});
    CHECK(call.slot.values() == id_list{46, 47, 144, 145, -1, -1, -1, -1, -1, -1});
  }
}

TEST_CASE("write_verify_inputs writes every padding mode, id type and stride", "[mask][small]") {
  auto const padding =
      GENERATE(padding_slot::minus_one, padding_slot::dummy, padding_slot::in_sequence);
  dtype const ids = GENERATE(dtype::i32, dtype::i64);
  int const budget = GENERATE(0, 1, 31, 32, 64, 1024);
  random_numbers rng(91);
  auto c = random_inputs(rng, budget, {0, inactive, 1, 15, 16, 17, inactive, 5000});
  c.padding = padding;
  c.ids = ids;
  c.dummy_slot = 4242;
  check(c);
  c.stride = c.shape.width() + 3;
  check(c);
  SECTION("no slot at or beyond capacity") {
    c.capacity = id_list{0, 0, 5, 15, 18, 40, 9, 5031};
    check(c);
    c.capacity = id_list{-1, 3, 1, -500, 1 << 30, 17, 9, 5000};
    check(c);
  }
  SECTION("pages of one slot") {
    add_table(rng, c, 40, 1);
    check(c);
  }
  SECTION("pages of 16 slots, rows apart, marks in the entries, pages in units of two") {
    add_table(rng, c, 4, 16);
    c.table_stride = 9;
    c.table.mask = 0xffff;
    c.table.scale = 2;
    for (auto& row : c.table.rows) {
      for (auto& entry : row) entry |= 0x40000000;
    }
    check(c);
    c.capacity = id_list{1, 1, 1, 20, 100, 18, 1, 1};
    check(c);
  }
  SECTION("entries that name no page") {
    add_table(rng, c, 70, 16);
    for (auto& row : c.table.rows) {
      for (std::size_t i = 0; i < row.size(); i += 2) row[i] = -1;
    }
    check(c);
  }
}

TEST_CASE("write_verify_inputs takes any entry, and none of an inactive request's",
          "[mask][small]") {
  std::int64_t const lowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t const highest = std::numeric_limits<std::int64_t>::max();
  for (auto const& on : contexts_for(operation::write_verify_inputs)) {
    CAPTURE(on.name);
    inputs_case c;
    c.shape = make_shape(1, 3);
    c.trees = {{{-1, 0, 1, 2}, {0, 1, 2, 3}, 4}};
    c.cache_len = {0};
    c.ids = dtype::i64;
    c.table = {{{lowest, highest, -1, 7}}, 1, -1, 1 << 20};
    inputs_call call(on.ctx, c);
    REQUIRE(call.run());
    CHECK(call.slot.values() == id_list{-1, -1, -1, 7 << 20});
    // Nothing of the request is read: there is none.
    optional_ids request(on.ctx, dtype::i64, id_list{highest});
    REQUIRE(ddtree::write_verify_inputs(on.ctx, call.shape, {call.cache_len.view(), request.view()},
                                        call.tree, call.out, call.options));
    CHECK(call.slot.values() == id_list{-1, -1, -1, -1});
    CHECK(call.position.values() == id_list{0, 0, 0, 0});
  }
}

TEST_CASE("write_verify_inputs writes what is wanted alone", "[mask][small]") {
  random_numbers rng(93);
  auto const c = random_inputs(rng, 12, {3, 9});
  for (auto const& on : contexts_for(operation::write_verify_inputs)) {
    CAPTURE(on.name);
    for (int const wanted : {0, 1, 2, 3}) {
      inputs_call call(on.ctx, c);
      if (wanted != 1) call.out.token = nullptr;
      if (wanted != 2) call.out.position = nullptr;
      if (wanted != 3) call.out.slot = nullptr;
      // A cache length is not needed for tokens.
      ddtree::batch_view const batch = {wanted < 2 ? ddtree::ids_in{} : call.cache_len.view(), {}};
      REQUIRE(ddtree::write_verify_inputs(on.ctx, call.shape, batch, call.tree, call.out));
      CHECK((call.token.values()[0] == untouched) == (wanted != 1));
      CHECK((call.position.values()[0] == untouched) == (wanted != 2));
      CHECK((call.slot.values()[0] == untouched) == (wanted != 3));
    }
  }
}

TEST_CASE("write_verify_inputs names the argument at fault and writes nothing", "[mask][small]") {
  struct bad_call {
    char const* message;
    std::function<void(inputs_call&)> change;
  };
  using call_t = inputs_call;
  std::vector<bad_call> const all = {
      {"write_verify_inputs: context.threads < 1",
       [](call_t& c) { c.ctx = ddtree::context::cpu(-1); }},
      {"write_verify_inputs: shape.depth outside [0, 31]", [](call_t& c) { c.shape.depth = -1; }},
      {"write_verify_inputs: tree.token is null", [](call_t& c) { c.tree.token = nullptr; }},
      {"write_verify_inputs: tree.depth is null", [](call_t& c) { c.tree.depth = nullptr; }},
      {"write_verify_inputs: tree.num_nodes is null",
       [](call_t& c) { c.tree.num_nodes = nullptr; }},
      {"write_verify_inputs: out.token is neither i32 nor i64",
       [](call_t& c) { c.out.token.type = dtype::f32; }},
      {"write_verify_inputs: out.position.stride < 0",
       [](call_t& c) { c.out.position.stride = -20; }},
      {"write_verify_inputs: out.slot.stride shorter than a row",
       [](call_t& c) { c.out.slot.stride = 5; }},
      {"write_verify_inputs: options.padding is none",
       [](call_t& c) { c.options.padding = padding_slot{7}; }},
      {"write_verify_inputs: options.capacity is neither i32 nor i64",
       [](call_t& c) {
         c.options.capacity = {c.depth.data(), dtype::u8};
       }},
      {"write_verify_inputs: options.table.entries is neither i32 nor i64",
       [](call_t& c) {
         c.options.table.entries = {c.depth.data(), dtype::u8};
       }},
      {"write_verify_inputs: options.table.entries.stride shorter than a row",
       [](call_t& c) {
         c.options.table.columns = 7;
         c.options.table.entries = {c.depth.data(), dtype::i32, 6};
       }},
      {"write_verify_inputs: options.table.page_size < 1",
       [](call_t& c) { c.options.table.page_size = 0; }},
      {"write_verify_inputs: options.table.columns < 0",
       [](call_t& c) { c.options.table.columns = -1; }},
      {"write_verify_inputs: options.table.entry_scale outside [1, 1048576]",
       [](call_t& c) { c.options.table.entry_scale = 0; }},
  };
  random_numbers rng(94);
  auto const c = random_inputs(rng, 12, {3, 9});
  for (auto const& on : contexts_for(operation::write_verify_inputs)) {
    for (bad_call const& bad : all) {
      CAPTURE(on.name, bad.message);
      inputs_call call(on.ctx, c);
      bad.change(call);
      auto const status = call.run();
      CHECK(status.code == errc::invalid_argument);
      CHECK(std::string(status.message) == bad.message);
      CHECK(call.token.values()[0] == untouched);
    }
    inputs_call call(on.ctx, c);
    auto const status = ddtree::write_verify_inputs(on.ctx, call.shape, {}, call.tree, call.out);
    CHECK(std::string(status.message) == "write_verify_inputs: batch.cache_len is null");
    CHECK(ddtree::write_verify_inputs(on.ctx, make_shape(0, 12), {}, {}, {}));
  }
}

TEST_CASE("write_mask and write_verify_inputs know their variants", "[mask][small]") {
  auto const cpu = ddtree::context::cpu();
  for (operation const op : {operation::write_mask, operation::write_verify_inputs}) {
    CHECK(std::string(ddtree::selected(cpu, op, make_shape(1, 64))) == "cpu");
    CHECK(ddtree::selected(cpu.with_variant("mask=none"), op, make_shape(1, 64)) == nullptr);
  }
}
