// SPDX-License-Identifier: Apache-2.0
#include "ddtree/build.hpp"

#include "support/build_cases.hpp"

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::dtype;
using ddtree::errc;
using ddtree::operation;
using ddtree::round_shape;
using oracle::build::build_input;
using oracle::build::tree;

/// What ends a row of candidates, and whether that sets a flag.
struct row_end {
  char const* what;
  float log_prob;
  int token;
  bool flagged;
};

struct weight_limit {
  float lowest;
  int nodes;
};

}  // namespace

TEST_CASE("build_tree gives the tree worked out by hand", "[build][small]") {
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    // Depth 1 is a (-1), b (-2); depth 2 is c (-0.5), d (-3).
    // Order: a -1, ac -1.5, b -2, bc -2.5, ad -4, bd -5.
    build_call call(on.ctx, single(input_of({{-1.0f, -2.0f}, {-0.5f, -3.0f}}, 5)));
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.num_nodes == std::vector<int>{6});
    CHECK(t.token == std::vector<int>{7, 10, 20, 11, 20, 21});
    CHECK(t.parent == std::vector<int>{-1, 0, 1, 0, 3, 1});
    CHECK(t.depth == std::vector<int>{0, 1, 2, 1, 2, 2});
    CHECK(t.rank == std::vector<int>{-1, 0, 0, 1, 0, 1});
    CHECK(t.log_weight == std::vector<float>{0.0f, -1.0f, -1.5f, -2.0f, -2.5f, -4.0f});
    CHECK(t.first_child == std::vector<int>{1, 2, -1, 4, -1, -1});
    CHECK(t.next_sibling == std::vector<int>{-1, 3, 5, -1, -1, -1});
    CHECK(t.ancestors == std::vector<std::uint32_t>{0x01, 0x03, 0x07, 0x09, 0x19, 0x23});
    CHECK(t.flags == std::vector<std::uint32_t>{ddtree::flag::top_k_limited});
    CHECK(call.intact());
  }
}

TEST_CASE("build_tree pads a tree that has fewer nodes than its budget", "[build][small]") {
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, single(input_of({{-1.0f, -infinity}}, 3)));
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.num_nodes == std::vector<int>{2});
    CHECK(t.token == std::vector<int>{7, 10, 7, 7});
    CHECK(t.parent == std::vector<int>{-1, 0, -1, -1});
    CHECK(t.depth == std::vector<int>{0, 1, 0, 0});
    CHECK(t.rank == std::vector<int>{-1, 0, -1, -1});
    CHECK(t.log_weight == std::vector<float>{0.0f, -1.0f, -infinity, -infinity});
    CHECK(t.first_child == std::vector<int>{1, -1, -1, -1});
    CHECK(t.next_sibling == std::vector<int>{-1, -1, -1, -1});
    CHECK(t.ancestors == std::vector<std::uint32_t>{1, 3, 4, 8});
    CHECK(t.flags == std::vector<std::uint32_t>{0});
  }
}

TEST_CASE("build_tree breaks ties by the rank path, a prefix first", "[build][small]") {
  // Every path weighs the sum of its ranks, so that whole families tie.
  std::vector<float> const row = {0.0f, -1.0f, -2.0f};
  auto const c = single(input_of({row, row, row}, 9));
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, c);
    REQUIRE(call.run());
    tree_values const t(call.out);
    // Weight 0: 0, 00, 000. Weight -1: 001, 01, 010, 1, 10, 100.
    CHECK(t.depth == std::vector<int>{0, 1, 2, 3, 3, 2, 3, 1, 2, 3});
    CHECK(t.rank == std::vector<int>{-1, 0, 0, 0, 1, 1, 0, 1, 0, 0});
    CHECK(t.parent == std::vector<int>{-1, 0, 1, 2, 2, 1, 5, 0, 7, 8});
  }
}

TEST_CASE("build_tree weighs in multiples of 2^-44, rounded to even", "[build][small]") {
  // In units of 2^-44: depth 1 is 0 and -0.5 (rounds to 0), depth 2 is -1.5 (rounds to -2).
  float const unit = 0x1p-44f;
  auto const c = single(input_of(
      {{0.0f, -0.5f * unit, -0.75f * unit}, {-1.5f * unit, -2.5f * unit, -3.0f * unit}}, 12));
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, c);
    REQUIRE(call.run());
    tree_values const t(call.out);
    // Weights: 0 and 1 are 0, 2 is -1; 00, 01, 10, 11 are -2; 20, 21, 02, 12 are -3; 22 is -4.
    CHECK(t.depth == std::vector<int>{0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2});
    CHECK(t.rank == std::vector<int>{-1, 0, 1, 2, 0, 1, 0, 1, 2, 2, 0, 1, 2});
    CHECK(t.parent == std::vector<int>{-1, 0, 0, 0, 1, 1, 2, 2, 1, 2, 3, 3, 3});
    CHECK(t.log_weight[3] == -unit);
    CHECK(t.log_weight[12] == -4 * unit);
  }
}

