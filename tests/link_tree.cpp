// SPDX-License-Identifier: Apache-2.0
// link_tree; build_tree is in build.cpp.
#include "ddtree/build.hpp"

#include "support/build_cases.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::dtype;
using ddtree::errc;
using ddtree::operation;
using ddtree::round_shape;
using oracle::build::build_input;
using oracle::build::link_input;
using oracle::build::tree;

struct link_batch {
  round_shape shape;
  std::vector<std::optional<link_input>> rows;
  dtype ids = dtype::i32;
  ddtree::index_t stride = 0;
  bool with_weights = true;
};

class link_call {
 public:
  link_call(ddtree::context const& on, link_batch const& c)
      : ctx(on),
        shape(c.shape),
        parent(on, c.ids, flat(c, &link_input::parents), c.stride),
        token(on, c.ids, flat(c, &link_input::tokens), c.stride),
        num_nodes(on, c.ids, counts(c)),
        request(on, c.ids, requests(c)),
        log_weight(on, weights(c)),
        out(on, shape),
        in{parent.view(), token.view(), num_nodes.view(),
           c.with_weights ? log_weight.data() : nullptr},
        batch{nullptr, request.view()} {}

  ddtree::status run() { return ddtree::link_tree(ctx, shape, batch, in, out.view()); }

  bool intact() const {
    return parent.intact() && token.intact() && num_nodes.intact() && request.intact() &&
           log_weight.intact() && out.intact();
  }

  ddtree::context ctx;
  round_shape shape;
  optional_ids parent, token, num_nodes, request;
  buffer<float> log_weight;
  tree_buffers out;
  ddtree::tree_nodes in;
  ddtree::batch_view batch;

 private:
  static id_list flat(link_batch const& c, std::vector<long long> link_input::*member) {
    auto const stride = sized(c.stride == 0 ? c.shape.width() : c.stride);
    id_list all(c.rows.size() * stride, -9);
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      if (!c.rows[b]) continue;
      auto const& from = (*c.rows[b]).*member;
      std::copy(from.begin(), from.end(), all.begin() + static_cast<std::ptrdiff_t>(b * stride));
    }
    return all;
  }
  static id_list counts(link_batch const& c) {
    id_list all;
    for (auto const& row : c.rows) all.push_back(row ? row->num_nodes : 99999);
    return all;
  }
  static id_list requests(link_batch const& c) {
    id_list all;
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      all.push_back(c.rows[b] ? static_cast<std::int64_t>(b) : -1);
    }
    return all;
  }
  static std::vector<float> weights(link_batch const& c) {
    std::vector<float> all;
    for (auto const& row : c.rows) {
      std::vector<float> mine = row ? row->log_weights : std::vector<float>{};
      mine.resize(sized(c.shape.width()), not_a_number);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    return all;
  }
};

void check_links(link_batch const& c) {
  for (auto const& on : contexts_for(operation::link_tree)) {
    CAPTURE(on.name);
    link_call call(on.ctx, c);
    REQUIRE(call.run());
    REQUIRE(call.intact());
    tree_values const got(call.out);
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      CAPTURE(b);
      auto const width = sized(c.shape.width());
      tree want = oracle::build::inactive_tree(width);
      if (c.rows[b]) {
        link_input in = *c.rows[b];
        if (!c.with_weights) in.log_weights.clear();
        want = oracle::build::link_tree(in, width);
      }
      REQUIRE(difference(got, b, want) == "");
      REQUIRE(got.flags[b] == flags_of(want));
    }
  }
}

link_batch links_of(round_shape shape, std::vector<std::optional<link_input>> rows) {
  shape.batch = static_cast<ddtree::index_t>(rows.size());
  return {shape, std::move(rows)};
}

