// SPDX-License-Identifier: Apache-2.0
// A whole round on every rank of a tensor-parallel group: each has a part of the columns and KV
// cache rows of its own. The ranks share nothing but what they exchange.
#include "ddtree/ddtree.hpp"

#include "support/accept_cases.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/toy_engine.hpp"
#include "support/trees.hpp"

#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::index_t;
using ddtree::round_shape;
using ddtree::vocab_ranges;

constexpr round_shape shape{
    .batch = 4, .vocab = 23, .depth = 4, .top_k = 5, .budget = 9, .requests = 5};
std::vector<std::int32_t> const requests{3, -1, 0, 4};

enum class cut { even, with_empty_rank, scattered };

/// Columns are those of whole rows, so that a rank has its ids where they are in these.
std::vector<vocab_ranges> cut_vocabulary(cut how, index_t ranks) {
  std::vector<vocab_ranges> all(sized(ranks));
  index_t const pieces = how == cut::scattered ? 2 * ranks : ranks;
  for (index_t i = 0; i < pieces; ++i) {
    index_t const begin = shape.vocab * i / pieces, end = shape.vocab * (i + 1) / pieces;
    // The first and the last piece go to one rank, and so on; ids do not ascend by rank.
    index_t const to = how == cut::scattered && i >= ranks ? 2 * ranks - 1 - i : i;
    all[sized(to)].range[i >= ranks ? 0 : 1] = {begin, end - begin, begin};
  }
  if (how == cut::with_empty_rank && ranks > 1) {
    std::swap(all[0].range[0], all[sized(ranks - 1)].range[1]);
  }
  return all;
}

struct group_case {
  index_t ranks = 1;
  cut how = cut::even;
  bool sampled = false;
  bool ties = false;  // logits are integers
};