TEST_CASE("build_tree equals the oracle on 10,000 random trees of budgets 8 to 2047", "[build]") {
  constexpr int per_call = 4;
  constexpr int wanted = 10000 / share_of_cases;
  random_numbers rng(20604);
  int trees = 0;
  while (trees < wanted) {
    int const budget =
        std::min(2047, static_cast<int>(8.0 * std::exp2(8.1 * rng.between(0, 1000) / 1000.0)));
    int const top_k = rng.one_in(12) ? 1024 : rng.any_of<int>({1, 2, 3, 8, 16, 64, 100});
    auto const shape =
        make_shape(rng.between(1, 31), top_k, budget, rng.any_of<int>({1, 50, 151936}));
    build_batch c = batch_of(shape, {});
    for (int b = 0; b < per_call; ++b) {
      build_input in = make_input(rng, rng.any_of(row_kinds), shape);
      if (b > 0) {
        in.budget = rng.between(8, budget);
        in.max_depth = rng.between(1, 31);
      }
      if (rng.one_in(4)) spoil(rng, in);
      c.rows.push_back(in);
    }
    c.shape.batch = per_call;
    c.ids = rng.any_of<dtype>({dtype::i32, dtype::i64});
    c.seed_depth = rng.one_in(4) ? rng.between(0, 31) : 0;
    c.min_log_weight = rng.one_in(8) ? -static_cast<float>(rng.between(0, 30)) : -infinity;
    CAPTURE(trees, shape.depth, top_k, budget, shape.vocab, c.seed_depth, c.min_log_weight);
    check_everywhere(c);
    trees += per_call;
  }
  REQUIRE(trees == wanted);
}

TEST_CASE("build_tree equals an enumeration of every prefix", "[build]") {
  random_numbers rng(11);
  for (int i = 0; i < 3000 / share_of_cases; ++i) {
    auto const shape = make_shape(rng.between(1, 4), rng.between(1, 5), rng.between(1, 70), 9);
    build_input in = make_input(rng, rng.any_of(row_kinds), shape);
    if (rng.one_in(3)) spoil(rng, in);
    build_batch c = batch_of(shape, {in});
    c.seed_depth = rng.one_in(3) ? rng.between(1, 4) : 0;
    c.min_log_weight =
        rng.one_in(3) ? -static_cast<float>(rng.between(0, 12)) / 2.0f : not_a_number;
    in.seed_depth = c.seed_depth;
    in.min_log_weight = c.min_log_weight;
    CAPTURE(i, shape.depth, shape.top_k, shape.budget, c.seed_depth, c.min_log_weight);
    tree const want = oracle::build::build_tree(in, shape.budget, shape.depth, shape.top_k,
                                                oracle::build::method::enumeration);
    for (auto const& on : contexts_for(operation::build_tree)) check(on.ctx, c, {want});
  }
}

namespace {

void check_extents(int budget, int depth, int top_k) {
  CAPTURE(budget, depth, top_k);
  random_numbers rng(static_cast<unsigned>(budget + depth + top_k));
  auto const shape = make_shape(depth, top_k, budget, 40);
  check_everywhere(batch_of(shape, {make_input(rng, row_kind::bf16, shape)}));
}

}  // namespace

TEST_CASE("build_tree at the lower ends of every extent", "[build][small]") {
  int const budget = GENERATE(0, 1, 31, 32, 33, 64);
  int const depth = GENERATE(0, 1, 15, 31);
  int const top_k = GENERATE(1, 2, 64);
  check_extents(budget, depth, top_k);
}

TEST_CASE("build_tree at the ends of every extent", "[build]") {
  int const budget = GENERATE(0, 1, 31, 32, 33, 64, 256, 1024, 2047);
  int const depth = GENERATE(0, 1, 15, 31);
  int const top_k = GENERATE(1, 2, 64, 1024);
  check_extents(budget, depth, top_k);
}

TEST_CASE("build_tree at the upper ends of all extents", "[build][small]") {
  check_extents(2047, 15, 1024);
}

TEST_CASE("build_tree on both sides of the sizes at which a kernel changes", "[build]") {
  int const budget = GENERATE(63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 2047);
  int const top_k = GENERATE(40, 300);
  CAPTURE(budget, top_k);
  random_numbers rng(static_cast<unsigned>(budget + top_k));
  auto const shape = make_shape(15, top_k, budget, 40);
  for (row_kind const kind : row_kinds) {
    build_batch c = batch_of(shape, {make_input(rng, kind, shape), make_input(rng, kind, shape)});
    check_everywhere(c);
    c.seed_depth = 6;
    check_everywhere(c);
  }
}

