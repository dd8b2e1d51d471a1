// SPDX-License-Identifier: Apache-2.0
// The walk with given tokens and with the argmax of logits.
#include "ddtree/accept.hpp"

#include "oracle/accept.hpp"
#include "support/accept_cases.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"

#include <numeric>

namespace {

using namespace ddtree_test;
using ddtree::accept_options;
using ddtree::batch_view;
using ddtree::context;
using ddtree::dtype;
using ddtree::errc;
using ddtree::index_t;
using ddtree::operation;
using ddtree::round_shape;
using oracle::accept::limits;
using oracle::accept::target;
using oracle::accept::tree;
namespace flag = ddtree::flag;

/// Runs accept_tokens and reads the results; said[b] are the target's tokens of row b.
struct tokens_run {
  tokens_run(context const& ctx, round_shape const& shape, batch_view const& batch,
             ddtree::draft_tree const& trees, std::vector<std::vector<std::int64_t>> const& said,
             accept_options const& options = {}, dtype type = dtype::i32, index_t stride = 0)
      : out(ctx, shape) {
    auto const dense = stride == 0 ? shape.width() : stride;
    // What must not be read is no token.
    std::vector<std::int64_t> flat(sized(shape.batch * dense), -77);
    for (std::size_t b = 0; b < said.size(); ++b) {
      std::copy(said[b].begin(), said[b].end(),
                flat.begin() + static_cast<std::ptrdiff_t>(b) * dense);
    }
    optional_ids target_token(ctx, type, flat, stride);
    auto const s =
        ddtree::accept_tokens(ctx, shape, batch, trees, target_token.view(), out.view(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    REQUIRE(out.intact());
    results = read_accepted(out, shape);
  }

  accepted_buffers out;
  std::vector<accepted_request> results;
};

/// One request and no options: what accept_tokens makes of a tree and tokens.
accepted_request accept_one(context const& ctx, int depth, tree const& t,
                            std::vector<std::int64_t> const& said,
                            accept_options const& options = {}, index_t vocab = 100) {
  round_shape shape;
  shape.vocab = vocab;
  shape.depth = depth;
  shape.budget = 20;
  tree_batch trees(ctx, shape, {t});
  return tokens_run(ctx, shape, {}, trees.view(), {said}, options).results[0];
}

/// root 5 - 10 - 20 - 30, and 11 beside 10, 21 beside 20.
tree small_tree() {
  tree t;
  t.token[0] = 5;
  t.add(0, 10);  // 1
  t.add(0, 11);  // 2
  t.add(1, 20);  // 3
  t.add(1, 21);  // 4
  t.add(3, 30);  // 5
  return t;
}

}  // namespace

TEST_CASE("accept_tokens equals the walk of the oracle", "[accept][small]") {
  int const budget = GENERATE(0, 1, 31, 32, 33, 64, 256);
  int const depth = GENERATE(0, 1, 15, 31);
  auto const type = GENERATE(dtype::i32, dtype::i64);
  CAPTURE(budget, depth);
  random_engine random(static_cast<unsigned>(budget * 100 + depth));
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    for (int batch = 0; batch < 6; ++batch) {
      round_shape shape;
      shape.batch = batch;
      shape.vocab = uniform(random, 1, 6);
      shape.depth = depth;
      shape.budget = budget;
      shape.requests = batch + 3;
      int const vocab = static_cast<int>(shape.vocab);

      // Requests in any order; some rows inactive in one of the three ways.
      std::vector<std::int64_t> request(sized(shape.requests));
      std::iota(request.begin(), request.end(), 0);
      for (std::size_t i = request.size(); i > 1; --i) {
        std::swap(request[i - 1], request[random() % i]);
      }
      request.resize(sized(batch));
      std::vector<std::int64_t> length(sized(shape.requests)), remaining(length.size());
      std::vector<std::int64_t> stop(2 * length.size(), -1);
      for (std::size_t r = 0; r < length.size(); ++r) {
        length[r] = uniform(random, 0, 1000);
        remaining[r] = uniform(random, 0, 3) == 0 ? uniform(random, 0, 5) : 1000;
        if (uniform(random, 0, 4) == 0) stop[2 * r + 1] = uniform(random, 0, vocab);
        if (uniform(random, 0, 15) == 0) length[r] = -1;
      }
      std::vector<tree> trees;
      std::vector<std::uint32_t> flags;
      std::vector<std::vector<std::int64_t>> said(sized(batch));
      std::vector<accepted_request> expected;
      for (int b = 0; b < batch; ++b) {
        tree const t = random_tree(random, uniform(random, 1, budget + 1), depth, vocab, true);
        trees.push_back(t);
        flags.push_back(uniform(random, 0, 1) == 1 ? flag::top_k_limited : 0);
        std::vector<target> oracle_said;
        for (int i = 0; i < t.size(); ++i) {
          auto const children = t.children(i);
          bool const hit = !children.empty() && uniform(random, 0, 9) < 8;
          int const id = hit ? t.token[sized(children[random() % children.size()])]
                             : uniform(random, -1, vocab);
          said[sized(b)].push_back(id);
          bool const legal = id >= 0 && id < vocab;
          oracle_said.push_back({legal ? id : 0, legal});
        }
        if (uniform(random, 0, 5) == 0)
          request[sized(b)] = uniform(random, 0, 1) == 0 ? -1 : shape.requests;
        auto const r = request[sized(b)];
        if (r < 0 || r >= shape.requests || length[sized(r)] < 0 || remaining[sized(r)] <= 0) {
          expected.push_back(inactive_request(depth));
          continue;
        }
        limits limit;
        limit.remaining = remaining[sized(r)];
        if (stop[2 * sized(r) + 1] >= 0)
          limit.stop.insert(static_cast<int>(stop[2 * sized(r) + 1]));
        auto const walked =
            oracle::accept::walk(t, limit, [&](int node, int) { return oracle_said[sized(node)]; });
        bool const met_bad = !oracle_said[sized(walked.path.back())].matches;
        expected.push_back(
            expected_request(walked, depth, flags.back() | (met_bad ? flag::id_out_of_range : 0)));
        if (limit.stop.empty() && limit.remaining == 1000) {
          CHECK(walked.path == oracle::accept::accepted_by_edges(t, oracle_said));
        }
      }

      tree_batch memory(ctx, shape, trees, flags);
      optional_ids requests(ctx, type, request), lengths(ctx, type, length),
          remainings(ctx, type, remaining), stops(ctx, type, stop);
      optional_ids mirror_token(ctx, type, std::vector<std::int64_t>(sized(batch) * 40, 55), 40);
      optional_ids mirror_bonus(ctx, type, std::vector<std::int64_t>(sized(batch), 55));
      optional_ids mirror_count(ctx, type, std::vector<std::int64_t>(sized(batch), 55));
      optional_ids mirror_length(ctx, type, std::vector<std::int64_t>(length.size(), 55));
      accept_options options;
      options.remaining = remainings.view();
      options.stop_tokens = stops.view();
      options.stop_tokens_per_request = 2;
      options.mirror = {mirror_token.view(), mirror_bonus.view(), mirror_count.view(),
                        mirror_length.view()};
      tokens_run const run(ctx, shape, {lengths.view(), requests.view()}, memory.view(), said,
                           options, type, shape.width() + 3);

      std::vector<std::int64_t> new_length(length.size(), 55);
      for (std::size_t b = 0; b < sized(batch); ++b) {
        CAPTURE(b);
        accepted_request const& got = run.results[b];
        REQUIRE(got == expected[b]);
        for (int i = 1; i <= got.num_accepted; ++i)
          REQUIRE(got.path[sized(i)] > got.path[sized(i - 1)]);
        for (std::size_t i = 0; i <= sized(depth); ++i) {
          REQUIRE(mirror_token.values()[b * 40 + i] == got.token[i]);
        }
        REQUIRE(mirror_bonus.values()[b] == got.bonus);
        REQUIRE(mirror_count.values()[b] == got.num_accepted);
        if (got.num_accepted >= 0) {
          new_length[sized(request[b])] = length[sized(request[b])] + got.num_accepted + 1;
        }
      }
      REQUIRE(mirror_length.values() == new_length);
      REQUIRE(mirror_token.intact());
      REQUIRE(mirror_length.intact());
    }
  }
}

TEST_CASE("accept_tokens follows the tokens and ends with the bonus", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    // Node 1's token is 21, a leaf whose own token is 7.
    auto const got = accept_one(ctx, 4, small_tree(), {10, 21, 0, 0, 7, 0});
    CHECK(got.path == std::vector<int>{0, 1, 4, -1, -1});
    CHECK(got.token == std::vector<int>{10, 21, 7, -1, -1});
    CHECK(got.num_accepted == 2);
    CHECK(got.bonus == 7);
    CHECK(got.flags == 0);

    auto const none = accept_one(ctx, 4, small_tree(), {20, 21, 0, 0, 7, 0});
    CHECK(none.path == std::vector<int>{0, -1, -1, -1, -1});
    CHECK(none.token == std::vector<int>{20, -1, -1, -1, -1});
    CHECK(none.num_accepted == 0);
  }
}

