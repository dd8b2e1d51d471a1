// SPDX-License-Identifier: Apache-2.0
// Acceptance with tokens drawn from the target's distribution.
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
using ddtree::filter_order;
using ddtree::index_t;
using ddtree::operation;
using ddtree::round_shape;
using ddtree::sampling;
using oracle::accept::drawing;
using oracle::accept::parameters;
using oracle::accept::row;
using oracle::accept::target;
using oracle::accept::tree;
namespace flag = ddtree::flag;

/// Runs accept_sampled and reads the results.
struct sampled_run {
  sampled_run(context const& ctx, round_shape const& shape, batch_view const& batch,
              ddtree::draft_tree const& trees, ddtree::logits_view const& target,
              sampling const& how, accept_options const& options = {}, bool with_log_prob = false)
      : out(ctx, shape) {
    buffer<unsigned char> scratch(ctx, ddtree::accept_sampled_workspace_bytes(ctx, shape));
    auto const s = ddtree::accept_sampled(ctx, shape, batch, trees, target, how,
                                          out.view(with_log_prob), scratch.as_workspace(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    REQUIRE(out.intact());
    REQUIRE(scratch.intact());
    results = read_accepted(out, shape, with_log_prob);
  }

  accepted_buffers out;
  std::vector<accepted_request> results;
};

/// Draws one token from the same row for each of `count` requests, whose root stands at positions
/// first, first + 1, ...: `count` independent draws of plain decoding.
std::vector<int> draw_many(context const& ctx, std::vector<float> const& x, parameters const& p,
                           int count, std::int64_t first = 0, accept_options const& options = {}) {
  round_shape shape;
  shape.batch = count;
  shape.vocab = static_cast<index_t>(x.size());
  shape.depth = 0;
  shape.budget = 0;
  tree_batch trees(ctx, shape, std::vector<tree>(sized(count)));
  logits_buffer logits(ctx, x, dtype::f32);
  buffer<std::int64_t> first_row(ctx, std::vector<std::int64_t>(sized(count), 0)),
      length(ctx, sized(count));
  std::vector<std::int64_t> lengths(sized(count));
  std::iota(lengths.begin(), lengths.end(), first);
  length.assign(lengths);
  auto view = logits.view();
  view.row_offset = first_row.data();
  auto const order = p.min_p_first ? filter_order::min_k_p : filter_order::k_p_min;
  sampling_buffers how(ctx, std::vector<parameters>(sized(count), p), order);
  batch_view batch;
  batch.cache_len = length.data();
  accept_options mine = options;
  if (mine.token_bitmask.data != nullptr) mine.token_bitmask.row_offset = first_row.data();
  std::vector<int> drawn;
  for (auto const& r :
       sampled_run(ctx, shape, batch, trees.view(), view, how.view(), mine).results) {
    drawn.push_back(r.bonus);
  }
  return drawn;
}

std::set<int> set_of(std::vector<int> const& v) { return {v.begin(), v.end()}; }

parameters at_temperature(float temperature, std::uint64_t seed = 1) {
  parameters p;
  p.temperature = temperature;
  p.seed = seed;
  return p;
}

/// The noise of the definition, so that tests can tell which token must win.
long double noise(parameters const& p, long long position, int token) {
  return oracle::accept::gumbel(p.seed, position, token);
}

}  // namespace

TEST_CASE("the oracle's generator gives the known answers of Philox4x32-10", "[accept][small]") {
  CHECK(oracle::accept::philox({0, 0, 0, 0}, 0) ==
        std::vector<std::uint32_t>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
}

namespace {

/// Draws that the oracle followed, and those of them that rounding may decide otherwise.
struct draw_count {
  int all = 0;
  int close = 0;
};

/// What a random batch of requests gives accept_sampled to read, in the oracle's terms.
struct random_batch {
  random_batch(random_engine& random, int vocab, dtype type, filter_order filters)
      : order(filters) {
    shape.batch = uniform(random, 1, 5);
    shape.requests = shape.batch + 2;
    shape.vocab = vocab;
    shape.depth = 5;
    shape.budget = 9;
    words = (vocab + 31) / 32 + 1;
    bias_stride = vocab + 3;
    with_bias = uniform(random, 0, 2) == 0;
    with_mask = uniform(random, 0, 2) == 0;
    with_limits = uniform(random, 0, 2) == 0;
    processed = uniform(random, 0, 1) == 1;
    for (int r = 0; r < shape.requests; ++r) add_request(random, vocab);
    for (int b = 0; b < shape.batch; ++b) {
      request.push_back(uniform(random, 0, 9) == 0 ? -1 : b + 1);
      trees.push_back(random_tree(random, uniform(random, 1, 10), 5, vocab, true));
      rows.emplace_back();
      for (int i = 0; i < shape.width(); ++i) rows.back().push_back(random_row(random, i, type));
    }
  }

  void add_request(random_engine& random, int vocab) {
    by_request.push_back(random_parameters(random, vocab));
    by_request.back().min_p_first = order == filter_order::min_k_p;
    bool const is_far = uniform(random, 0, 3) == 0;
    length.push_back(is_far ? std::int64_t{1} << 35 : uniform(random, 0, 5000));
    remaining.push_back(uniform(random, 0, 2) == 0 ? uniform(random, 0, 3) : 50);
    stop.push_back(uniform(random, -1, vocab - 1));
    auto const x = random_logits(random, static_cast<int>(bias_stride), 1.0f);
    bias.insert(bias.end(), x.begin(), x.end());
  }

  /// Row i of the last request; NaN where the tree has no such node.
  row random_row(random_engine& random, int i, dtype type) {
    tree const& t = trees.back();
    bool const used = i < t.size();
    row r;
    r.logits.assign(sized(shape.vocab), not_a_number);
    if (used) r.logits = random_logits(random, static_cast<int>(shape.vocab));
    for (int const c : used ? t.children(i) : std::vector<int>{}) {
      r.logits[sized(t.token[sized(c)])] += 4.0f;
    }
    auto const any = [&]() -> float& { return r.logits[random() % r.logits.size()]; };
    if (uniform(random, 0, 9) == 0) any() = not_a_number;
    if (uniform(random, 0, 9) == 0) any() = -infinity;
    if (uniform(random, 0, 40) == 0) std::fill(r.logits.begin(), r.logits.end(), -infinity);
    for (float& x : r.logits) x = logits_buffer::rounded(x, type);
    flat.insert(flat.end(), r.logits.begin(), r.logits.end());

    std::size_t const first_word = mask.size();
    for (index_t w = 0; w < words; ++w) {
      mask.push_back(static_cast<std::uint32_t>(random() | random()));
    }
    for (std::size_t v = 0; with_mask && v < r.logits.size(); ++v) {
      r.allowed.push_back((mask[first_word + v / 32] >> (v % 32) & 1u) != 0);
    }
    if (with_bias && request.back() >= 0) {
      auto const from = bias.begin() + request.back() * bias_stride;
      r.bias.assign(from, from + shape.vocab);
    }
    return r;
  }

  filter_order order;
  round_shape shape;
  index_t words = 0, bias_stride = 0;
  bool with_bias = false, with_mask = false, with_limits = false, processed = false;
  std::vector<parameters> by_request;
  std::vector<std::int64_t> length, remaining, stop, request;
  std::vector<float> bias, flat;
  std::vector<std::uint32_t> mask;
  std::vector<tree> trees;
  std::vector<std::vector<row>> rows;
};

std::vector<accepted_request> run_batch(context const& ctx, random_batch const& in, dtype type) {
  tree_batch trees(ctx, in.shape, in.trees);
  logits_buffer logits(ctx, in.flat, type);
  optional_ids requests(ctx, dtype::i64, in.request), lengths(ctx, dtype::i64, in.length),
      remainings(ctx, dtype::i32, in.remaining), stops(ctx, dtype::i32, in.stop);
  buffer<float> biases(ctx, in.bias);
  buffer<std::uint32_t> masks(ctx, in.mask);
  accept_options options;
  if (in.with_bias) options.logit_bias = biases.data();
  options.logit_bias_stride = in.bias_stride;
  if (in.with_mask) options.token_bitmask.data = masks.data();
  options.token_bitmask.row_stride = in.words;
  if (in.with_limits) options.remaining = remainings.view();
  if (in.with_limits) options.stop_tokens = stops.view();
  options.stop_tokens_per_request = 1;
  options.processed_log_prob = in.processed;
  sampling_buffers how(ctx, in.by_request, in.order);
  return sampled_run(ctx, in.shape, {lengths.view(), requests.view()}, trees.view(), logits.view(),
                     how.view(), options, true)
      .results;
}

/// The oracle's walk over request b. Where rounding may decide otherwise it takes what was drawn.
accepted_request expected_of(random_batch const& in, std::size_t b, std::vector<int> const& drawn,
                             draw_count& count) {
  auto const r = sized(in.request[b]);
  oracle::accept::limits limit;
  if (in.with_limits) limit.remaining = in.remaining[r];
  if (in.with_limits && in.stop[r] >= 0) limit.stop.insert(static_cast<int>(in.stop[r]));
  std::uint32_t flags = 0;
  auto const walked = oracle::accept::walk(in.trees[b], limit, [&](int node, int depth) {
    row const& at = in.rows[b][sized(node)];
    flags |= oracle::accept::has_nan(at) ? flag::target_nan : 0;
    if (oracle::accept::is_dead(at)) return target{0, false};
    if (!(in.by_request[r].temperature > 0)) return target{oracle::accept::argmax(at), true};
    drawing const d(at, in.by_request[r]);
    auto const tokens = d.draw(in.length[r] + depth + 1);
    ++count.all;
    if (tokens.size() == 1 && !d.kept().is_close) return target{*tokens.begin(), true};
    ++count.close;
    int const token = drawn[sized(depth)];
    if (!d.kept().is_close) CHECK(tokens.count(token) == 1);
    return target{token, true};
  });
  return expected_request(walked, 5, flags);
}

void check_log_probs(random_batch const& in, std::size_t b, accepted_request const& got) {
  for (std::size_t i = 0; i < got.log_prob.size(); ++i) {
    CAPTURE(i, got.log_prob[i]);
    if (i > sized(got.num_accepted)) {
      REQUIRE(got.log_prob[i] == 0);
      continue;
    }
    auto const exact = static_cast<double>(
        oracle::accept::log_prob(in.rows[b][sized(got.path[i])], got.token[i], in.processed,
                                 in.by_request[sized(in.request[b])].temperature));
    CAPTURE(exact);
    if (std::isinf(exact)) {
      REQUIRE(got.log_prob[i] == -infinity);
    } else {
      REQUIRE(std::fabs(static_cast<double>(got.log_prob[i]) - exact) < 1e-5);
    }
  }
}

}  // namespace

TEST_CASE("accept_sampled equals the oracle", "[accept]") {
  random_engine random(1);
  draw_count count;
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    for (auto const order : {filter_order::k_p_min, filter_order::min_k_p}) {
      for (auto const type : {dtype::f32, dtype::f16, dtype::bf16}) {
        for (int const vocab : {1, 5, 61, 130, 1500}) {
          for (int round = 0; round < (vocab > 1000 ? 4 : 60); ++round) {
            CAPTURE(name, vocab, round);
            random_batch const in(random, vocab, type, order);
            auto const results = run_batch(ctx, in, type);
            for (std::size_t b = 0; b < results.size(); ++b) {
              CAPTURE(b);
              auto got = results[b];
              if (in.request[b] < 0 ||
                  (in.with_limits && in.remaining[sized(in.request[b])] <= 0)) {
                REQUIRE(got == inactive_request(5, true));
                continue;
              }
              check_log_probs(in, b, got);
              got.log_prob.clear();
              REQUIRE(got == expected_of(in, b, got.token, count));
            }
          }
        }
      }
    }
  }
  CAPTURE(count.all, count.close);
  CHECK(count.all > 4000);
  CHECK(count.close * 1000 < count.all);
}

TEST_CASE("draws follow the filtered softmax", "[accept]") {
  struct named {
    char const* name;
    parameters p;
  };
  std::vector<named> cases{{"temperature 1", at_temperature(1)},
                           {"temperature 0.5", at_temperature(0.5f)},
                           {"temperature 3", at_temperature(3, 99)}};
  auto const add = [&](char const* name, float temperature, long long top_k, float top_p,
                       float min_p, bool min_p_first) {
    cases.push_back({name, {temperature, top_k, top_p, min_p, min_p_first, 5}});
  };
  add("top_k", 1, 4, 1, 0, false);
  add("top_p", 1, 0, 0.8f, 0, false);
  add("min_p", 1, 0, 1, 0.1f, false);
  add("k_p_min", 1.5f, 6, 0.9f, 0.2f, false);
  add("min_k_p", 1.5f, 6, 0.9f, 0.2f, true);
  std::vector<float> const x{0.5f, 2, -1, 1, 1, 0, -3, 2.5f, 0.25f, -0.5f, 1.75f};
  int const count = 20000;
  for (auto const& [context_name, ctx] : contexts_for(operation::accept_sampled)) {
    for (auto const& [name, p] : cases) {
      CAPTURE(context_name, name);
      drawing const d({x, {}, {}}, p);
      REQUIRE_FALSE(d.kept().is_close);
      std::vector<int> seen(x.size());
      for (int const token : draw_many(ctx, x, p, count)) ++seen[sized(token)];
      double chi_square = 0;
      int total = 0;
      for (int const token : d.kept().token) {
        double const expected = count * static_cast<double>(d.probability(token));
        double const off = seen[sized(token)] - expected;
        chi_square += off * off / expected;
        total += seen[sized(token)];
      }
      CHECK(total == count);
      // The 0.1 % quantile of at most 10 degrees of freedom; the draws are fixed.
      double const quantile[] = {0, 10.8, 13.8, 16.3, 18.5, 20.5, 22.5, 24.3, 26.1, 27.9, 29.6};
      CHECK(chi_square < quantile[d.kept().token.size() - 1]);
    }
  }
}

namespace {

/// Logits of the token after a prefix: a function of the prefix alone.
std::vector<float> logits_after(std::vector<int> const& prefix, int vocab) {
  std::uint32_t hash = 17;
  for (int const token : prefix)
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x01000193u + 7;
  random_engine random(hash);
  return random_logits(random, vocab);
}

/// Likely continuations of a prefix, so that walks get far.
tree likely_tree(std::vector<int> const& prefix, int nodes, int depth, int vocab,
                 random_engine& random) {
  tree t;
  t.token[0] = prefix.back();
  std::vector<std::vector<int>> prefixes{prefix};
  for (int tries = 0; t.size() < nodes && tries < 10 * nodes; ++tries) {
    int const from = uniform(random, 0, t.size() - 1);
    if (t.depth_of(from) == depth) continue;
    auto const x = logits_after(prefixes[sized(from)], vocab);
    std::vector<int> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return x[sized(a)] > x[sized(b)]; });
    int const token = order[sized(uniform(random, 0, 3))];
    if (t.child(from, token)) continue;
    t.add(from, token);
    prefixes.push_back(prefixes[sized(from)]);
    prefixes.back().push_back(token);
  }
  return t;
}