TEST_CASE("build_tree where all prefixes weigh the same, and where half of them do", "[build]") {
  int const budget = GENERATE(64, 256, 2047);
  int const depth = GENERATE(2, 9, 31);
  CAPTURE(budget, depth);
  // Nothing but the paths tells the nodes apart: of all trees these need the most room.
  std::vector<float> const zeros(100, 0.0f);
  std::vector<float> steps;
  for (int r = 0; r < 100; ++r) steps.push_back(-0.25f * static_cast<float>(r / 2));
  build_input tied = input_of(std::vector<std::vector<float>>(sized(depth), zeros), budget);
  build_input stepped = input_of(std::vector<std::vector<float>>(sized(depth), steps), budget);
  tied.vocab = stepped.vocab = 2000;
  auto const shape = make_shape(depth, 100, budget, 2000);
  check_everywhere(batch_of(shape, {tied, stepped}));
}

TEST_CASE("build_tree for more requests than a GPU has multiprocessors", "[build][small]") {
  random_numbers rng(5);
  auto const shape = make_shape(7, 16, GENERATE(20, 70));
  std::vector<std::optional<build_input>> rows;
  for (int b = 0; b < 301; ++b) rows.push_back(make_input(rng, rng.any_of(row_kinds), shape));
  check_everywhere(batch_of(shape, rows));
}

TEST_CASE("build_tree of all-equal log-probs goes breadth before depth in path order", "[build]") {
  auto const shape = make_shape(31, 1024, 1500);
  random_numbers rng(3);
  build_batch const c = batch_of(shape, {make_input(rng, row_kind::equal, shape)});
  check_everywhere(c);
  // All-equal log-probs of 0 tie at every depth: the first path alone goes all the way down.
  std::vector<float> const zeros(8, 0.0f);
  build_call call(ddtree::context::cpu(), single(input_of({zeros, zeros, zeros}, 5)));
  REQUIRE(call.run());
  CHECK(tree_values(call.out).parent == std::vector<int>{-1, 0, 1, 2, 2, 2});
}

TEST_CASE("build_tree of one-hot rows is a chain", "[build][small]") {
  auto const shape = make_shape(15, 64, 64);
  random_numbers rng(4);
  build_batch const c = batch_of(shape, {make_input(rng, row_kind::one_hot, shape)});
  check_everywhere(c);
  REQUIRE(expected_trees(c)[0].num_nodes == 16);
}

TEST_CASE("build_tree takes duplicate ids and token 0 as they come", "[build][small]") {
  build_input in = input_of({{-1.0f, -1.0f, -1.5f}, {-0.25f, -0.25f, -4.0f}}, 8);
  in.root = 0;
  in.tokens = {{0, 0, 5}, {5, 0, 5}};
  check_everywhere(single(in));
  build_call call(ddtree::context::cpu(), single(in));
  REQUIRE(call.run());
  CHECK(tree_values(call.out).token == std::vector<int>{0, 0, 0, 5, 0, 5, 0, 5, 5});
}

TEST_CASE("build_tree reads a row up to what is not sound", "[build][small]") {
  auto const end = GENERATE(
      row_end{"NaN", not_a_number, 3, true}, row_end{"+inf", infinity, 3, true},
      row_end{"above 0", 0.125f, 3, true}, row_end{"rising", -0.25f, 3, true},
      row_end{"negative id", -3.0f, -1, true}, row_end{"id past the vocabulary", -3.0f, 1000, true},
      row_end{"-inf", -infinity, 0, false}, row_end{"-inf with a bad id", -infinity, -1, false},
      row_end{"below -8192", -8192.001f, 3, false},
      row_end{"least float", -0x1.fffffep127f, 3, false});
  auto const place = GENERATE(0, 1, 3);
  auto const depth = GENERATE(0, 1, 2);
  CAPTURE(end.what, place, depth);
  std::vector<float> const row = {-0.5f, -1.0f, -2.0f, -4.0f};
  build_input in = input_of({row, row, row}, 30);
  in.log_probs[sized(depth)][sized(place)] = end.log_prob;
  in.tokens[sized(depth)][sized(place)] = end.token;
  // A first log-prob does not rise from anything.
  bool const flagged = end.flagged && !(place == 0 && end.log_prob == -0.25f);
  REQUIRE(expected_trees(single(in))[0].cut == flagged);
  check_everywhere(single(in));
}