TEST_CASE("of equal siblings only the first in rank order matches", "[accept][small]") {
  tree t;
  t.add(0, 9);
  t.add(0, 9);
  t.add(2, 8);  // a child of the second
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    auto const got = accept_one(ctx, 4, t, {9, 8, 8, 1});
    CHECK(got.path == std::vector<int>{0, 1, -1, -1, -1});
    CHECK(got.bonus == 8);
  }
}

TEST_CASE("token 0 is a token like any other", "[accept][small]") {
  tree t;
  t.add(t.add(0, 0), 0);
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    auto const got = accept_one(ctx, 4, t, {0, 0, 0});
    CHECK(got.num_accepted == 2);
    CHECK(got.token == std::vector<int>{0, 0, 0, -1, -1});
  }
}

TEST_CASE("a target token out of range matches nothing and is written as 0", "[accept][small]") {
  tree t;
  t.add(0, 0);
  t.add(0, 120);  // made by an engine that does not keep the vocabulary
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    for (std::int64_t const id : {std::int64_t{-1}, std::int64_t{100}, std::int64_t{120}}) {
      auto const got = accept_one(ctx, 4, t, {id, 1, 1});
      CHECK(got.num_accepted == 0);
      CHECK(got.bonus == 0);
      CHECK(got.flags == flag::id_out_of_range);
    }
    round_shape shape;
    shape.vocab = 100;
    shape.depth = 1;
    shape.budget = 2;
    tree_batch trees(ctx, shape, {t});
    // The low half of this id is 0.
    auto const wide =
        tokens_run(ctx, shape, {}, trees.view(), {{std::int64_t{1} << 32, 1, 1}}, {}, dtype::i64);
    CHECK(wide.results[0].num_accepted == 0);
    CHECK(wide.results[0].flags == flag::id_out_of_range);
  }
}