template <class T>
void expect_equal(buffer<T> const& a, buffer<T> const& b) {
  auto const x = a.values(), y = b.values();
  REQUIRE(x.size() == y.size());
  REQUIRE(std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

/// One rank: an engine with all the logits, of which it may read its own.
struct rank {
  rank(context const& where, group_case const& c, vocab_ranges const& columns)
      : ctx(where),
        mine(columns),
        engine(ctx, shape, requests),
        candidates(ctx, shape),
        tree(ctx, shape),
        accepted(ctx, shape),
        root(ctx, std::vector<ddtree::token_t>{2, -1, 5, 11}),
        sampling(ctx, {{0.0f, 0, 1, 0, false, 1},
                       {0.9f, 0, 1, 0, false, 2},
                       {0.9f, 4, 1, 0, false, 3},
                       {0.7f, 7, 0.8f, 0, false, 4},
                       {1.1f, 6, 1, 0.05f, false, 5}}) {
    if (c.sampled) how = sampling.view();
    how.max_top_k = 8;
    options.shard_log_prob = true;
    for (std::size_t r = 0; r < engine.sequence.size(); ++r) {
      engine.prefill(r, tokens(5 + r, static_cast<ddtree::token_t>(r)));
    }
  }

  /// What a rank does not have reads as what would win.
  std::vector<float> hidden(std::vector<float> logits) const {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      index_t const id = static_cast<index_t>(i) % shape.vocab;
      bool is_mine = false;
      for (auto const& r : mine.range) {
        is_mine = is_mine || (id >= r.global_begin && id < r.global_begin + r.count);
      }
      if (!is_mine) logits[i] = 1e30f;
    }
    return logits;
  }
  ddtree::logits_view shard(buffer<float>& logits) {
    logits.assign(hidden(logits.values()));
    ddtree::logits_view view{logits.data(), ddtree::dtype::f32};
    view.vocab = shape.vocab;
    return view;
  }

  buffer<unsigned char> propose() {
    buffer<unsigned char> sent(ctx, ddtree::expand_shard_bytes(shape));
    buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, shape));
    REQUIRE(ddtree::expand_shard(ctx, shape, engine.batch(), shard(engine.draft_logits), mine,
                                 {sent.data(), sent.bytes()}, scratch.as_workspace()));
    return sent;
  }

  void build(std::vector<unsigned char> const& gathered, index_t ranks) {
    buffer<unsigned char> all(ctx, gathered);
    buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, shape, ranks));
    REQUIRE(ddtree::expand_merge(ctx, shape, engine.batch(), {all.data(), ranks}, candidates.view(),
                                 scratch.as_workspace()));
    scratch = {ctx, ddtree::build_tree_workspace_bytes(ctx, shape)};
    REQUIRE(ddtree::build_tree(ctx, shape, engine.batch(), candidates.view(), root.data(),
                               tree.view(), scratch.as_workspace()));
    REQUIRE(ddtree::write_mask(ctx, shape, engine.batch(), tree.view(), engine.mask_view()));
    ddtree::verify_options verify;
    verify.table = engine.kv_table();
    REQUIRE(ddtree::write_verify_inputs(ctx, shape, engine.batch(), tree.view(), engine.inputs(),
                                        verify));
    engine.forward();
  }

  buffer<unsigned char> verify() {
    buffer<unsigned char> sent(ctx, ddtree::accept_shard_bytes(shape, how, options));
    buffer<unsigned char> scratch(ctx, ddtree::accept_shard_workspace_bytes(ctx, shape));
    REQUIRE(ddtree::accept_shard(ctx, shape, engine.batch(), tree.view(),
                                 shard(engine.target_logits), mine, how,
                                 {sent.data(), sent.bytes()}, scratch.as_workspace(), options));
    return sent;
  }

  void accept(std::vector<unsigned char> const& gathered, index_t ranks) {
    buffer<unsigned char> all(ctx, gathered);
    buffer<unsigned char> scratch(ctx, ddtree::accept_merge_workspace_bytes(ctx, shape, ranks));
    REQUIRE(ddtree::accept_merge(ctx, shape, engine.batch(), tree.view(), {all.data(), ranks}, how,
                                 accepted.view(true), scratch.as_workspace(), options));
  }

  void commit() {
    REQUIRE(ddtree::compact_kv(ctx, shape, engine.batch(), accepted.view(true), engine.kv()));
    REQUIRE(
        ddtree::advance(ctx, shape, engine.batch(), accepted.view(true), engine.lengths.data()));
    auto const path = accepted.token.values();
    auto const roots = root.values();
    auto const num_accepted = accepted.num_accepted.values();
    for (std::size_t b = 0; b < requests.size(); ++b) {
      if (requests[b] < 0) continue;
      auto const first = path.begin() + static_cast<index_t>(b) * (shape.depth + 1);
      tokens committed{roots[b]};
      committed.insert(committed.end(), first, first + num_accepted[b]);
      engine.append(sized(requests[b]), committed);
    }
    root.assign(accepted.bonus.values());
  }

  void expect_same_as(rank const& other) const {
    expect_equal(candidates.token, other.candidates.token);
    expect_equal(candidates.log_prob, other.candidates.log_prob);
    expect_equal(candidates.flags, other.candidates.flags);
    expect_equal(tree.token, other.tree.token);
    expect_equal(tree.parent, other.tree.parent);
    expect_equal(tree.depth, other.tree.depth);
    expect_equal(tree.rank, other.tree.rank);
    expect_equal(tree.log_weight, other.tree.log_weight);
    expect_equal(tree.first_child, other.tree.first_child);
    expect_equal(tree.next_sibling, other.tree.next_sibling);
    expect_equal(tree.ancestors, other.tree.ancestors);
    expect_equal(tree.num_nodes, other.tree.num_nodes);
    expect_equal(tree.flags, other.tree.flags);
    expect_equal(accepted.path, other.accepted.path);
    expect_equal(accepted.num_accepted, other.accepted.num_accepted);
    expect_equal(accepted.token, other.accepted.token);
    expect_equal(accepted.bonus, other.accepted.bonus);
    expect_equal(accepted.log_prob, other.accepted.log_prob);
    expect_equal(accepted.flags, other.accepted.flags);
    expect_equal(engine.cache, other.engine.cache);
    expect_equal(engine.lengths, other.engine.lengths);
  }
  bool intact() const {
    return engine.intact() && candidates.intact() && tree.intact() && accepted.intact();
  }

  context ctx;
  vocab_ranges mine;
  toy_engine engine;
  candidate_buffers candidates;
  tree_buffers tree;
  accepted_buffers accepted;
  buffer<ddtree::token_t> root;
  sampling_buffers sampling;
  ddtree::sampling how;
  ddtree::accept_options options;
};