TEST_CASE("build_tree looks no further than nodes and depth allow", "[build][small]") {
  std::vector<float> const row = {-0.5f, -1.0f, not_a_number, -4.0f};
  build_input in = input_of({row, row, row}, 2);
  SECTION("ranks below the budget") {  // 0 and 1 only
    check_everywhere(single(in));
    REQUIRE_FALSE(expected_trees(single(in))[0].cut);
  }
  SECTION("depths up to the budget") {
    in.log_probs[0][2] = in.log_probs[1][2] = -2.0f;
    in.log_probs[2][0] = not_a_number;
    check_everywhere(single(in));
    REQUIRE_FALSE(expected_trees(single(in))[0].cut);
  }
  SECTION("depths up to max_depth") {
    in.budget = 20;
    in.max_depth = 1;
    in.log_probs[0][2] = -2.0f;
    check_everywhere(single(in));
    REQUIRE_FALSE(expected_trees(single(in))[0].cut);
  }
  SECTION("a depth that no node reaches is flagged all the same") {
    in.budget = 20;
    in.log_probs = {{-0.5f, -1.0f, -2.0f, -4.0f},
                    {-infinity, 0, 0, 0},
                    {not_a_number, not_a_number, not_a_number, not_a_number}};
    check_everywhere(single(in));
    REQUIRE(expected_trees(single(in))[0].cut);
  }
}

TEST_CASE("build_tree adds the lowest log-probs without overflow", "[build][small]") {
  auto const shape = make_shape(31, 4, 500);
  build_input in;
  in.vocab = 1000;
  in.budget = 500;
  in.log_probs.assign(31, std::vector<float>(4, -8192.0f));
  in.tokens.assign(31, std::vector<int>{1, 2, 3, 4});
  build_batch c = batch_of(shape, {in});
  c.seed_depth = 31;
  check_everywhere(c);
  build_call call(ddtree::context::cpu(), c);
  REQUIRE(call.run());
  tree_values const t(call.out);
  CHECK(t.depth.back() == 31);
  CHECK(t.log_weight.back() == -8192.0f * 31.0f);
}

TEST_CASE("build_tree takes log-probs down to -8192 and none below", "[build][small]") {
  auto const seed_depth = GENERATE(0, 31);
  auto const first_below = GENERATE(1, 16, 31);  // the depth from which rows are too low
  CAPTURE(seed_depth, first_below);
  build_input in;
  in.vocab = 1000;
  in.budget = 200;
  in.log_probs.assign(31, std::vector<float>(3, -8192.0f));
  in.tokens.assign(31, std::vector<int>{1, 2, 3});
  for (std::size_t depth = sized(first_below) - 1; depth < 31; ++depth) {
    in.log_probs[depth].assign(3, std::nextafter(-8192.0f, -infinity));
  }
  build_batch c = batch_of(make_shape(31, 3, 200), {in});
  c.seed_depth = seed_depth;
  check_everywhere(c);
  tree const expected = expected_trees(c)[0];
  for (int const depth : expected.depth) REQUIRE(depth < first_below);
}

TEST_CASE("build_tree keeps a tree within capacity and max_position", "[build][small]") {
  random_numbers rng(6);
  auto const shape = make_shape(6, 8, 40);
  dtype const ids = GENERATE(dtype::i32, dtype::i64);
  build_batch c = batch_of(shape, {});
  std::vector<long long> const left = {-2000, -1, 0, 1, 2, 5, 6, 7, 20, 40, 41, 42, far};
  for (long long const rows : left) {
    for (long long const positions : left) {
      build_input in = make_input(rng, row_kind::bf16, shape);
      in.rows_left = rows;
      in.positions_left = positions;
      in.budget = rng.any_of<long long>({5, 40});
      in.max_depth = rng.any_of<long long>({0, 2, 6});
      c.rows.push_back(in);
    }
  }
  c.shape.batch = static_cast<ddtree::index_t>(c.rows.size());
  c.ids = ids;
  c.with_limits = true;
  check_everywhere(c);
  c.seed_depth = 4;
  check_everywhere(c);
}

TEST_CASE("build_tree holds extreme limits without overflow", "[build][small]") {
  std::int64_t const lowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t const highest = std::numeric_limits<std::int64_t>::max();
  std::int64_t const longest = std::int64_t{1} << 40;
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    auto const c = batch_of(make_shape(1, 2, 2),
                            {input_of({{-1.0f, -2.0f}}, 2), input_of({{-1.0f, -2.0f}}, 2),
                             input_of({{-1.0f, -2.0f}}, 2), input_of({{-1.0f, -2.0f}}, 2)});
    build_call call(on.ctx, c);
    call.shape.requests = 4;
    optional_ids lengths(on.ctx, dtype::i64, id_list{0, longest, longest, longest + 1});
    optional_ids limits(on.ctx, dtype::i64, id_list{highest, highest, lowest, highest});
    call.batch = {lengths.view(), nullptr};
    call.options = {};
    call.options.budget = limits.view();
    call.options.max_depth = limits.view();
    call.options.capacity = limits.view();
    call.options.max_position = limits.view();
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.num_nodes == std::vector<int>{3, 3, 1, 1});  // the last is inactive
    CHECK((t.flags[0] & ddtree::flag::length_limited) == 0);
    CHECK((t.flags[2] & ddtree::flag::length_limited) != 0);
    CHECK(t.flags[3] == 0);
  }
}