TEST_CASE("a stop token ends the walk, drafted or not", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    buffer<std::int32_t> stop(ctx, std::vector<std::int32_t>{-1, 20});
    accept_options options;
    options.stop_tokens = stop.data();
    options.stop_tokens_per_request = 2;
    auto const drafted = accept_one(ctx, 4, small_tree(), {10, 20, 0, 30, 0, 0}, options);
    CHECK(drafted.path == std::vector<int>{0, 1, -1, -1, -1});
    CHECK(drafted.token == std::vector<int>{10, 20, -1, -1, -1});
    CHECK(drafted.bonus == 20);
    CHECK(drafted.flags == flag::stopped);

    auto const not_drafted = accept_one(ctx, 4, small_tree(), {11, 0, 20, 0, 0, 0}, options);
    CHECK(not_drafted.token == std::vector<int>{11, 20, -1, -1, -1});
    CHECK(not_drafted.flags == flag::stopped);

    // Padding is no token, nor is what an id out of range is written as.
    buffer<std::int32_t> zero(ctx, std::vector<std::int32_t>{-1, 0});
    options.stop_tokens = zero.data();
    auto const bad = accept_one(ctx, 4, small_tree(), {-1, 0, 0, 0, 0, 0}, options);
    CHECK(bad.flags == flag::id_out_of_range);

    options.stop_tokens_per_request = 0;
    CHECK(accept_one(ctx, 4, small_tree(), {10, 20, 0, 30, 0, 7}, options).num_accepted == 3);
  }
}

TEST_CASE("stop tokens are the request's own", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 2;
    shape.requests = 3;
    shape.vocab = 100;
    shape.depth = 4;
    shape.budget = 20;
    tree_batch trees(ctx, shape, {small_tree(), small_tree()});
    // Rows of one token, four apart; request 2 stops at 10, request 1 at 20.
    buffer<std::int64_t> stop(ctx, std::vector<std::int64_t>{0, 10, 20, 30, 20, 10, 10, 10, 10});
    buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{2, 1});
    accept_options options;
    options.stop_tokens = {stop.data(), dtype::i64, 4};
    options.stop_tokens_per_request = 1;
    batch_view batch;
    batch.request = request.data();
    std::vector<std::int64_t> const said{10, 20, 0, 30, 0, 0};
    auto const run = tokens_run(ctx, shape, batch, trees.view(), {said, said}, options);
    CHECK(run.results[0].token == std::vector<int>{10, -1, -1, -1, -1});
    CHECK(run.results[1].token == std::vector<int>{10, 20, -1, -1, -1});
  }
}

TEST_CASE("remaining limits the walk", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    std::vector<std::int64_t> const all{10, 20, 0, 30, 0, 7};  // 3 accepted, then 7
    auto const limited = [&](std::int64_t remaining) {
      buffer<std::int64_t> left(ctx, std::vector<std::int64_t>{remaining});
      accept_options options;
      options.remaining = left.data();
      return accept_one(ctx, 4, small_tree(), all, options);
    };
    CHECK(limited(-5) == inactive_request(4));
    CHECK(limited(0) == inactive_request(4));
    CHECK(limited(1).token == std::vector<int>{10, -1, -1, -1, -1});
    CHECK(limited(1).num_accepted == 0);
    CHECK(limited(1).flags == flag::limit_reached);
    CHECK(limited(3).token == std::vector<int>{10, 20, 30, -1, -1});
    CHECK(limited(3).flags == flag::limit_reached);
    // The walk ends here by itself.
    CHECK(limited(4).token == std::vector<int>{10, 20, 30, 7, -1});
    CHECK(limited(4).flags == 0);
    CHECK(limited(std::int64_t{1} << 40).num_accepted == 3);
    CHECK(limited((std::int64_t{1} << 32) + 1).num_accepted == 3);
  }
}

TEST_CASE("a stop token at the limit is a stop", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    buffer<std::int32_t> left(ctx, std::vector<std::int32_t>{2}),
        stop(ctx, std::vector<std::int32_t>{20});
    accept_options options;
    options.remaining = left.data();
    options.stop_tokens = stop.data();
    options.stop_tokens_per_request = 1;
    auto const got = accept_one(ctx, 4, small_tree(), {10, 20, 0, 30, 0, 7}, options);
    CHECK(got.token == std::vector<int>{10, 20, -1, -1, -1});
    CHECK(got.flags == flag::stopped);
  }
}

TEST_CASE("corrupt links end the walk", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_tokens)) {
    CAPTURE(name);
    round_shape shape;
    shape.vocab = 100;
    shape.depth = 2;
    shape.budget = 7;
    tree chain;
    for (int i = 0; i < 5; ++i) chain.add(i, 1);
    std::vector<std::int64_t> const ones(8, 1);

    SECTION("a chain that is deeper than the shape") {
      tree_batch trees(ctx, shape, {chain});
      auto const got = tokens_run(ctx, shape, {}, trees.view(), {ones}).results[0];
      CHECK(got.path == std::vector<int>{0, 1, 2});
      CHECK(got.token == std::vector<int>{1, 1, 1});
      CHECK(got.flags == 0);
    }
    SECTION("links out of range, backwards, or to themselves") {
      for (int const link : {6, 8, 1000000000, -2, 0, 1}) {
        CAPTURE(link);
        tree_batch trees(ctx, shape, {chain});
        auto first_child = trees.buffers.first_child.values();
        first_child[1] = link;
        trees.buffers.first_child.assign(first_child);
        auto const got = tokens_run(ctx, shape, {}, trees.view(), {ones}).results[0];
        CHECK(got.path == std::vector<int>{0, 1, -1});
        CHECK(got.flags == flag::id_out_of_range);

        tree_batch siblings(ctx, shape, {chain});
        auto token = siblings.buffers.token.values();
        auto next = siblings.buffers.next_sibling.values();
        token[1] = 2;
        next[1] = link;
        siblings.buffers.token.assign(token);
        siblings.buffers.next_sibling.assign(next);
        CHECK(tokens_run(ctx, shape, {}, siblings.view(), {ones}).results[0].num_accepted == 0);
      }
    }
    SECTION("counts out of range") {
      for (int const count : {-1, 0, 1000000000}) {
        CAPTURE(count);
        tree_batch trees(ctx, shape, {chain});
        trees.buffers.num_nodes.assign({count});
        auto const got = tokens_run(ctx, shape, {}, trees.view(), {ones}).results[0];
        CHECK(got.num_accepted == (count > 0 ? 2 : 0));
      }
    }
  }
}