/// The tree's first child at every node: the chain of its best tokens.
tree chain_of(tree const& t) {
  tree chain;
  chain.token[0] = t.token[0];
  int node = 0;
  while (!t.children(node).empty()) {
    node = t.children(node)[0];
    chain.add(chain.size() - 1, t.token[sized(node)]);
  }
  return chain;
}

/// One round of a request whose tokens so far are `prefix`; the root is the last of them.
accepted_request decode(context const& ctx, std::vector<int> const& prefix, tree const& t,
                        int vocab, parameters const& p) {
  round_shape shape;
  shape.vocab = vocab;
  shape.depth = 6;
  shape.budget = t.size() - 1;
  std::vector<std::vector<int>> prefixes{prefix};
  std::vector<float> flat;
  for (int i = 0; i < t.size(); ++i) {
    if (i > 0) {
      prefixes.push_back(prefixes[sized(t.parent[sized(i)])]);
      prefixes.back().push_back(t.token[sized(i)]);
    }
    auto const x = logits_after(prefixes[sized(i)], vocab);
    flat.insert(flat.end(), x.begin(), x.end());
  }
  tree_batch trees(ctx, shape, {t});
  logits_buffer logits(ctx, flat, dtype::f32);
  buffer<std::int64_t> length(
      ctx, std::vector<std::int64_t>{static_cast<std::int64_t>(prefix.size()) - 1});
  sampling_buffers how(ctx, {p}, p.min_p_first ? filter_order::min_k_p : filter_order::k_p_min);
  batch_view batch;
  batch.cache_len = length.data();
  return sampled_run(ctx, shape, batch, trees.view(), logits.view(), how.view()).results[0];
}

}  // namespace