link_input make_links(random_numbers& rng, int nodes, round_shape const& shape) {
  link_input in;
  in.vocab = static_cast<int>(shape.vocab);
  in.max_depth = shape.depth;
  in.num_nodes = nodes;
  std::vector<int> depth;
  for (int i = 0; i < nodes; ++i) {
    long long parent = i == 0 ? -1 : rng.between(std::max(0, i - 1 - rng.between(0, 20)), i - 1);
    while (i > 0 && depth[sized(parent)] >= shape.depth) parent = rng.between(0, i - 1);
    in.parents.push_back(parent);
    in.tokens.push_back(rng.between(0, in.vocab - 1));
    in.log_weights.push_back(rng.normal(3.0f));
    depth.push_back(i == 0 ? 0 : depth[sized(parent)] + 1);
  }
  return in;
}

}  // namespace

TEST_CASE("link_tree completes a tree worked out by hand", "[build][small]") {
  link_input in;
  in.vocab = 50;
  in.parents = {12345, 0, 0, 1, 0, 1};
  in.tokens = {9, 1, 2, 3, 4, 0};
  in.log_weights = {5.0f, -1.0f, -2.0f, -3.0f, -4.0f, not_a_number};
  in.num_nodes = 6;
  for (auto const& on : contexts_for(operation::link_tree)) {
    CAPTURE(on.name);
    link_call call(on.ctx, links_of(make_shape(2, 1, 6, 50), {in}));
    REQUIRE(call.run());
    tree_values const t(call.out);
    CHECK(t.num_nodes == std::vector<int>{6});
    CHECK(t.token == std::vector<int>{9, 1, 2, 3, 4, 0, 9});
    CHECK(t.parent == std::vector<int>{-1, 0, 0, 1, 0, 1, -1});
    CHECK(t.depth == std::vector<int>{0, 1, 1, 2, 1, 2, 0});
    CHECK(t.rank == std::vector<int>{-1, 0, 1, 0, 2, 1, -1});
    CHECK(t.first_child == std::vector<int>{1, 3, -1, -1, -1, -1, -1});
    CHECK(t.next_sibling == std::vector<int>{-1, 2, 4, 5, -1, -1, -1});
    CHECK(t.ancestors == std::vector<std::uint32_t>{1, 3, 5, 11, 17, 35, 64});
    CHECK(t.log_weight[0] == 0.0f);
    CHECK(t.log_weight[4] == -4.0f);
    CHECK(std::isnan(t.log_weight[5]));
    CHECK(t.log_weight[6] == -infinity);
    CHECK(t.flags == std::vector<std::uint32_t>{0});
  }
}

TEST_CASE("link_tree equals the oracle on random trees", "[build]") {
  random_numbers rng(21);
  for (int i = 0; i < 150 / share_of_cases + 1; ++i) {
    int const budget = rng.any_of<int>({0, 1, 30, 31, 32, 64, 300, 2047});
    auto const shape =
        make_shape(rng.any_of<int>({1, 2, 15, 31}), 1, budget, rng.any_of<int>({1, 1000}));
    link_batch c = links_of(shape, {});
    for (int b = 0; b < 5; ++b) {
      if (b == 3) {
        c.rows.push_back(std::nullopt);
        continue;
      }
      link_input in = make_links(rng, rng.between(1, budget + 1), shape);
      auto const at = sized(rng.between(0, static_cast<int>(in.num_nodes) - 1));
      if (rng.one_in(6))
        in.parents[at] = rng.any_of<long long>({-1, static_cast<long long>(at), 5000});
      if (rng.one_in(6)) in.tokens[at] = rng.any_of<long long>({-1, in.vocab});
      c.rows.push_back(in);
    }
    c.shape.batch = 5;
    c.ids = rng.any_of<dtype>({dtype::i32, dtype::i64});
    c.stride = rng.one_in(2) ? 0 : shape.width() + rng.between(0, 5);
    c.with_weights = !rng.one_in(4);
    CAPTURE(i, budget, shape.depth, c.stride);
    check_links(c);
  }
}