// ---- accept_greedy ----

namespace {

/// Runs accept_greedy over a batch whose rows are rows[b][i], and reads the results.
struct greedy_run {
  greedy_run(context const& ctx, round_shape const& shape, batch_view const& batch,
             ddtree::draft_tree const& trees, ddtree::logits_view const& target,
             accept_options const& options = {}, bool with_log_prob = false)
      : out(ctx, shape) {
    buffer<unsigned char> scratch(ctx, ddtree::accept_greedy_workspace_bytes(ctx, shape));
    auto const s = ddtree::accept_greedy(ctx, shape, batch, trees, target, out.view(with_log_prob),
                                         scratch.as_workspace(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    REQUIRE(out.intact());
    REQUIRE(scratch.intact());
    results = read_accepted(out, shape, with_log_prob);
  }

  accepted_buffers out;
  std::vector<accepted_request> results;
};

/// The bonus and flags that a root alone gets for one row of logits.
struct plain {
  int bonus;
  std::uint32_t flags;
  bool operator==(plain const& o) const { return bonus == o.bonus && flags == o.flags; }
};

std::ostream& operator<<(std::ostream& to, plain const& p) {
  return to << "bonus " << p.bonus << " flags " << p.flags;
}

plain choose(context const& ctx, std::vector<float> const& row, accept_options const& options = {},
             dtype type = dtype::f32) {
  round_shape shape;
  shape.vocab = static_cast<index_t>(row.size());
  shape.depth = 0;
  shape.budget = 0;
  tree_batch trees(ctx, shape, {tree{}});
  logits_buffer logits(ctx, row, type);
  auto const got = greedy_run(ctx, shape, {}, trees.view(), logits.view(), options).results[0];
  REQUIRE(got.num_accepted == 0);
  return {got.bonus, got.flags};
}

}  // namespace

TEST_CASE("accept_greedy takes the largest logit, the lowest id of equal ones", "[accept]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    auto const best = [&](std::vector<float> const& row) { return choose(ctx, row, {}, type); };
    CHECK(best({7.0f}) == plain{0, 0});
    CHECK(best({1, 3, 2, 3}) == plain{1, 0});
    CHECK(best({-0.0f, 0.0f}) == plain{0, 0});
    CHECK(best({-1, 0.0f, -0.0f, 0.0f}) == plain{1, 0});
    CHECK(best({-5, -4, -9}) == plain{1, 0});
    CHECK(best(std::vector<float>(3000, -2.5f)) == plain{0, 0});
    CHECK(best({-infinity, -infinity, -60000}) == plain{2, 0});
    CHECK(best({-infinity, -infinity}) == plain{0, 0});
    CHECK(best({not_a_number, 1, 2}) == plain{2, flag::target_nan});
    CHECK(best({not_a_number, not_a_number}) == plain{0, flag::target_nan});
    CHECK(best({3, infinity, 1, infinity}) == plain{1, flag::target_nan});
    for (std::size_t const at : {0u, 1u, 1023u, 1024u, 2050u}) {
      std::vector<float> row(2051, 1.0f);
      row[at] = 1.5f;
      CHECK(best(row) == plain{static_cast<int>(at), 0});
    }
  }
}

TEST_CASE("accept_greedy equals the oracle, whatever layout the logits have", "[accept][small]") {
  auto const type = GENERATE(dtype::f32, dtype::f16, dtype::bf16);
  int const vocab = GENERATE(1, 37, 1030);
  bool const packed = GENERATE(false, true);
  random_engine random(static_cast<unsigned>(vocab) + (packed ? 7u : 0u));
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name, vocab, packed);
    round_shape shape;
    shape.batch = 4;
    shape.vocab = vocab;
    shape.depth = 6;
    shape.budget = 12;
    // Columns from vocab on, and rows between those of requests, hold what would be flagged.
    index_t const columns = vocab + 2, row_stride = vocab + 5, batch_stride = shape.width() + 2;
    std::vector<tree> trees;
    std::vector<std::vector<oracle::accept::row>> rows(4);
    std::vector<std::int64_t> first_row;
    std::vector<float> flat;
    std::vector<accepted_request> expected;
    for (index_t b = 0; b < shape.batch; ++b) {
      tree const t = random_tree(random, uniform(random, 1, 13), 6, vocab);
      trees.push_back(t);
      index_t const first =
          packed ? static_cast<index_t>(flat.size()) / row_stride : b * batch_stride;
      first_row.push_back(first);
      flat.resize(sized((first + (packed ? t.size() : batch_stride)) * row_stride), not_a_number);
      for (int i = 0; i < t.size(); ++i) {
        auto x = random_logits(random, vocab);
        auto const children = t.children(i);
        if (!children.empty() && uniform(random, 0, 4) > 0) {
          x[sized(t.token[sized(children[random() % children.size()])])] = 12.0f;
        }
        for (float& value : x) value = logits_buffer::rounded(value, type);
        std::copy(x.begin(), x.end(), flat.begin() + (first + i) * row_stride);
        rows[sized(b)].push_back({x, {}, {}});
      }
      auto const walked = oracle::accept::walk(t, {}, [&](int node, int) {
        return target{oracle::accept::argmax(rows[sized(b)][sized(node)]), true};
      });
      // Rows that the walk does not visit are not looked at.
      for (int i = 0; i < t.size(); ++i) {
        if (std::count(walked.path.begin(), walked.path.end(), i) != 0) continue;
        std::fill_n(flat.begin() + (first + i) * row_stride, vocab, not_a_number);
      }
      expected.push_back(expected_request(walked, 6, 0));
    }
    tree_batch memory(ctx, shape, trees);
    logits_buffer logits(ctx, flat, type);
    buffer<std::int64_t> offsets(ctx, first_row);
    auto target = logits.view();
    target.vocab = columns;
    target.row_stride = row_stride;
    target.batch_stride = batch_stride;
    if (packed) target.row_offset = offsets.data();
    CHECK(greedy_run(ctx, shape, {}, memory.view(), target).results == expected);
  }
}