TEST_CASE("a tree accepts what plain decoding draws with the same seed", "[accept]") {
  int const vocab = 50;
  random_engine random(21);
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    int accepted = 0;
    for (int sequence = 0; sequence < 30; ++sequence) {
      CAPTURE(sequence);
      parameters p = random_parameters(random, vocab);
      p.min_p_first = uniform(random, 0, 1) == 1;
      std::vector<int> with_trees{7, sequence};
      std::vector<int> plain = with_trees;
      while (with_trees.size() < 40) {
        tree const t = likely_tree(with_trees, 24, 6, vocab, random);
        auto const got = decode(ctx, with_trees, t, vocab, p);
        auto const chain = decode(ctx, with_trees, chain_of(t), vocab, p);
        CHECK(got.num_accepted >= chain.num_accepted);
        REQUIRE(got.num_accepted >= 0);
        accepted += got.num_accepted;
        for (int i = 0; i <= got.num_accepted; ++i) with_trees.push_back(got.token[sized(i)]);
      }
      while (plain.size() < with_trees.size()) {
        tree root;
        root.token[0] = plain.back();
        plain.push_back(decode(ctx, plain, root, vocab, p).bonus);
      }
      CHECK(plain == with_trees);
    }
    CHECK(accepted > 300);  // otherwise this would show nothing
  }
}