TEST_CASE("link_tree stops at the first node that is not sound", "[build][small]") {
  random_numbers rng(22);
  auto const shape = make_shape(3, 1, 7, 10);
  link_input chain;
  chain.vocab = 10;
  chain.max_depth = 3;
  chain.parents = {-1, 0, 1, 2, 0, 4, 5, 0};
  chain.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  chain.log_weights.assign(8, -1.0f);
  chain.num_nodes = 8;
  SECTION("sound") {}
  SECTION("too deep") { chain.parents[4] = 3; }
  SECTION("too deep with a bad token") {
    chain.parents[4] = 3;
    chain.tokens[4] = 10;
  }
  SECTION("own parent") { chain.parents[5] = 5; }
  SECTION("later parent") { chain.parents[5] = 6; }
  SECTION("negative parent") { chain.parents[5] = -1; }
  SECTION("token past the vocabulary") { chain.tokens[5] = 10; }
  SECTION("negative token") { chain.tokens[5] = -1; }
  SECTION("bad root token") { chain.tokens[0] = 10; }
  SECTION("no nodes") { chain.num_nodes = 0; }
  SECTION("a negative number of nodes") { chain.num_nodes = -3; }
  SECTION("more nodes than rows") { chain.num_nodes = 9; }
  SECTION("depth 0 allows the root alone") { chain.max_depth = 0; }
  auto c = links_of(shape, {chain});
  c.shape.depth = chain.max_depth;
  check_links(c);
}

TEST_CASE("link_tree of what build_tree made gives its links again", "[build][small]") {
  random_numbers rng(23);
  auto const shape = make_shape(15, 32, 255);
  build_input const in = make_input(rng, row_kind::bf16, shape);
  for (auto const& on : contexts_for(operation::link_tree)) {
    CAPTURE(on.name);
    build_call built(on.ctx, batch_of(shape, {in}));
    REQUIRE(built.run());
    tree_buffers again(on.ctx, built.shape);
    auto const from = built.out.view();
    REQUIRE(ddtree::link_tree(on.ctx, built.shape, {},
                              {from.parent, from.token, from.num_nodes, from.log_weight},
                              again.view()));
    tree want = expected_trees(batch_of(shape, {in}))[0];
    CHECK(difference(tree_values(again), 0, want) == "");
  }
}

TEST_CASE("link_tree names the argument at fault", "[build][small]") {
  for (auto const& on : contexts_for(operation::link_tree)) {
    CAPTURE(on.name);
    random_numbers rng(24);
    auto const shape = make_shape(3, 1, 7, 10);
    link_call call(on.ctx, links_of(shape, {make_links(rng, 4, shape)}));
    auto const message = [&](ddtree::tree_nodes const& in, ddtree::draft_tree const& out) {
      auto const status = ddtree::link_tree(on.ctx, call.shape, call.batch, in, out);
      CHECK(status.code == errc::invalid_argument);
      return std::string(status.message);
    };
    auto in = call.in;
    in.parent = nullptr;
    CHECK(message(in, call.out.view()) == "link_tree: in.parent is null");
    in = call.in;
    in.token.type = dtype::u8;
    CHECK(message(in, call.out.view()) == "link_tree: in.token is neither i32 nor i64");
    in = call.in;
    in.token.stride = -1;
    CHECK(message(in, call.out.view()) == "link_tree: in.token.stride < 0");
    in = call.in;
    in.num_nodes = nullptr;
    CHECK(message(in, call.out.view()) == "link_tree: in.num_nodes is null");
    auto out = call.out.view();
    out.ancestors = nullptr;
    CHECK(message(call.in, out) == "link_tree: out has a null array");
    call.shape.budget = 4000;
    CHECK(message(call.in, call.out.view()) == "link_tree: shape.budget outside [0, 2047]");
    CHECK(call.out.num_nodes.values()[0] == poisoned<std::int32_t>());
  }
}