TEST_CASE("a row without a finite logit gives token 0 and ends the walk", "[accept][small]") {
  tree t;
  t.add(0, 0);
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.vocab = 3;
    shape.depth = 1;
    shape.budget = 1;
    tree_batch trees(ctx, shape, {t});
    buffer<std::int32_t> stop(ctx, std::vector<std::int32_t>{0});
    accept_options options;
    options.stop_tokens = stop.data();
    options.stop_tokens_per_request = 1;
    logits_buffer dead(ctx, {-infinity, -infinity, -infinity, 0, 0, 0}, dtype::f32);
    auto const got =
        greedy_run(ctx, shape, {}, trees.view(), dead.view(), options, true).results[0];
    CHECK(got.path == std::vector<int>{0, -1});
    CHECK(got.bonus == 0);
    CHECK(got.flags == 0);
    CHECK(got.log_prob == std::vector<float>{-infinity, 0});
  }
}

TEST_CASE("bias and bitmask apply before the argmax", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    accept_options options;
    SECTION("bias") {
      buffer<float> bias(ctx, std::vector<float>{0, 5, not_a_number, 0.5f});
      options.logit_bias = bias.data();
      CHECK(choose(ctx, {1, -3.5f, 1, 1.5f}, options) == plain{3, 0});
      CHECK(choose(ctx, {1, -3.5f, 3, 1.5f}, options) == plain{2, 0});
      CHECK(choose(ctx, {1, 0, 3, not_a_number}, options) == plain{1, flag::target_nan});
    }
    SECTION("bias that is infinite") {
      buffer<float> bias(ctx, std::vector<float>{-infinity, infinity, 0, infinity});
      options.logit_bias = bias.data();
      CHECK(choose(ctx, {9, -infinity, 3, 0}, options) == plain{3, 0});
      CHECK(choose(ctx, {9, 1, 3, 0}, options) == plain{1, 0});
      // -inf + inf is NaN, that is -inf; and the largest float is not above +inf.
      CHECK(choose(ctx, {9, -infinity, -9, -infinity}, options) == plain{2, 0});
      CHECK(choose(ctx, {infinity, 1, infinity, 0}, options) == plain{1, flag::target_nan});
    }
    SECTION("bitmask") {
      std::vector<float> row(70, 0.0f);
      row[3] = 9;
      row[33] = 8;
      row[66] = 7;
      buffer<std::uint32_t> mask(ctx, std::vector<std::uint32_t>{~8u, ~0u, ~0u});
      options.token_bitmask.data = mask.data();
      CHECK(choose(ctx, row, options) == plain{33, 0});
      mask.assign({~8u, ~2u, ~0u});
      CHECK(choose(ctx, row, options) == plain{66, 0});
      mask.assign({0, 0, 1u << 5});
      CHECK(choose(ctx, row, options) == plain{69, 0});
      mask.assign({0, 0, 0});
      CHECK(choose(ctx, row, options) == plain{0, 0});
      // A forbidden NaN is still one that the model gave.
      row[3] = not_a_number;
      CHECK(choose(ctx, row, options) == plain{0, flag::target_nan});
    }
  }
}

TEST_CASE("bias is by request, the bitmask by row", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 2;
    shape.requests = 4;
    shape.vocab = 40;
    shape.depth = 1;
    shape.budget = 1;
    tree t;
    t.add(0, 35);
    tree_batch trees(ctx, shape, {t, t});
    logits_buffer logits(ctx, std::vector<float>(4 * 40, 1.0f), dtype::f32);
    buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{3, 1});
    std::vector<float> bias(4 * 50, 0.0f);
    bias[3 * 50 + 35] = 1;
    bias[1 * 50 + 7] = 1;
    buffer<float> biases(ctx, bias);
    // Rows of 3 words. Request 3 has rows 4 and 5, request 1 rows 0 and 1.
    std::vector<std::uint32_t> mask(18, ~0u);
    mask[5 * 3 + 1] = ~8u;    // not 35
    mask[0 * 3 + 0] = ~128u;  // not 7
    buffer<std::uint32_t> masks(ctx, mask);
    buffer<std::int64_t> first_row(ctx, std::vector<std::int64_t>{4, 0});
    accept_options options;
    options.logit_bias = biases.data();
    options.logit_bias_stride = 50;
    options.token_bitmask = {masks.data(), 3, 0, first_row.data()};
    batch_view batch;
    batch.request = request.data();
    auto run = greedy_run(ctx, shape, batch, trees.view(), logits.view(), options);
    CHECK(run.results[0].token == std::vector<int>{35, 0});
    CHECK(run.results[1].token == std::vector<int>{0, -1});

    options.token_bitmask.row_offset = {};
    options.token_bitmask.batch_stride = 4;  // rows 0 and 1, 4 and 5
    run = greedy_run(ctx, shape, batch, trees.view(), logits.view(), options);
    CHECK(run.results[0].token == std::vector<int>{35, 35});
    CHECK(run.results[1].token == std::vector<int>{7, -1});
  }
}

namespace {

/// Where an array begins whose element `index` stands at `element`.
template <class T>
T const* begin_of(T const* element, index_t index) {
  return reinterpret_cast<T const*>(reinterpret_cast<std::uintptr_t>(element) -
                                    static_cast<std::uintptr_t>(index) * sizeof(T));
}

}  // namespace