TEST_CASE("a temperature of 0 or below is greedy, one that is not finite counts as 1", "[accept]") {
  random_engine random(2);
  auto const x = random_logits(random, 30, 1.0f);
  int const best = oracle::accept::argmax({x, {}, {}});
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    for (float const t : {0.0f, -0.0f, -1.0f, -infinity}) {
      parameters p = at_temperature(t);
      p.top_k = 3;
      p.top_p = 0.0f;
      p.min_p = 2.0f;
      CHECK(set_of(draw_many(ctx, x, p, 50)) == std::set<int>{best});
    }
    auto const one = draw_many(ctx, x, at_temperature(1), 200);
    CHECK(set_of(one).size() > 10);
    CHECK(draw_many(ctx, x, at_temperature(infinity), 200) == one);
    CHECK(draw_many(ctx, x, at_temperature(not_a_number), 200) == one);
    CHECK(draw_many(ctx, x, at_temperature(1, 2), 200) != one);
    // Almost 0: what 1 / temperature overflows to keeps the order.
    CHECK(set_of(draw_many(ctx, x, at_temperature(1e-45f), 50)) == std::set<int>{best});
  }
}

TEST_CASE("without temperatures accept_sampled is accept_greedy", "[accept][small]") {
  random_engine random(3);
  auto const x = random_logits(random, 30);
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    round_shape shape;
    shape.vocab = 30;
    shape.depth = 0;
    shape.budget = 0;
    tree_batch trees(ctx, shape, {tree{}});
    logits_buffer logits(ctx, x, dtype::f32);
    sampling how;
    how.order = static_cast<filter_order>(9);  // not used
    how.top_k = {&shape, dtype::f32};
    auto const got = sampled_run(ctx, shape, {}, trees.view(), logits.view(), how).results[0];
    CHECK(got.bonus == oracle::accept::argmax({x, {}, {}}));
  }
}