TEST_CASE("build_tree clamps the parameters of each request", "[build][small]") {
  random_numbers rng(7);
  auto const shape = make_shape(5, 6, 33);
  dtype const ids = GENERATE(dtype::i32, dtype::i64);
  build_batch c = batch_of(shape, {});
  for (long long const budget : {-5, 0, 1, 32, 33, 34, 2000000000}) {
    for (long long const depth : {-5, 0, 1, 4, 5, 6, 2000000000}) {
      build_input in = make_input(rng, row_kind::normalised, shape);
      in.budget = budget;
      in.max_depth = depth;
      c.rows.push_back(in);
    }
  }
  c.shape.batch = static_cast<ddtree::index_t>(c.rows.size());
  c.ids = ids;
  check_everywhere(c);
}

TEST_CASE("build_tree puts a chain seed in its place", "[build][small]") {
  SECTION("worked out by hand") {
    // The chain 0, 00, 000 weighs -1, -5, -9; without it the tree would be 0, 1, 2.
    build_input const in =
        input_of({{-1.0f, -2.0f, -3.0f}, {-4.0f, -4.5f, -5.0f}, {-4.0f, -4.0f, -4.0f}}, 4);
    build_batch c = single(in);
    c.seed_depth = 3;
    check_everywhere(c);
    build_call call(ddtree::context::cpu(), c);
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.log_weight == std::vector<float>{0.0f, -1.0f, -2.0f, -5.0f, -9.0f});
    CHECK(t.parent == std::vector<int>{-1, 0, 0, 1, 3});
    CHECK(t.next_sibling == std::vector<int>{-1, 2, -1, -1, -1});
  }
  SECTION("beyond budget, depth and the rows") {
    random_numbers rng(8);
    for (int const budget : {0, 1, 3, 5, 6, 40}) {
      auto const shape = make_shape(5, 4, budget);
      build_input in = make_input(rng, row_kind::normalised, shape);
      for (std::int32_t const seed : {1, 4, 5, 6, 31, 2147483647}) {
        for (float const fourth : {-9000.0f, not_a_number, in.log_probs[3][0]}) {
          CAPTURE(budget, seed, fourth);
          in.log_probs[3][0] = fourth;
          build_batch c = batch_of(shape, {in});
          c.seed_depth = seed;
          check_everywhere(c);
        }
      }
    }
  }
  SECTION("exempt from min_log_weight, which the others are not") {
    build_batch c = single(input_of({{-1.0f, -2.0f}, {-1.0f, -1.5f}, {-1.0f, -1.5f}}, 14));
    c.seed_depth = 3;
    for (float const lowest : {0.0f, -1.0f, -2.0f, -2.5f, -3.0f, -100.0f, infinity}) {
      CAPTURE(lowest);
      c.min_log_weight = lowest;
      check_everywhere(c);
    }
  }
}

TEST_CASE("build_tree leaves out what is below min_log_weight, inclusively", "[build][small]") {
  build_batch c = single(input_of({{-1.0f, -2.0f, -3.0f}}, 3));
  auto const at =
      GENERATE(weight_limit{-2.0f, 3}, weight_limit{std::nextafter(-2.0f, 0.0f), 2},
               weight_limit{-0.5f, 1}, weight_limit{0.0f, 1}, weight_limit{1.0f, 1},
               weight_limit{infinity, 1}, weight_limit{-infinity, 4}, weight_limit{not_a_number, 4},
               weight_limit{-0x1.fffffep127f, 4}, weight_limit{-3.0f, 4});
  CAPTURE(at.lowest);
  c.min_log_weight = at.lowest;
  REQUIRE(expected_trees(c)[0].num_nodes == at.nodes);
  check_everywhere(c);
}

TEST_CASE("build_tree compares min_log_weight as a fixed-point weight", "[build][small]") {
  // -0.4 units round to 0 as does the threshold of -0.3 units, though the float is below it.
  float const unit = 0x1p-44f;
  build_batch c = single(input_of({{-0.4f * unit, -0.6f * unit}}, 2));
  c.min_log_weight = -0.3f * unit;
  REQUIRE(expected_trees(c)[0].num_nodes == 2);
  check_everywhere(c);
}

TEST_CASE("build_tree flags the last rank, the root and what came in", "[build][small]") {
  build_input in = input_of({{-1.0f, -2.0f, -3.0f}}, 2);
  in.root = GENERATE(-1, 1000, 7);
  in.budget = GENERATE(2, 3);
  build_batch const c = batch_of(make_shape(1, 3, 3), {in, in});
  std::uint32_t const want = (in.root == 7 ? 0u : ddtree::flag::id_out_of_range) |
                             (in.budget == 3 ? ddtree::flag::top_k_limited : 0u);
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, c);
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.flags[0] == want);
    CHECK(t.flags[1] == (want | ddtree::flag::draft_nan));
    CHECK(t.token[0] == (in.root == 7 ? 7 : 0));
  }
  check_everywhere(c);
}