TEST_CASE("rows may lie more than 2^32 elements apart", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.vocab = 3;
    shape.depth = 0;
    shape.budget = 0;
    shape.requests = 6;
    index_t const far = (index_t{1} << 31) + 5;
    tree_batch trees(ctx, shape, {tree{}});
    buffer<float> row(ctx, std::vector<float>{1, 2, 3}), bias(ctx, std::vector<float>{0, 5, 9});
    buffer<std::uint32_t> mask(ctx, std::vector<std::uint32_t>{3});
    buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{5}),
        first_row(ctx, std::vector<std::int32_t>{4});
    ddtree::logits_view view;
    view.data = begin_of(row.data(), 4 * far);
    view.row_stride = far;
    view.row_offset = first_row.data();
    accept_options options;
    options.logit_bias = begin_of(bias.data(), 5 * far);
    options.logit_bias_stride = far;
    options.token_bitmask = {begin_of(mask.data(), 4 * far), far, 0, first_row.data()};
    batch_view batch;
    batch.request = request.data();
    CHECK(greedy_run(ctx, shape, batch, trees.view(), view, options).results[0].bonus == 1);
  }
}

TEST_CASE("log_prob is the log-softmax of the emitted tokens", "[accept]") {
  auto const type = GENERATE(dtype::f32, dtype::bf16);
  int const vocab = GENERATE(1, 50, 3001);
  bool const processed = GENERATE(false, true);
  random_engine random(3);
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name, vocab, processed);
    round_shape shape;
    shape.vocab = vocab;
    shape.depth = 3;
    shape.budget = 2;
    tree t;
    oracle::accept::row rows[3];
    std::vector<float> flat;
    auto bias = random_logits(random, vocab, 1.0f);
    for (int i = 0; i < 3; ++i) {
      auto x = random_logits(random, vocab);
      // Rows far from 0, and one with what counts as -inf.
      for (float& value : x)
        value = logits_buffer::rounded(value + 300.0f * static_cast<float>(i), type);
      if (vocab > 40) x[40] = not_a_number;
      rows[i] = {x, bias, {}};
      flat.insert(flat.end(), x.begin(), x.end());
      if (i < 2) t.add(i, oracle::accept::argmax(rows[i]));
    }
    tree_batch trees(ctx, shape, {t});
    logits_buffer logits(ctx, flat, type);
    buffer<float> biases(ctx, bias);
    accept_options options;
    options.logit_bias = biases.data();
    options.processed_log_prob = processed;
    auto const got =
        greedy_run(ctx, shape, {}, trees.view(), logits.view(), options, true).results[0];
    REQUIRE(got.num_accepted == 2);
    for (std::size_t i = 0; i < 3; ++i) {
      long double const exact = oracle::accept::log_prob(rows[i], got.token[i], processed, 0.0f);
      CAPTURE(i, got.log_prob[i], static_cast<double>(exact));
      CHECK(std::fabs(static_cast<double>(got.log_prob[i] - exact)) < 1e-5);
      CHECK(got.log_prob[i] <= 0);
    }
    CHECK(got.log_prob[3] == 0);
  }
}

TEST_CASE("log_prob of what the model excludes is -inf, and stays in the float range",
          "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.vocab = 3;
    shape.depth = 0;
    shape.budget = 0;
    tree_batch trees(ctx, shape, {tree{}});
    // Allowed is token 2 alone; where that is impossible token 0 is emitted nevertheless.
    buffer<std::uint32_t> mask(ctx, std::vector<std::uint32_t>{4});
    accept_options options;
    options.token_bitmask.data = mask.data();
    auto const log_prob_of = [&](std::vector<float> const& row) {
      logits_buffer logits(ctx, row, dtype::f32);
      return greedy_run(ctx, shape, {}, trees.view(), logits.view(), options, true)
          .results[0]
          .log_prob[0];
    };
    float const most = std::numeric_limits<float>::max();
    CHECK(log_prob_of({-infinity, 2, -infinity}) == -infinity);
    CHECK(log_prob_of({5, -infinity, -infinity}) == 0.0f);
    CHECK(log_prob_of({most, 2, -most}) == -most);
    CHECK(log_prob_of({-infinity, -infinity, 5}) == 0.0f);
    options.processed_log_prob = true;
    CHECK(log_prob_of({100, 100, -20}) == 0.0f);
  }
}

TEST_CASE("a request gives the same bits alone and anywhere in a batch", "[accept][small]") {
  random_engine random(11);
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 64;
    shape.vocab = 777;
    shape.depth = 5;
    shape.budget = 9;
    tree const t = random_tree(random, 10, 5, 777);
    std::vector<float> rows;
    for (int i = 0; i < 10; ++i) {
      auto x = random_logits(random, 777);
      if (i < t.size() && !t.children(i).empty()) x[sized(t.token[sized(t.children(i)[0])])] = 15;
      rows.insert(rows.end(), x.begin(), x.end());
    }
    round_shape one = shape;
    one.batch = 1;
    tree_batch single(ctx, one, {t});
    logits_buffer logits(ctx, rows, dtype::f32);
    auto const alone = greedy_run(ctx, one, {}, single.view(), logits.view(), {}, true).results[0];
    REQUIRE(alone.num_accepted > 0);

    tree_batch many(ctx, shape, std::vector<tree>(64, t));
    buffer<std::int64_t> first_row(ctx, std::vector<std::int64_t>(64, 0));
    auto view = logits.view();
    view.row_offset = first_row.data();
    for (auto const& got : greedy_run(ctx, shape, {}, many.view(), view, {}, true).results) {
      CHECK(got == alone);
    }
  }
}