TEST_CASE("filters that are off do nothing", "[accept]") {
  random_engine random(4);
  auto const x = random_logits(random, 30, 1.0f);
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    parameters const off = at_temperature(0.9f);
    auto const all = draw_many(ctx, x, off, 300);
    auto const same = [&](auto change) {
      parameters p = off;
      change(p);
      return draw_many(ctx, x, p, 300) == all;
    };
    for (long long const k : {0ll, -5ll, 30ll, 31ll, 1ll << 40, -(1ll << 40)}) {
      CHECK(same([&](parameters& p) { p.top_k = k; }));
    }
    for (float const top_p : {1.0f, 1.5f, infinity, not_a_number}) {
      CHECK(same([&](parameters& p) { p.top_p = top_p; }));
    }
    for (float const min_p : {0.0f, -0.0f, -0.5f, -infinity, not_a_number}) {
      CHECK(same([&](parameters& p) { p.min_p = min_p; }));
    }
    // Filters that keep everything.
    CHECK(same([&](parameters& p) { p.min_p = 1e-30f; }));
  }
}

TEST_CASE("top_k keeps exactly k, the lowest ids of equal logits", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    parameters p = at_temperature(5);
    std::vector<float> const x{1, 3, 2, 3, 2, 0, 2};
    std::vector<std::set<int>> const best{{1}, {1, 3}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 6}};
    for (std::size_t k = 1; k <= best.size(); ++k) {
      p.top_k = static_cast<long long>(k);
      CHECK(set_of(draw_many(ctx, x, p, 400)) == best[k - 1]);
    }
    p.top_k = 1024;
    std::vector<float> const equal(1500, -7.0f);
    auto const drawn = draw_many(ctx, equal, p, 3000);
    CHECK(*std::max_element(drawn.begin(), drawn.end()) < 1024);
    CHECK(set_of(drawn).size() > 900);
    p.top_k = 1499;
    CHECK(set_of(draw_many(ctx, equal, p, 3000)).count(1499) == 0);
    // -0 equals +0.
    p.top_k = 2;
    CHECK(set_of(draw_many(ctx, {-1, -0.0f, 0.0f, 0.0f}, p, 100)) == std::set<int>{1, 2});
  }
}

TEST_CASE("top_p keeps whole values, and the maximum always", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    // Shares: 0.4 at logit 1, four times 0.1 at their value, four times 0.05.
    float const low = std::log(0.1f / 0.4f), lowest = std::log(0.05f / 0.4f);
    std::vector<float> const x{lowest, low, 0, low, lowest, low, lowest, low, lowest};
    std::set<int> const first{2}, second{1, 2, 3, 5, 7}, all{0, 1, 2, 3, 4, 5, 6, 7, 8};
    auto const kept = [&](float top_p) {
      parameters p = at_temperature(1);
      p.top_p = top_p;
      return set_of(draw_many(ctx, x, p, 600));
    };
    for (float const top_p : {-1.0f, -infinity, 0.0f, 1e-30f, 0.2f, 0.39f})
      CHECK(kept(top_p) == first);
    for (float const top_p : {0.41f, 0.5f, 0.75f, 0.79f}) CHECK(kept(top_p) == second);
    for (float const top_p : {0.81f, 0.95f, 0.99999994f}) CHECK(kept(top_p) == all);
    // Any share of a run that is everything is everything.
    parameters p = at_temperature(1);
    p.top_p = 0.01f;
    CHECK(set_of(draw_many(ctx, std::vector<float>(5, 3.0f), p, 200)).size() == 5);
  }
}