TEST_CASE("build_tree of a batch with inactive requests", "[build][small]") {
  random_numbers rng(9);
  auto const shape = make_shape(7, 16, 50);
  build_batch c = batch_of(shape, {});
  for (int b = 0; b < 64; ++b) {
    if (b % 5 == 1 || b % 5 == 2) {
      c.rows.push_back(std::nullopt);
    } else {
      c.rows.push_back(make_input(rng, row_kind::bf16, shape));
    }
  }
  c.shape.batch = 64;
  c.ids = GENERATE(dtype::i32, dtype::i64);
  check_everywhere(c);
}

TEST_CASE("build_tree of an empty batch does nothing", "[build][small]") {
  for (auto const& on : contexts_for(operation::build_tree)) {
    round_shape shape = make_shape(15, 64, 64);
    shape.batch = 0;
    CHECK(ddtree::build_tree(on.ctx, shape, {}, {}, {}, {}, {}));
    CHECK(ddtree::link_tree(on.ctx, shape, {}, {}, {}));
  }
}

TEST_CASE("build_tree of a request is the same alone and anywhere in a batch", "[build][small]") {
  random_numbers rng(10);
  auto const shape = make_shape(15, 64, 300);
  build_input const in = make_input(rng, row_kind::bf16, shape);
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call alone(on.ctx, batch_of(shape, {in}));
    REQUIRE(alone.run());
    tree_values const want(alone.out);
    build_batch c = batch_of(shape, {});
    for (int b = 0; b < 64; ++b) c.rows.push_back(make_input(rng, row_kind::normalised, shape));
    c.shape.batch = 64;
    std::vector<std::size_t> const places = {0, 2, 30, 62};
    for (std::size_t const b : places) c.rows[b] = in;
    build_call many(on.ctx, c);
    REQUIRE(many.run());
    tree_values const got(many.out);
    auto const same = [&](auto const& a, auto const& b, std::size_t row) {
      std::size_t const n = a.size();
      return std::memcmp(a.data(), b.data() + row * n, n * sizeof(a[0])) == 0;
    };
    for (std::size_t const b : places) {
      CAPTURE(b);
      CHECK(same(want.token, got.token, b));
      CHECK(same(want.parent, got.parent, b));
      CHECK(same(want.depth, got.depth, b));
      CHECK(same(want.rank, got.rank, b));
      CHECK(same(want.log_weight, got.log_weight, b));
      CHECK(same(want.first_child, got.first_child, b));
      CHECK(same(want.next_sibling, got.next_sibling, b));
      CHECK(same(want.ancestors, got.ancestors, b));
      CHECK(same(want.num_nodes, got.num_nodes, b));
      CHECK(same(want.flags, got.flags, b));
    }
  }
}

TEST_CASE("the first rows of a tree are the trees of smaller budgets", "[build][small]") {
  random_numbers rng(12);
  auto const shape = make_shape(12, 32, 400);
  build_input in = make_input(rng, rng.any_of(row_kinds), shape);
  build_call whole(ddtree::context::cpu(), batch_of(shape, {in}));
  REQUIRE(whole.run());
  tree_values const t(whole.out);
  build_batch c = batch_of(shape, {});
  for (int n = 0; n <= 400; ++n) {
    in.budget = n;
    c.rows.push_back(in);
  }
  c.shape.batch = 401;
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, c);
    REQUIRE(call.run());
    tree_values const part(call.out);
    for (std::size_t n = 0; n <= 400; ++n) {
      CAPTURE(n);
      auto const nodes = static_cast<std::size_t>(part.num_nodes[n]);
      REQUIRE(nodes == std::min(n + 1, static_cast<std::size_t>(t.num_nodes[0])));
      auto const starts_alike = [&](auto const& all, auto const& some) {
        return std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(nodes),
                          some.begin() + static_cast<std::ptrdiff_t>(n * 401));
      };
      REQUIRE(starts_alike(t.token, part.token));
      REQUIRE(starts_alike(t.parent, part.parent));
      REQUIRE(starts_alike(t.rank, part.rank));
      REQUIRE(starts_alike(t.log_weight, part.log_weight));
    }
  }
}