TEST_CASE("nothing is read of inactive requests", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 2;
    shape.requests = 1;
    shape.vocab = 8;
    shape.depth = 2;
    shape.budget = 3;
    tree_batch trees(ctx, shape, {});  // poison only
    buffer<std::int32_t> request(ctx, std::vector<std::int32_t>{-1, 1});
    buffer<std::int32_t> length(ctx, std::vector<std::int32_t>{4});
    buffer<std::int64_t> new_length(ctx, std::vector<std::int64_t>{9}), count(ctx, 2),
        bonus(ctx, 2), token(ctx, 6);
    // No memory at all stands behind these.
    buffer<std::int64_t> far(
        ctx, std::vector<std::int64_t>{std::int64_t{1} << 40, -(std::int64_t{1} << 40)});
    logits_buffer logits(ctx, {}, dtype::f32);
    auto view = logits.view();
    view.row_offset = far.data();
    accept_options options;
    options.mirror = {token.data(), bonus.data(), count.data(), new_length.data()};
    auto const run =
        greedy_run(ctx, shape, {length.data(), request.data()}, trees.view(), view, options, true);
    CHECK(run.results[0] == inactive_request(2, true));
    CHECK(run.results[1] == inactive_request(2, true));
    CHECK(new_length.values() == std::vector<std::int64_t>{9});
    CHECK(count.values() == std::vector<std::int64_t>{-1, -1});
    CHECK(bonus.values() == std::vector<std::int64_t>{-1, -1});
    CHECK(token.values() == std::vector<std::int64_t>(6, -1));
  }
}

TEST_CASE("an empty batch is no error", "[accept][small]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_greedy)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 0;
    shape.vocab = 8;
    CHECK(ddtree::accept_greedy(ctx, shape, {}, {}, {}, {}, {}));
    CHECK(ddtree::accept_tokens(ctx, shape, {}, {}, nullptr, {}));
  }
}

// ---- bind_accepted ----

TEST_CASE("bind_accepted lays the arrays out the same way at any address", "[accept][small]") {
  round_shape shape;
  shape.batch = GENERATE(1, 7);
  shape.vocab = 10;
  shape.depth = 3;
  std::size_t const bytes = ddtree::accepted_bytes(shape);
  REQUIRE(bytes >= sized(shape.batch) * (3 + 3 * 4) * 4);
  std::vector<std::ptrdiff_t> first;
  for (std::size_t offset : {0u, 1u, 4u, 16u, 255u}) {
    std::vector<unsigned char> memory(bytes + 256);
    ddtree::accepted block;
    REQUIRE(ddtree::bind_accepted(shape, {memory.data() + offset, bytes}, &block));
    auto const* const begin = reinterpret_cast<unsigned char const*>(block.path);
    auto const from_begin = [&](void const* p) {
      return static_cast<unsigned char const*>(p) - begin;
    };
    std::vector<std::ptrdiff_t> const distances{
        from_begin(block.num_accepted), from_begin(block.token),
        from_begin(block.bonus),        from_begin(block.log_prob),
        from_begin(block.flags),        from_begin(block.flags + shape.batch)};
    CHECK(std::is_sorted(distances.begin(), distances.end()));
    CHECK(begin >= memory.data() + offset);
    CHECK(begin + distances.back() <= memory.data() + offset + bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(begin) % 16 == 0);
    if (first.empty()) first = distances;
    CHECK(distances == first);
  }
}

TEST_CASE("bind_accepted refuses what it cannot bind", "[accept][small]") {
  round_shape shape;
  shape.vocab = 10;
  std::vector<unsigned char> memory(ddtree::accepted_bytes(shape));
  ddtree::accepted block;
  auto const is = [](ddtree::status const& s, errc code, char const* message) {
    CHECK(s.code == code);
    CHECK(std::string(s.message) == message);
  };
  is(ddtree::bind_accepted(shape, {memory.data(), memory.size() - 1}, &block),
     errc::workspace_too_small, "bind_accepted: memory.bytes too small");
  is(ddtree::bind_accepted(shape, {nullptr, memory.size()}, &block), errc::workspace_too_small,
     "bind_accepted: memory.data is null");
  is(ddtree::bind_accepted(shape, {memory.data(), memory.size()}, nullptr), errc::invalid_argument,
     "bind_accepted: out is null");
  shape.depth = 32;
  CHECK(ddtree::accepted_bytes(shape) == 0);
  is(ddtree::bind_accepted(shape, {memory.data(), memory.size()}, &block), errc::invalid_argument,
     "bind_accepted: shape.depth outside [0, 31]");
}

// ---- arguments ----

namespace {

/// A sound call of accept_tokens and accept_greedy, to be spoilt one argument at a time.
struct sound_call {
  sound_call() {
    shape.vocab = 40;
    shape.depth = 2;
    shape.budget = 3;
    out = buffers.view();
    trees = tree_memory.view();
    batch.cache_len = length;
    logits.data = row;
  }

  void tokens(char const* message) {
    check(ddtree::accept_tokens(ctx, shape, batch, trees, said, out, options), "accept_tokens",
          message);
  }
  void greedy(char const* message) {
    check(ddtree::accept_greedy(ctx, shape, batch, trees, logits, out, {}, options),
          "accept_greedy", message);
  }
  void both(char const* message) {
    tokens(message);
    greedy(message);
  }
  void check(ddtree::status const& s, std::string const& call, std::string const& message) {
    CHECK(s.code == errc::invalid_argument);
    CHECK(std::string(s.message) == call + ": " + message);
    // Nothing was written.
    CHECK(buffers.num_accepted.values()[0] == poisoned<std::int32_t>());
  }

  context ctx = context::cpu();
  round_shape shape{1, 40, 2, 64, 3, 0};
  accepted_buffers buffers{ctx, shape};
  tree_batch tree_memory{ctx, shape, {tree{}}};
  std::int64_t length[1] = {0};
  std::int32_t said_tokens[4] = {};
  float row[4 * 40] = {};
  ddtree::accepted out;
  ddtree::draft_tree trees;
  batch_view batch;
  ddtree::ids_in said = said_tokens;
  ddtree::logits_view logits;
  accept_options options;
};

}  // namespace