TEST_CASE("the sum of top_p is exact at its target", "[accept]") {
  // Weights of equal values are exact: half of the total is reached by two of four maxima, and as
  // they are one value, all four stay. With top_k the total is that of its survivors.
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    std::vector<float> x(40, -200.0f);  // too small to weigh anything
    x[9] = x[19] = x[29] = x[39] = 1;
    parameters p = at_temperature(1);
    p.top_p = 0.5f;
    CHECK(set_of(draw_many(ctx, x, p, 200)) == std::set<int>{9, 19, 29, 39});
    p.top_k = 2;
    CHECK(set_of(draw_many(ctx, x, p, 200)) == std::set<int>{9, 19});
    p.top_k = 7;
    p.top_p = 0.99999994f;
    CHECK(set_of(draw_many(ctx, x, p, 200)) == std::set<int>{9, 19, 29, 39});
  }
}

TEST_CASE("a share that is met exactly is met", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    // ln 2 apart: the weights are exactly 1, 1/2, 1/4, 1/4 of 2^40.
    float const ln2 = 0x1.62e43p-1f;
    std::vector<float> const x{-2 * ln2, 0, -ln2, -2 * ln2};
    auto const kept = [&](float top_p, float min_p) {
      parameters p = at_temperature(1);
      p.top_p = top_p;
      p.min_p = min_p;
      return set_of(draw_many(ctx, x, p, 300));
    };
    CHECK(kept(0.5f, 0) == std::set<int>{1});
    CHECK(kept(0x1.000002p-1f, 0) == std::set<int>{1, 2});
    CHECK(kept(0.75f, 0) == std::set<int>{1, 2});
    CHECK(kept(0x1.800002p-1f, 0) == std::set<int>{0, 1, 2, 3});
    CHECK(kept(1, 0.5f) == std::set<int>{1, 2});
    CHECK(kept(1, 0x1.000002p-1f) == std::set<int>{1});
    CHECK(kept(1, 0.25f) == std::set<int>{0, 1, 2, 3});
    CHECK(kept(1, 0x1.000002p-2f) == std::set<int>{1, 2});
  }
}

TEST_CASE("min_p keeps tokens by their share of the maximum", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    std::vector<float> const x{0, std::log(0.5f), std::log(0.25f), std::log(0.125f), 0, -200};
    auto const kept = [&](float min_p) {
      parameters p = at_temperature(1);
      p.min_p = min_p;
      return set_of(draw_many(ctx, x, p, 600));
    };
    CHECK(kept(0.1f) == std::set<int>{0, 1, 2, 3, 4});
    CHECK(kept(0.2f) == std::set<int>{0, 1, 2, 4});
    CHECK(kept(0.4f) == std::set<int>{0, 1, 4});
    for (float const min_p : {0.6f, 1.0f, 1.5f, infinity})
      CHECK(kept(min_p) == std::set<int>{0, 4});
  }
}

TEST_CASE("the order of filters matters where it should", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    // Shares 0.5, 0.2, 0.15, 0.1, 0.05. min_p 0.25 keeps three: 0.85. Of these 0.85 * 0.85 = 0.72
    // takes three, whereas 0.85 of everything is reached by four, of which min_p then leaves three.
    std::vector<float> const x{std::log(0.5f), std::log(0.2f), std::log(0.15f), std::log(0.1f),
                               std::log(0.05f)};
    auto const kept = [&](long long top_k, float top_p, float min_p, bool min_p_first) {
      parameters p{1, top_k, top_p, min_p, min_p_first, 3};
      return set_of(draw_many(ctx, x, p, 600));
    };
    // 0.75 of 1 needs three, 0.75 of 0.85 = 0.64 only two.
    CHECK(kept(0, 0.75f, 0.25f, false) == std::set<int>{0, 1, 2});
    CHECK(kept(0, 0.75f, 0.25f, true) == std::set<int>{0, 1});
    // With top_k 2 before top_p: 0.7 of 0.7 is reached by the first.
    CHECK(kept(2, 0.7f, 0.0f, false) == std::set<int>{0});
    CHECK(kept(2, 0.75f, 0.0f, true) == std::set<int>{0, 1});
  }
}

TEST_CASE("large finite logits at a small temperature stay finite", "[accept]") {
  float const most = std::numeric_limits<float>::max();
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    parameters p = at_temperature(0.01f);
    CHECK(set_of(draw_many(ctx, {1e38f, -1e38f, 2e38f}, p, 50)).size() == 1);
    // All of these are held to the largest float, where noise is lost: the lowest id.
    CHECK(set_of(draw_many(ctx, {-most, 1e37f, 2e37f, most}, p, 50)) == std::set<int>{1});
    CHECK(set_of(draw_many(ctx, {-most, -infinity, -most}, p, 50)) == std::set<int>{0});
    p.top_p = 0.5f;
    CHECK(set_of(draw_many(ctx, {-most, 1e37f, 2e37f, most}, p, 50)) == std::set<int>{1});
    p.top_k = 1;  // by the logit, before it is scaled
    CHECK(set_of(draw_many(ctx, {-most, 1e37f, 2e37f, most}, p, 50)) == std::set<int>{3});
    p.top_k = 0;
    p.min_p = 0.5f;
    CHECK(set_of(draw_many(ctx, {30000, 30000, 29999, -30000}, p, 100)) == std::set<int>{0, 1});
  }
}