TEST_CASE("a tree is closed under prefixes and left siblings, and leaves out no better node",
          "[build][small]") {
  random_numbers rng(13);
  for (int i = 0; i < 200 / share_of_cases + 1; ++i) {
    auto const shape = make_shape(rng.between(1, 15), rng.between(1, 40), rng.between(1, 600));
    build_input const in = make_input(rng, rng.any_of(row_kinds), shape);
    build_call call(ddtree::context::cpu(), batch_of(shape, {in}));
    REQUIRE(call.run());
    tree_values const t(call.out);
    auto const n = static_cast<std::size_t>(t.num_nodes[0]);
    std::vector<oracle::build::rank_list> path(n);
    std::vector<long long> weight(n, 0);
    std::set<oracle::build::rank_list> inside;
    auto const table = oracle::build::read_candidates(in, shape.budget, shape.depth);
    for (std::size_t row = 1; row < n; ++row) {
      REQUIRE(t.parent[row] >= 0);
      REQUIRE(t.parent[row] < static_cast<int>(row));
      path[row] = path[static_cast<std::size_t>(t.parent[row])];
      path[row].push_back(t.rank[row]);
      weight[row] = table.weight(path[row]);
      REQUIRE(t.depth[row] == static_cast<int>(path[row].size()));
      // Strictly in order, so that no node is there twice.
      bool const in_order = weight[row - 1] > weight[row] ||
                            (weight[row - 1] == weight[row] && path[row - 1] < path[row]);
      REQUIRE(in_order);
      if (t.rank[row] > 0) {
        auto left = path[row];
        --left.back();
        REQUIRE(inside.count(left) == 1);
      }
      inside.insert(path[row]);
    }
    // Whatever could be added comes after the last node, unless there is room for all.
    auto const is_behind = [&](oracle::build::rank_list const& next) {
      if (!table.has(next) || inside.count(next) == 1) return true;
      return n == sized(shape.width()) &&
             (weight.back() > table.weight(next) ||
              (weight.back() == table.weight(next) && path.back() < next));
    };
    for (auto const& p : path) {
      auto child = p;
      child.push_back(0);
      REQUIRE(is_behind(child));
      if (p.empty()) continue;
      auto sibling = p;
      ++sibling.back();
      REQUIRE(is_behind(sibling));
    }
  }
}

TEST_CASE("build_tree uses any workspace of the size it names", "[build][small]") {
  random_numbers rng(14);
  auto const shape = make_shape(15, 64, 200);
  build_batch const c = batch_of(
      shape, {make_input(rng, row_kind::bf16, shape), make_input(rng, row_kind::bf16, shape)});
  auto const want = expected_trees(c);
  for (auto const& on : contexts_for(operation::build_tree)) {
    build_call call(on.ctx, c);
    std::size_t const bytes = ddtree::build_tree_workspace_bytes(on.ctx, call.shape);
    for (std::size_t const offset : {0u, 1u, 100u, 255u}) {
      CAPTURE(on.name, offset);
      buffer<unsigned char> memory(on.ctx, bytes + offset);
      call.out.token.poison();
      REQUIRE(ddtree::build_tree(on.ctx, call.shape, call.batch, call.in.view(), call.root.view(),
                                 call.out.view(), {memory.data() + offset, bytes}, call.options));
      CHECK(memory.intact());
      CHECK(difference(tree_values(call.out), 0, want[0]) == "");
      CHECK(difference(tree_values(call.out), 1, want[1]) == "");
    }
  }
}

TEST_CASE("the workspace of build_tree grows with every extent", "[build][small]") {
  for (auto const& on : contexts_for(operation::build_tree)) {
    auto const bytes = [&](auto change) {
      round_shape s = make_shape(7, 32, 100);
      s.batch = 2;
      change(s);
      return ddtree::build_tree_workspace_bytes(on.ctx, s);
    };
    std::size_t const base = bytes([](round_shape&) {});
    bool const is_cpu = on.ctx.backend == ddtree::backend_kind::cpu;
    CHECK((base > 0) == is_cpu);
    CHECK(bytes([](round_shape& s) { s.batch = 9; }) >= base);
    CHECK(bytes([](round_shape& s) { s.vocab = 100000; }) >= base);
    CHECK(bytes([](round_shape& s) { s.depth = 31; }) >= base);
    CHECK(bytes([](round_shape& s) { s.top_k = 1024; }) >= base);
    CHECK(bytes([](round_shape& s) { s.budget = 2047; }) >= base);
    CHECK(bytes([](round_shape& s) { s.requests = 77; }) == base);
    CHECK(bytes([](round_shape& s) { s.budget = 2048; }) == 0);
    CHECK(bytes([](round_shape& s) { s.depth = 32; }) == 0);
  }
}

namespace {

using change_build = std::function<void(build_call&)>;

struct bad_build {
  char const* message;
  change_build change;
};

}  // namespace