/// What an all-gather leaves with every rank.
template <class Send>
std::vector<unsigned char> gather(std::deque<rank>& ranks, Send send) {
  std::vector<unsigned char> all;
  for (rank& r : ranks) {
    auto const sent = send(r);
    REQUIRE(sent.intact());
    auto const values = sent.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void round_off(buffer<float>& logits) {
  auto values = logits.values();
  for (float& x : values) x = std::floor(x);
  logits.assign(values);
}

/// The ids of expand over whole rows.
void expect_whole_candidates(rank& r, buffer<float>& logits) {
  candidate_buffers whole(r.ctx, shape);
  buffer<unsigned char> scratch(r.ctx, ddtree::expand_workspace_bytes(r.ctx, shape));
  REQUIRE(ddtree::expand(r.ctx, shape, r.engine.batch(), {logits.data(), ddtree::dtype::f32},
                         whole.view(), scratch.as_workspace()));
  expect_equal(r.candidates.token, whole.token);
}

/// The walk of accept_sampled over whole rows, down the same tree.
void expect_whole_walk(rank& r, buffer<float>& logits) {
  accepted_buffers whole(r.ctx, shape);
  buffer<unsigned char> scratch(r.ctx, ddtree::accept_sampled_workspace_bytes(r.ctx, shape));
  REQUIRE(ddtree::accept_sampled(r.ctx, shape, r.engine.batch(), r.tree.view(),
                                 {logits.data(), ddtree::dtype::f32}, r.how, whole.view(),
                                 scratch.as_workspace()));
  expect_equal(r.accepted.path, whole.path);
  expect_equal(r.accepted.token, whole.token);
  expect_equal(r.accepted.bonus, whole.bonus);
  expect_equal(r.accepted.num_accepted, whole.num_accepted);
  expect_equal(r.accepted.flags, whole.flags);
}

/// Returns how many drafted tokens the rounds accepted.
int play(group_case const& c, int rounds) {
  // On the CPU the ranks have different numbers of threads.
  auto const contexts = round_contexts();
  auto const columns = cut_vocabulary(c.how, c.ranks);
  std::deque<rank> ranks;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    ranks.emplace_back(contexts[i % contexts.size()], c, columns[i]);
  }
  rank& first = ranks.front();
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    for (rank& r : ranks) {
      r.engine.draft(r.root.values());
      if (c.ties) round_off(r.engine.draft_logits);
    }
    buffer<float> const draft = first.engine.draft_logits;
    auto const drafts = gather(ranks, [](rank& r) { return r.propose(); });
    for (rank& r : ranks) {
      r.build(drafts, c.ranks);
      if (c.ties) round_off(r.engine.target_logits);
    }
    buffer<float> const target = first.engine.target_logits;
    auto const targets = gather(ranks, [](rank& r) { return r.verify(); });
    for (rank& r : ranks) r.accept(targets, c.ranks);

    buffer<float> whole = draft;
    expect_whole_candidates(first, whole);
    whole = target;
    expect_whole_walk(first, whole);
    for (rank& r : ranks) {
      r.commit();
      REQUIRE(r.intact());
      r.expect_same_as(first);
    }
    auto const num_accepted = first.accepted.num_accepted.values();
    CHECK(num_accepted[1] == -1);
    for (std::size_t const b : {0u, 2u, 3u}) accepted += num_accepted[b];
  }
  return accepted;
}

}  // namespace

TEST_CASE("a round over shards is the same on every rank, and that of whole rows",
          "[shards][round]") {
  group_case c;
  c.ranks = GENERATE(1, 2, 3, 4, 8);
  c.how = GENERATE(cut::even, cut::with_empty_rank, cut::scattered);
  c.sampled = GENERATE(false, true);
  c.ties = GENERATE(false, true);
  CAPTURE(c.ranks, static_cast<int>(c.how), c.sampled, c.ties);
  int const accepted = play(c, 4);
  if (!c.sampled && !c.ties) CHECK(accepted > 10);  // the drafter guesses well
}

TEST_CASE("a round over three shards, one of them empty", "[shards][round][small]") {
  bool const sampled = GENERATE(false, true);
  play({3, cut::with_empty_rank, sampled, true}, 2);
}