TEST_CASE("rows that hold NaN, infinities or nothing are drawn from in range", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    for (bool const filtered : {false, true}) {
      parameters p = at_temperature(1);
      if (filtered) p.top_p = 0.9f, p.top_k = 3, p.min_p = 0.01f;
      CHECK(set_of(draw_many(ctx, {not_a_number, 1, not_a_number}, p, 50)) == std::set<int>{1});
      CHECK(set_of(draw_many(ctx, {1, infinity, 1}, p, 50)) == std::set<int>{1});
      CHECK(set_of(draw_many(ctx, {-infinity, -infinity, -3}, p, 50)) == std::set<int>{2});
      CHECK(set_of(draw_many(ctx, {-infinity, -infinity, -infinity}, p, 50)) == std::set<int>{0});
      CHECK(set_of(draw_many(ctx, {not_a_number, not_a_number}, p, 50)) == std::set<int>{0});
      CHECK(set_of(draw_many(ctx, {5}, p, 50)) == std::set<int>{0});
    }
  }
}

TEST_CASE("a bitmask leaves exactly the allowed tokens", "[accept]") {
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    buffer<std::uint32_t> mask(ctx, std::vector<std::uint32_t>{0, 0, 0x90u, 1u << 31});
    accept_options options;
    options.token_bitmask.data = mask.data();
    std::vector<float> const x(128, 0.0f);
    for (bool const filtered : {false, true}) {
      parameters p = at_temperature(1);
      if (filtered) p.top_p = 0.999f;
      CHECK(set_of(draw_many(ctx, x, p, 200, 0, options)) == std::set<int>{68, 71, 127});
    }
  }
}

TEST_CASE("the noise is that of the seed, the position and the token", "[accept]") {
  random_engine random(6);
  auto const x = random_logits(random, 203, 1.0f);
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    std::int64_t const far = (std::int64_t{1} << 40) - 40;
    parameters const p = at_temperature(1.25f, 0x89abcdef01234567ull);
    auto const drawn = draw_many(ctx, x, p, 40, far);
    for (int i = 0; i < 40; ++i) {
      int best = 0;
      for (int v = 1; v < 203; ++v) {
        auto const key = [&](int id) { return x[sized(id)] * 0.8L + noise(p, far + i + 1, id); };
        if (key(v) > key(best)) best = v;
      }
      CHECK(drawn[sized(i)] == best);
    }
    // One request beyond the longest cache is inactive.
    CHECK(draw_many(ctx, x, p, 42, far).back() == -1);
  }
}