TEST_CASE("build_tree names the argument at fault and writes nothing", "[build][small]") {
  std::vector<bad_build> const all = {
      {"build_tree: context.threads < 1", [](build_call& c) { c.ctx = ddtree::context::cpu(0); }},
      {"build_tree: shape.batch outside [0, 65535]", [](build_call& c) { c.shape.batch = 65536; }},
      {"build_tree: shape.vocab outside [1, 4194304]", [](build_call& c) { c.shape.vocab = 0; }},
      {"build_tree: shape.depth outside [0, 31]", [](build_call& c) { c.shape.depth = 32; }},
      {"build_tree: shape.top_k outside [1, 1024]", [](build_call& c) { c.shape.top_k = 1025; }},
      {"build_tree: shape.budget outside [0, 2047]", [](build_call& c) { c.shape.budget = -1; }},
      {"build_tree: shape.requests < 0", [](build_call& c) { c.shape.requests = -1; }},
      {"build_tree: batch.cache_len is neither i32 nor i64",
       [](build_call& c) {
         c.batch.cache_len = {c.in.token.data(), dtype::f32};
       }},
      {"build_tree: batch.request.stride < 0",
       [](build_call& c) {
         c.batch.request = {c.in.token.data(), dtype::i32, -1};
       }},
      {"build_tree: options.budget is neither i32 nor i64",
       [](build_call& c) {
         c.options.budget = {c.in.token.data(), dtype::u8};
       }},
      {"build_tree: options.max_depth is neither i32 nor i64",
       [](build_call& c) {
         c.options.max_depth = {c.in.token.data(), dtype::f16};
       }},
      {"build_tree: options.capacity is neither i32 nor i64",
       [](build_call& c) {
         c.options.capacity = {c.in.token.data(), dtype::f16};
       }},
      {"build_tree: options.max_position is neither i32 nor i64",
       [](build_call& c) {
         c.options.max_position = {c.in.token.data(), dtype::f16};
       }},
      {"build_tree: options.seed_depth < 0", [](build_call& c) { c.options.seed_depth = -1; }},
      {"build_tree: batch.cache_len is null",
       [](build_call& c) { c.options.capacity = c.in.token.data(); }},
      {"build_tree: batch.cache_len is null",
       [](build_call& c) { c.options.max_position = c.in.token.data(); }},
  };
  for (auto const& on : contexts_for(operation::build_tree)) {
    for (bad_build const& bad : all) {
      CAPTURE(on.name, bad.message);
      build_call call(on.ctx, single(input_of({{-1.0f}}, 1)));
      bad.change(call);
      auto const status = call.run();
      CHECK(status.code == errc::invalid_argument);
      CHECK(std::string(status.message) == bad.message);
      CHECK(call.out.num_nodes.values()[0] == poisoned<std::int32_t>());
    }
  }
}

TEST_CASE("build_tree wants every array that has elements, and its workspace", "[build][small]") {
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    build_call call(on.ctx, single(input_of({{-1.0f}}, 1)));
    auto const run = [&](ddtree::candidates in, ddtree::ids_in root, ddtree::draft_tree out,
                         ddtree::workspace scratch) {
      return ddtree::build_tree(on.ctx, call.shape, call.batch, in, root, out, scratch);
    };
    auto const in = call.in.view();
    auto const root = call.root.view();
    auto const out = call.out.view();
    auto const scratch = call.scratch.as_workspace();
    auto const message = [](ddtree::status s) { return std::string(s.message); };

    CHECK(message(run({nullptr, in.log_prob, in.flags}, root, out, scratch)) ==
          "build_tree: in.token is null");
    CHECK(message(run({in.token, nullptr, in.flags}, root, out, scratch)) ==
          "build_tree: in.log_prob is null");
    CHECK(message(run({in.token, in.log_prob, nullptr}, root, out, scratch)) ==
          "build_tree: in.flags is null");
    CHECK(message(run(in, nullptr, out, scratch)) == "build_tree: root is null");
    CHECK(message(run(in, {root.data, dtype::bf16}, out, scratch)) ==
          "build_tree: root is neither i32 nor i64");
    auto some = out;
    some.rank = nullptr;
    CHECK(message(run(in, root, some, scratch)) == "build_tree: out has a null array");

    if (scratch.bytes > 0) {
      auto status = run(in, root, out, {scratch.data, scratch.bytes - 1});
      CHECK(status.code == errc::workspace_too_small);
      CHECK(message(status) == "build_tree: workspace.bytes too small");
      status = run(in, root, out, {nullptr, scratch.bytes});
      CHECK(status.code == errc::workspace_too_small);
      CHECK(message(status) == "build_tree: workspace.data is null");
    }

    call.shape.depth = 0;
    CHECK(run({nullptr, nullptr, in.flags}, root, out, scratch));
  }
}

TEST_CASE("build_tree and link_tree know their variants", "[build][small]") {
  round_shape const shape = make_shape(3, 4, 5);
  auto const cpu = ddtree::context::cpu();
  for (operation const op : {operation::build_tree, operation::link_tree}) {
    CHECK(std::string(ddtree::selected(cpu, op, shape)) == "cpu");
    CHECK(ddtree::selected(cpu.with_variant("build=none"), op, shape) == nullptr);
  }
  build_call call(cpu.with_variant("build_tree=none"), single(input_of({{-1.0f}}, 1)));
  CHECK(call.run().code == errc::invalid_argument);
}