TEST_CASE("accept_tokens and accept_greedy name the argument at fault", "[accept][small]") {
  sound_call call;
  auto const odd = ddtree::ids_in(call.length, dtype::f32);
  SECTION("context") { call.ctx.threads = 0, call.both("context.threads < 1"); }
  SECTION("shape") { call.shape.budget = 2048, call.both("shape.budget outside [0, 2047]"); }
  SECTION("request") {
    call.batch.request = odd, call.both("batch.request is neither i32 nor i64");
  }
  SECTION("cache_len") {
    call.batch.cache_len = odd, call.both("batch.cache_len is neither i32 nor i64");
  }
  SECTION("tree.token") { call.trees.token = nullptr, call.both("tree.token is null"); }
  SECTION("tree.parent") { call.trees.parent = nullptr, call.both("tree.parent is null"); }
  SECTION("tree.first_child") {
    call.trees.first_child = nullptr, call.both("tree.first_child is null");
  }
  SECTION("tree.next_sibling") {
    call.trees.next_sibling = nullptr, call.both("tree.next_sibling is null");
  }
  SECTION("tree.num_nodes") { call.trees.num_nodes = nullptr, call.both("tree.num_nodes is null"); }
  SECTION("tree.flags") { call.trees.flags = nullptr, call.both("tree.flags is null"); }
  SECTION("out") { call.out.bonus = nullptr, call.both("out has a null array"); }
  SECTION("target_token") { call.said = nullptr, call.tokens("target_token is null"); }
  SECTION("target_token type") {
    call.said = odd, call.tokens("target_token is neither i32 nor i64");
  }
  SECTION("log_prob of given tokens") {
    call.out.log_prob = call.row, call.tokens("out.log_prob is not null");
  }
  SECTION("bias of given tokens") {
    call.options.logit_bias = call.row, call.tokens("options.logit_bias is not null");
  }
  SECTION("bitmask of given tokens") {
    std::uint32_t const word = 0;
    call.options.token_bitmask.data = &word, call.tokens("options.token_bitmask is not null");
  }
  SECTION("stop tokens") {
    call.options.stop_tokens = odd, call.both("options.stop_tokens is neither i32 nor i64");
  }
  SECTION("stop tokens count") {
    call.options.stop_tokens_per_request = -1, call.both("options.stop_tokens_per_request < 0");
  }
  SECTION("remaining") {
    call.options.remaining = odd, call.both("options.remaining is neither i32 nor i64");
  }
  SECTION("mirror.token") {
    call.options.mirror.token = {call.row, dtype::f32};
    call.both("options.mirror.token is neither i32 nor i64");
  }
  SECTION("mirror.token.stride") {
    call.options.mirror.token = {call.row, dtype::i32, 2};
    call.both("options.mirror.token.stride shorter than a row");
  }
  SECTION("mirror.new_cache_len aliases") {
    call.options.mirror.new_cache_len = call.length;
    call.both("options.mirror.new_cache_len aliases batch.cache_len");
  }
  SECTION("mirror.new_cache_len without lengths") {
    std::int64_t other[1] = {0};
    call.options.mirror.new_cache_len = other;
    call.batch.cache_len = nullptr;
    call.both("batch.cache_len is null");
  }
  SECTION("target") { call.logits.data = nullptr, call.greedy("target.data is null"); }
  SECTION("target.type") {
    call.logits.type = dtype::i32, call.greedy("target.type is not f32, f16 or bf16");
  }
  SECTION("target.vocab") { call.logits.vocab = 39, call.greedy("target.vocab < shape.vocab"); }
  SECTION("target.vocab below 0") { call.logits.vocab = -1, call.greedy("target.vocab < 0"); }
  SECTION("target.row_stride") {
    call.logits.row_stride = 39, call.greedy("target.row_stride shorter than a row");
  }
  SECTION("target.batch_stride") {
    call.logits.batch_stride = -1, call.greedy("target.batch_stride < 0");
  }
  SECTION("target.row_offset") {
    call.logits.row_offset = odd, call.greedy("target.row_offset is neither i32 nor i64");
  }
  SECTION("logit_bias_stride") {
    call.options.logit_bias_stride = 39;
    call.greedy("options.logit_bias_stride shorter than a row");
  }
  SECTION("token_bitmask.row_stride") {
    call.options.token_bitmask.row_stride = 1;
    call.greedy("options.token_bitmask.row_stride shorter than a row");
  }
  SECTION("token_bitmask.batch_stride") {
    call.options.token_bitmask.batch_stride = -1;
    call.greedy("options.token_bitmask.batch_stride < 0");
  }
  SECTION("token_bitmask.row_offset") {
    call.options.token_bitmask.row_offset = odd;
    call.greedy("options.token_bitmask.row_offset is neither i32 nor i64");
  }
}

TEST_CASE("without a variant for the context accept gives a reason", "[accept][small]") {
  sound_call call;
  call.ctx = context::cpu().with_variant("accept=none");
  CHECK(ddtree::accept_tokens(call.ctx, call.shape, call.batch, call.trees, call.said, call.out)
            .code == errc::invalid_argument);
  CHECK(
      ddtree::accept_greedy(call.ctx, call.shape, call.batch, call.trees, call.logits, call.out, {})
          .code == errc::invalid_argument);
  CHECK(std::string(ddtree::selected(context::cpu(), operation::accept_tokens, call.shape)) ==
        "cpu");
  CHECK(std::string(ddtree::selected(context::cpu(), operation::accept_greedy, call.shape)) ==
        "cpu");
}