TEST_CASE("seeds are int32, sign-extended, or int64", "[accept][small]") {
  random_engine random(7);
  auto const x = random_logits(random, 100, 1.0f);
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 4;
    shape.vocab = 100;
    shape.depth = 0;
    shape.budget = 0;
    tree_batch trees(ctx, shape, std::vector<tree>(4));
    logits_buffer logits(ctx, x, dtype::f32);
    buffer<std::int64_t> first_row(ctx, std::vector<std::int64_t>(4, 0)),
        length(ctx, std::vector<std::int64_t>{0, 5, 6, 7});
    auto view = logits.view();
    view.row_offset = first_row.data();
    buffer<float> temperature(ctx, std::vector<float>(4, 2.0f));
    batch_view batch;
    batch.cache_len = length.data();
    std::vector<std::int64_t> const seeds{-1, 77, -2000000000, 5};
    std::vector<std::vector<accepted_request>> results;
    for (auto const type : {dtype::i32, dtype::i64}) {
      optional_ids seed(ctx, type, seeds);
      sampling how;
      how.temperature = temperature.data();
      how.seed = seed.view();
      results.push_back(sampled_run(ctx, shape, batch, trees.view(), view, how).results);
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("a sampled request gives the same bits alone and anywhere in a batch", "[accept]") {
  random_engine random(12);
  int const vocab = 501;
  for (auto const& [name, ctx] : contexts_for(operation::accept_sampled)) {
    CAPTURE(name);
    round_shape shape;
    shape.batch = 16;
    shape.vocab = vocab;
    shape.depth = 4;
    shape.budget = 6;
    std::vector<tree> trees;
    std::vector<parameters> by_request;
    std::vector<float> flat;
    std::vector<std::int64_t> length, first_row;
    for (int b = 0; b < 16; ++b) {
      trees.push_back(random_tree(random, 7, 4, vocab));
      by_request.push_back(random_parameters(random, vocab));
      length.push_back(uniform(random, 0, 100));
      first_row.push_back(7 * b);
      for (int i = 0; i < 7; ++i) {
        auto x = random_logits(random, vocab);
        for (int const c :
             i < trees.back().size() ? trees.back().children(i) : std::vector<int>{}) {
          x[sized(trees.back().token[sized(c)])] = 14;
        }
        flat.insert(flat.end(), x.begin(), x.end());
      }
    }
    logits_buffer logits(ctx, flat, dtype::f32);
    buffer<std::int64_t> lengths(ctx, length);
    sampling_buffers how(ctx, by_request);
    auto const run = [&](std::vector<int> const& which, int budget) {
      round_shape s = shape;
      s.batch = static_cast<index_t>(which.size());
      s.requests = 16;
      s.budget = budget;
      std::vector<tree> some;
      std::vector<std::int64_t> request, rows;
      for (int const b : which) {
        some.push_back(trees[sized(b)]);
        request.push_back(b);
        rows.push_back(first_row[sized(b)]);
      }
      tree_batch memory(ctx, s, some);
      buffer<std::int64_t> requests(ctx, request), row_offset(ctx, rows);
      auto view = logits.view();
      view.row_offset = row_offset.data();
      return sampled_run(ctx, s, {lengths.data(), requests.data()}, memory.view(), view, how.view(),
                         {}, true)
          .results;
    };
    std::vector<int> all(16);
    std::iota(all.rbegin(), all.rend(), 0);
    auto const together = run(all, 6);
    for (int b = 0; b < 16; ++b) {
      CAPTURE(b);
      CHECK(run({b}, 6)[0] == together[sized(15 - b)]);
      CHECK(run({b, b}, 64)[1] == together[sized(15 - b)]);
    }
  }
}

TEST_CASE("the workspace of accept_sampled grows with each extent", "[accept]") {
  for (int const threads : {1, 4, 1000}) {
    context const ctx = context::cpu(threads);
    std::size_t before = 0;
    for (index_t const batch : {0, 1, 3, 64, 65535}) {
      round_shape shape;
      shape.batch = batch;
      shape.vocab = 1000;
      std::size_t const bytes = ddtree::accept_sampled_workspace_bytes(ctx, shape);
      CHECK(bytes >= before);
      before = bytes;
      shape.vocab = 1001;
      CHECK(ddtree::accept_sampled_workspace_bytes(ctx, shape) >= bytes);
    }
  }
  round_shape bad;
  CHECK(ddtree::accept_sampled_workspace_bytes(context::cpu(), bad) == 0);
  CHECK(ddtree::accept_greedy_workspace_bytes(context::cpu(), bad) == 0);
}

TEST_CASE("accept_sampled names the argument at fault", "[accept]") {
  context const ctx = context::cpu();
  round_shape shape;
  shape.vocab = 40;
  shape.depth = 2;
  shape.budget = 3;
  tree_batch trees(ctx, shape, {tree{}});
  accepted_buffers out(ctx, shape);
  logits_buffer logits(ctx, std::vector<float>(160), dtype::f32);
  buffer<unsigned char> scratch(ctx, ddtree::accept_sampled_workspace_bytes(ctx, shape));
  std::int64_t const length[1] = {0}, seed[1] = {0};
  float const temperature[1] = {1};
  batch_view batch;
  batch.cache_len = length;
  sampling how;
  how.temperature = temperature;
  how.seed = seed;
  auto const is = [&](errc code, char const* message, ddtree::workspace memory) {
    auto const s = ddtree::accept_sampled(ctx, shape, batch, trees.view(), logits.view(), how,
                                          out.view(), memory);
    CHECK(s.code == code);
    CHECK(std::string(s.message) == message);
    CHECK(out.bonus.values()[0] == poisoned<std::int32_t>());
  };
  auto const memory = scratch.as_workspace();
  SECTION("seed") {
    how.seed = nullptr;
    is(errc::invalid_argument, "accept_sampled: how.seed is null", memory);
  }
  SECTION("seed type") {
    how.seed.type = dtype::f16;
    is(errc::invalid_argument, "accept_sampled: how.seed is neither i32 nor i64", memory);
  }
  SECTION("top_k type") {
    how.top_k = {seed, dtype::u8};
    is(errc::invalid_argument, "accept_sampled: how.top_k is neither i32 nor i64", memory);
  }
  SECTION("cache_len") {
    batch.cache_len = nullptr;
    is(errc::invalid_argument, "accept_sampled: batch.cache_len is null", memory);
  }
  SECTION("order") {
    how.order = static_cast<filter_order>(2);
    is(errc::invalid_argument, "accept_sampled: how.order is none", memory);
  }
  SECTION("target") {
    shape.vocab = 0;
    is(errc::invalid_argument, "accept_sampled: shape.vocab outside [1, 4194304]", memory);
  }
  SECTION("workspace") {
    is(errc::workspace_too_small, "accept_sampled: workspace.bytes too small",
       {memory.data, memory.bytes - 1});
    is(errc::workspace_too_small, "accept_sampled: workspace.data is null",
       {nullptr, memory.bytes});
  }
}
