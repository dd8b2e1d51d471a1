// SPDX-License-Identifier: Apache-2.0
// Acceptance over vocabulary shards equals acceptance over whole rows.
#include "rules/accept.hpp"
#include "support/accept_cases.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"

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
using ddtree::vocab_ranges;
using oracle::accept::parameters;
using oracle::accept::tree;
namespace flag = ddtree::flag;

/// Which columns the ranks hold: two ranges of any size each, in any order, apart by columns that
/// belong to nobody.
struct partition {
  std::vector<vocab_ranges> rank;
  std::vector<index_t> columns;  // of a rank's rows
};

partition random_partition(random_engine& random, int ranks, int vocab) {
  std::vector<int> cut{0, vocab};
  for (int i = 1; i < 2 * ranks; ++i) cut.push_back(uniform(random, 0, vocab));
  std::sort(cut.begin(), cut.end());
  std::vector<std::size_t> piece(cut.size() - 1);
  for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = i;
  for (std::size_t i = piece.size(); i > 1; --i) std::swap(piece[i - 1], piece[random() % i]);
  partition p;
  for (std::size_t r = 0; r < sized(ranks); ++r) {
    vocab_ranges ranges;
    index_t column = uniform(random, 0, 3);
    for (std::size_t i = 0; i < 2; ++i) {
      std::size_t const at = piece[2 * r + i];
      ranges.range[i] = {column, cut[at + 1] - cut[at], cut[at]};
      column += ranges.range[i].count + uniform(random, 0, 3);
    }
    if (uniform(random, 0, 1) == 1) std::swap(ranges.range[0], ranges.range[1]);
    p.rank.push_back(ranges);
    p.columns.push_back(column);
  }
  return p;
}

/// A batch whose rows are whole, and what all its calls are given.
struct whole_batch {
  whole_batch(context const& ctx, random_engine& random, int vocab, std::vector<parameters> given)
      : by_request(std::move(given)),
        bias(ctx, by_request.size() * sized(vocab)),
        mask(ctx, by_request.size() * 8 * sized((vocab + 31) / 32)),
        length(ctx, by_request.size()),
        request(ctx, by_request.size()) {
    shape.batch = static_cast<index_t>(by_request.size());
    shape.vocab = vocab;
    shape.depth = 4;
    shape.budget = 7;
    std::vector<std::int64_t> lengths, requests;
    std::vector<float> biases;
    std::vector<std::uint32_t> words(mask.size());
    for (auto& word : words) word = static_cast<std::uint32_t>(random() | random());
    for (int b = 0; b < shape.batch; ++b) {
      tree const t = random_tree(random, uniform(random, 1, 8), 4, vocab);
      trees.push_back(t);
      for (int i = 0; i < 8; ++i) {
        auto x = random_logits(random, vocab);
        for (int const c : i < t.size() ? t.children(i) : std::vector<int>{}) {
          x[sized(t.token[sized(c)])] += 6;
        }
        if (uniform(random, 0, 3) == 0) x[random() % x.size()] = not_a_number;
        if (uniform(random, 0, 30) == 0) x.assign(x.size(), -infinity);
        if (uniform(random, 0, 9) == 0) x.assign(x.size(), 1.5f);
        flat.insert(flat.end(), x.begin(), x.end());
      }
      lengths.push_back(uniform(random, 0, 5000));
      requests.push_back(uniform(random, 0, 9) == 0 ? -1 : b);
      auto const x = random_logits(random, vocab, 1.0f);
      biases.insert(biases.end(), x.begin(), x.end());
    }
    bias.assign(biases);
    mask.assign(words);
    length.assign(lengths);
    request.assign(requests);
    batch = {length.data(), request.data()};
    if (uniform(random, 0, 1) == 1) options.logit_bias = bias.data();
    if (uniform(random, 0, 1) == 1) options.token_bitmask.data = mask.data();
    options.processed_log_prob = uniform(random, 0, 1) == 1;
  }

  /// The unsharded call.
  std::vector<accepted_request> run_whole(context const& ctx, sampling const& how) {
    tree_batch memory(ctx, shape, trees);
    logits_buffer logits(ctx, flat, type);
    accepted_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::accept_sampled_workspace_bytes(ctx, shape));
    auto const s = ddtree::accept_sampled(ctx, shape, batch, memory.view(), logits.view(), how,
                                          out.view(true), scratch.as_workspace(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    return read_accepted(out, shape, true);
  }

  /// A rank's contribution, put at `to`.
  void contribute(context const& ctx, vocab_ranges const& ranges, index_t columns,
                  sampling const& how, ddtree::shard_out to) {
    tree_batch memory(ctx, shape, trees);
    std::vector<float> mine(sized(shape.batch * shape.width() * columns), not_a_number);
    for (index_t row = 0; row < shape.batch * shape.width(); ++row) {
      for (auto const& range : ranges.range) {
        if (range.count == 0) continue;
        std::copy_n(flat.begin() + row * shape.vocab + range.global_begin, range.count,
                    mine.begin() + row * columns + range.local_begin);
      }
    }
    logits_buffer logits(ctx, mine, type);
    auto view = logits.view();
    view.vocab = columns;
    buffer<unsigned char> scratch(ctx, ddtree::accept_shard_workspace_bytes(ctx, shape));
    auto const s = ddtree::accept_shard(ctx, shape, batch, memory.view(), view, ranges, how, to,
                                        scratch.as_workspace(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    REQUIRE(scratch.intact());
  }

  std::vector<accepted_request> merge(context const& ctx, ddtree::shard_in const& all,
                                      sampling const& how, bool with_log_prob) {
    tree_batch memory(ctx, shape, trees);
    accepted_buffers out(ctx, shape);
    buffer<unsigned char> scratch(ctx, ddtree::accept_merge_workspace_bytes(ctx, shape, all.ranks));
    auto const s = ddtree::accept_merge(ctx, shape, batch, memory.view(), all, how,
                                        out.view(with_log_prob), scratch.as_workspace(), options);
    CAPTURE(s.message);
    REQUIRE(s.code == errc::ok);
    REQUIRE(out.intact());
    REQUIRE(scratch.intact());
    return read_accepted(out, shape, with_log_prob);
  }

  std::vector<accepted_request> run_sharded(context const& ctx, partition const& p,
                                            sampling const& how, bool with_log_prob) {
    options.shard_log_prob = with_log_prob;
    auto const bytes = static_cast<index_t>(ddtree::accept_shard_bytes(shape, how, options));
    REQUIRE(bytes % 16 == 0);
    index_t const stride = bytes + 32;
    auto const ranks = static_cast<index_t>(p.rank.size());
    buffer<unsigned char> gathered(ctx, sized(ranks * stride));
    for (index_t r = 0; r < ranks; ++r) {
      buffer<unsigned char> own(ctx, sized(bytes));
      contribute(ctx, p.rank[sized(r)], p.columns[sized(r)], how, {own.data(), own.bytes()});
      REQUIRE(own.intact());
      std::copy_n(own.data(), bytes, gathered.data() + r * stride);
    }
    return merge(ctx, {gathered.data(), ranks, stride}, how, with_log_prob);
  }

  round_shape shape;
  dtype type = dtype::f32;
  std::vector<parameters> by_request;
  std::vector<tree> trees;
  std::vector<float> flat;
  buffer<float> bias;
  buffer<std::uint32_t> mask;
  buffer<std::int64_t> length, request;
  batch_view batch;
  accept_options options;
};

/// The same but for log-probs, which need only be close.
void check_same(std::vector<accepted_request> got, std::vector<accepted_request> expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t b = 0; b < got.size(); ++b) {
    CAPTURE(b);
    for (std::size_t i = 0; i < got[b].log_prob.size(); ++i) {
      float const x = got[b].log_prob[i], y = expected[b].log_prob[i];
      CAPTURE(i, x, y);
      bool const is_close = x == y || std::fabs(x - y) < 1e-5f;
      CHECK(is_close);
    }
    got[b].log_prob.clear();
    expected[b].log_prob.clear();
    CHECK(got[b].token == expected[b].token);
    REQUIRE(got[b] == expected[b]);
  }
}

}  // namespace

namespace {

void check_unfiltered(int ranks, bool sampled, std::vector<int> const& vocabs) {
  random_engine random(static_cast<unsigned>(ranks));
  for (auto const& [name, ctx] : contexts_for(operation::accept_merge)) {
    for (int const vocab : vocabs) {
      CAPTURE(name, vocab, ranks);
      std::vector<parameters> by_request;
      for (int b = 0; b < 4; ++b) {
        by_request.push_back(random_parameters(random, vocab));
        by_request.back().top_k = 0;
        by_request.back().top_p = 1;
        by_request.back().min_p = 0;
      }
      whole_batch whole(ctx, random, vocab, by_request);
      whole.type = std::vector{dtype::f32, dtype::f16, dtype::bf16}[random() % 3];
      sampling_buffers buffers(ctx, by_request);
      sampling how;
      if (sampled) {
        how = buffers.view();
        how.top_k = nullptr;
        how.top_p = how.min_p = nullptr;
      }
      auto const expected = whole.run_whole(ctx, how);
      for (int const max_top_k : {0, 1, 40}) {
        how.max_top_k = max_top_k;
        partition const p = random_partition(random, ranks, vocab);
        check_same(whole.run_sharded(ctx, p, how, true), expected);
      }
    }
  }
}

}  // namespace

TEST_CASE("greedy and temperature alone give the tokens of the unsharded call", "[accept]") {
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  bool const sampled = GENERATE(false, true);
  check_unfiltered(ranks, sampled, {1, 2, 7, 50, 203, 2500});
}

TEST_CASE("greedy and temperature alone give the tokens of the unsharded call on few ranks",
          "[accept][small]") {
  int const ranks = GENERATE(1, 3);
  bool const sampled = GENERATE(false, true);
  check_unfiltered(ranks, sampled, {7, 203});
}

TEST_CASE("filters give the tokens of the unsharded call up to max_top_k", "[accept]") {
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  auto const order = GENERATE(filter_order::k_p_min, filter_order::min_k_p);
  random_engine random(static_cast<unsigned>(ranks) + 100);
  for (auto const& [name, ctx] : contexts_for(operation::accept_merge)) {
    for (int const vocab : {1, 5, 60, 203, 2500}) {
      for (int const max_top_k : {1, 3, 64, 1024}) {
        CAPTURE(name, vocab, ranks, max_top_k);
        std::vector<parameters> by_request, held;
        std::vector<bool> is_limited;
        for (int b = 0; b < 5; ++b) {
          parameters p = random_parameters(random, vocab);
          if (uniform(random, 0, 1) == 1) p.top_k = uniform(random, 1, max_top_k);
          by_request.push_back(p);
          bool const k_off = p.top_k <= 0 || p.top_k >= vocab;
          bool const filters = p.temperature > 0 && (!k_off || p.top_p < 1 || p.min_p > 0);
          is_limited.push_back(filters && max_top_k < vocab && (k_off || p.top_k > max_top_k));
          if (is_limited.back()) p.top_k = max_top_k;
          held.push_back(p);
        }
        whole_batch whole(ctx, random, vocab, by_request);
        sampling_buffers given(ctx, by_request, order), as_held(ctx, held, order);
        auto expected = whole.run_whole(ctx, as_held.view());
        for (std::size_t b = 0; b < expected.size(); ++b) {
          if (is_limited[b] && expected[b].num_accepted >= 0)
            expected[b].flags |= flag::top_k_limited;
        }
        sampling how = given.view();
        how.max_top_k = max_top_k;
        partition const p = random_partition(random, ranks, vocab);
        bool const with_log_prob = uniform(random, 0, 1) == 1;
        if (!with_log_prob) {
          for (auto& e : expected) e.log_prob.clear();
        }
        check_same(whole.run_sharded(ctx, p, how, with_log_prob), expected);
      }
    }
  }
}

TEST_CASE("a merge depends on the contributions alone", "[accept][small]") {
  int const max_top_k = GENERATE(20, 128, 200);
  random_engine random(5);
  int const vocab = 300;
  for (auto const& [name, ctx] : contexts_for(operation::accept_merge)) {
    CAPTURE(name);
    std::vector<parameters> by_request;
    for (int b = 0; b < 4; ++b) by_request.push_back(random_parameters(random, vocab));
    whole_batch whole(ctx, random, vocab, by_request);
    whole.options.shard_log_prob = true;
    sampling_buffers buffers(ctx, by_request);
    sampling how = buffers.view();
    how.max_top_k = max_top_k;
    partition const p = random_partition(random, 2, vocab);
    auto const bytes =
        static_cast<index_t>(ddtree::accept_shard_bytes(whole.shape, how, whole.options));
    std::vector<std::vector<unsigned char>> contribution;
    for (std::size_t r = 0; r < 2; ++r) {
      buffer<unsigned char> own(ctx, sized(bytes));
      whole.contribute(ctx, p.rank[r], p.columns[r], how, {own.data(), own.bytes()});
      contribution.push_back(own.values());
      // Again the same bytes, on the CPU also with another thread count.
      bool const is_cpu = ctx.backend == ddtree::backend_kind::cpu;
      buffer<unsigned char> again(ctx, sized(bytes));
      whole.contribute(is_cpu ? context::cpu(5) : ctx, p.rank[r], p.columns[r], how,
                       {again.data(), again.bytes()});
      CHECK(again.values() == contribution.back());
    }
    std::vector<std::vector<accepted_request>> merged;
    for (index_t const offset : {0, 16, 48}) {
      index_t const stride = offset == 0 ? 0 : bytes + offset;
      buffer<unsigned char> gathered(ctx, sized(2 * bytes + 3 * offset));
      std::copy_n(contribution[0].data(), bytes, gathered.data() + offset);
      std::copy_n(contribution[1].data(), bytes,
                  gathered.data() + offset + (stride == 0 ? bytes : stride));
      merged.push_back(whole.merge(ctx, {gathered.data() + offset, 2, stride}, how, true));
    }
    CHECK(merged[0] == merged[1]);
    CHECK(merged[0] == merged[2]);
  }
}

TEST_CASE("a contribution is written in full", "[accept][small]") {
  random_engine random(6);
  for (auto const& [name, ctx] : contexts_for(operation::accept_shard)) {
    CAPTURE(name);
    for (bool const with_log_prob : {false, true}) {
      std::vector<parameters> by_request;
      for (int b = 0; b < 4; ++b) by_request.push_back(random_parameters(random, 90));
      whole_batch whole(ctx, random, 90, by_request);
      whole.request.assign({0, -1, 2, 3});
      whole.options.shard_log_prob = with_log_prob;
      sampling_buffers buffers(ctx, by_request);
      sampling how = buffers.view();
      how.max_top_k = 12;
      std::size_t const bytes = ddtree::accept_shard_bytes(whole.shape, how, whole.options);
      // 32 rows, so that nothing is filled up.
      REQUIRE(bytes == 32u * 4u * (with_log_prob ? 6u + 3u * 12u : 3u + 2u * 12u));
      buffer<unsigned char> a(ctx, std::vector<unsigned char>(bytes, 0)),
          b(ctx, std::vector<unsigned char>(bytes, 255));
      vocab_ranges const ranges{{{0, 30, 60}, {30, 10, 2}}};
      whole.contribute(ctx, ranges, 40, how, {a.data(), bytes});
      whole.contribute(ctx, ranges, 40, how, {b.data(), bytes});
      CHECK(a.values() == b.values());

      // Rows of request 1, which is inactive, and beyond num_nodes.
      auto const at = ddtree::rules::accept_layout(whole.shape, 12, with_log_prob);
      auto const id_at = [&](index_t word) {
        std::int32_t id = 0;
        std::memcpy(&id, a.data() + 4 * word, 4);
        return id;
      };
      for (int row = 0; row < 32; ++row) {
        bool const is_read = row / 8 != 1 && row % 8 < whole.trees[sized(row / 8)].size();
        CAPTURE(row);
        CHECK((id_at(at.best_id + row) >= 0) == is_read);
        if (!is_read) CHECK(id_at(at.top_id + row * 12) == -1);
      }
    }
  }
}

TEST_CASE("ranks without columns, or without any contribution, change nothing", "[accept][small]") {
  random_engine random(7);
  for (auto const& [name, ctx] : contexts_for(operation::accept_merge)) {
    CAPTURE(name);
    std::vector<parameters> const by_request(3, parameters{0.8f, 5, 0.9f, 0, false, 3});
    whole_batch whole(ctx, random, 40, by_request);
    sampling_buffers buffers(ctx, by_request);
    sampling how = buffers.view();
    how.max_top_k = 8;
    auto const expected = whole.run_whole(ctx, how);
    partition p{{{}, {{{0, 40, 0}, {}}}, {}}, {0, 40, 0}};
    check_same(whole.run_sharded(ctx, p, how, true), expected);

    // Of an unused range only the count says something.
    index_t const far = std::numeric_limits<index_t>::max();
    for (ddtree::vocab_range const unused : {ddtree::vocab_range{far, 0, far}, {-far, 0, -far}}) {
      p = {{{{unused, {0, 25, 0}}}, {{{0, 15, 25}, unused}}}, {40, 40}};
      check_same(whole.run_sharded(ctx, p, how, true), expected);
    }

    // Without logits at all.
    whole.options.shard_log_prob = false;
    tree_batch memory(ctx, whole.shape, whole.trees);
    std::size_t const bytes = ddtree::accept_shard_bytes(whole.shape, how, whole.options);
    buffer<unsigned char> own(ctx, bytes),
        scratch(ctx, ddtree::accept_shard_workspace_bytes(ctx, whole.shape));
    CHECK(ddtree::accept_shard(ctx, whole.shape, whole.batch, memory.view(), {}, {}, how,
                               {own.data(), bytes}, scratch.as_workspace(), whole.options));
    auto const got = whole.merge(ctx, {own.data(), 1, 0}, how, false);
    for (auto const& r : got) CHECK(r.bonus == (r.num_accepted < 0 ? -1 : 0));
    for (auto const& r : got) CHECK(r.num_accepted <= 0);
  }
}

TEST_CASE("damaged contributions give tokens in range", "[accept]") {
  random_engine random(8);
  for (auto const& [name, ctx] : contexts_for(operation::accept_merge)) {
    CAPTURE(name);
    for (int round = 0; round < 30; ++round) {
      std::vector<parameters> by_request;
      for (int b = 0; b < 3; ++b) by_request.push_back(random_parameters(random, 30));
      whole_batch whole(ctx, random, 30, by_request);
      whole.options.shard_log_prob = true;
      sampling_buffers buffers(ctx, by_request);
      sampling how = buffers.view();
      how.max_top_k = 40;
      auto const bytes = ddtree::accept_shard_bytes(whole.shape, how, whole.options);
      buffer<std::uint32_t> all(ctx, 3 * bytes / 4);
      auto words = all.values();
      for (auto& word : words) {
        word = static_cast<std::uint32_t>(random());
        if (round % 3 == 0) word = word % 64;
        if (round % 3 == 1) word = random() % 2 == 0 ? 0x7fc00000u : word % 40;
      }
      all.assign(words);
      for (auto const& r : whole.merge(ctx, {all.data(), 3, 0}, how, true)) {
        for (int i = 0; i <= r.num_accepted; ++i) {
          CHECK(r.token[sized(i)] >= 0);
          CHECK(r.token[sized(i)] < 30);
        }
      }
    }
  }
}

TEST_CASE("the sizes of sharded acceptance are multiples of 16 and monotone", "[accept]") {
  round_shape shape;
  shape.vocab = 100;
  shape.batch = 3;
  shape.budget = 4;
  sampling how;
  accept_options options;
  std::size_t const smallest = ddtree::accept_shard_bytes(shape, how, options);
  CHECK(smallest == 192);  // 15 rows of 3 words, filled up
  options.shard_log_prob = true;
  CHECK(ddtree::accept_shard_bytes(shape, how, options) == 15 * 6 * 4 + 8);
  how.max_top_k = 1024;
  std::size_t const large = ddtree::accept_shard_bytes(shape, how, options);
  CHECK(large == 15 * (6 + 3 * 1024) * 4 + 8);
  shape.batch = 65535;
  shape.budget = 2047;
  CHECK(ddtree::accept_shard_bytes(shape, how, options) == 65535ull * 2048 * (6 + 3 * 1024) * 4);
  how.max_top_k = 1025;
  CHECK(ddtree::accept_shard_bytes(shape, how, options) == 0);
  how.max_top_k = 0;
  shape.vocab = 0;
  CHECK(ddtree::accept_shard_bytes(shape, how, options) == 0);
  CHECK(ddtree::accept_shard_workspace_bytes(context::cpu(), shape) == 0);
  CHECK(ddtree::accept_merge_workspace_bytes(context::cpu(), shape, 2) == 0);
  shape.vocab = 100;
  CHECK(ddtree::accept_merge_workspace_bytes(context::cpu(), shape, 0) == 0);
  CHECK(ddtree::accept_merge_workspace_bytes(context::cpu(2), shape, 8) >=
        ddtree::accept_merge_workspace_bytes(context::cpu(2), shape, 1));
}

namespace {

/// Sound calls of accept_shard and accept_merge, to be spoilt one argument at a time.
struct sound_calls {
  sound_calls() {
    view = logits.view();
    view.vocab = 20;
    ranges.range[0] = {0, 15, 5};
    ranges.range[1] = {15, 5, 0};
    trees = memory.view();
    out = buffers.view();
    batch.cache_len = length;
    how.temperature = temperature;
    how.seed = length;
    mine = {contribution.data(), contribution.bytes()};
    all = {contribution.data(), 1, 0};
  }

  void shard(char const* message, errc code = errc::invalid_argument) {
    check(ddtree::accept_shard(ctx, shape, batch, trees, view, ranges, how, mine,
                               scratch.as_workspace(), options),
          "accept_shard", message, code);
    CHECK(contribution.values() == before);
  }
  void merge(char const* message, errc code = errc::invalid_argument) {
    check(ddtree::accept_merge(ctx, shape, batch, trees, all, how, out, scratch.as_workspace(),
                               options),
          "accept_merge", message, code);
    CHECK(buffers.bonus.values()[0] == poisoned<std::int32_t>());
  }
  void both(char const* message, errc code = errc::invalid_argument) {
    shard(message, code);
    merge(message, code);
  }
  static void check(ddtree::status const& s, std::string const& call, std::string const& message,
                    errc code) {
    CHECK(s.code == code);
    CHECK(std::string(s.message) == call + ": " + message);
  }

  context ctx = context::cpu();
  round_shape shape{1, 20, 2, 64, 3, 0};
  tree_batch memory{ctx, shape, {tree{}}};
  accepted_buffers buffers{ctx, shape};
  logits_buffer logits{ctx, std::vector<float>(80), dtype::f32};
  buffer<unsigned char> contribution{ctx, 1024};
  std::vector<unsigned char> before = contribution.values();
  buffer<unsigned char> scratch{ctx, 1 << 16};
  std::int64_t length[1] = {0};
  float temperature[1] = {1};
  ddtree::logits_view view;
  vocab_ranges ranges;
  ddtree::draft_tree trees;
  ddtree::accepted out;
  batch_view batch;
  sampling how;
  accept_options options;
  ddtree::shard_out mine;
  ddtree::shard_in all;
};

}  // namespace

TEST_CASE("accept_shard and accept_merge name the argument at fault", "[accept]") {
  sound_calls call;
  auto const odd = ddtree::ids_in(call.length, dtype::f32);
  SECTION("shape") { call.shape.depth = -1, call.both("shape.depth outside [0, 31]"); }
  SECTION("filters") {
    call.how.top_p = call.temperature,
    call.both("filters without how.max_top_k", errc::unsupported);
  }
  SECTION("top_k") {
    call.how.top_k = call.length, call.both("filters without how.max_top_k", errc::unsupported);
  }
  SECTION("min_p") {
    call.how.min_p = call.temperature,
    call.both("filters without how.max_top_k", errc::unsupported);
  }
  SECTION("max_top_k") { call.how.max_top_k = 1025, call.both("how.max_top_k outside [0, 1024]"); }
  SECTION("max_top_k below 0") {
    call.how.max_top_k = -1, call.both("how.max_top_k outside [0, 1024]");
  }
  SECTION("seed") { call.how.seed = nullptr, call.both("how.seed is null"); }
  SECTION("cache_len") { call.batch.cache_len = nullptr, call.both("batch.cache_len is null"); }
  SECTION("tree.depth") { call.trees.depth = nullptr, call.shard("tree.depth is null"); }
  SECTION("tree.num_nodes") { call.trees.num_nodes = nullptr, call.both("tree.num_nodes is null"); }
  SECTION("tree.token") { call.trees.token = nullptr, call.merge("tree.token is null"); }
  SECTION("shard.type") {
    call.view.type = dtype::i64, call.shard("shard.type is not f32, f16 or bf16");
  }
  SECTION("shard.data") { call.view.data = nullptr, call.shard("shard.data is null"); }
  SECTION("shard.vocab") { call.view.vocab = 0, call.shard("shard.vocab is not given"); }
  SECTION("shard.vocab below 0") { call.view.vocab = -1, call.shard("shard.vocab < 0"); }
  SECTION("shard.row_stride") {
    call.view.row_stride = 19, call.shard("shard.row_stride shorter than a row");
  }
  SECTION("shard.batch_stride") {
    call.view.batch_stride = -1, call.shard("shard.batch_stride < 0");
  }
  SECTION("shard.row_offset") {
    call.view.row_offset = odd, call.shard("shard.row_offset is neither i32 nor i64");
  }
  SECTION("ranges.count") { call.ranges.range[1].count = -1, call.shard("ranges.count < 0"); }
  SECTION("ranges local") {
    call.ranges.range[1].local_begin = 16, call.shard("ranges beyond shard.vocab");
  }
  SECTION("ranges global") {
    call.ranges.range[0].global_begin = 6, call.shard("ranges beyond the vocabulary");
  }
  SECTION("ranges overlap") { call.ranges.range[1].global_begin = 1, call.shard("ranges overlap"); }
  SECTION("out.data") { call.mine.data = nullptr, call.shard("out.data is null"); }
  SECTION("out.data aligned") {
    call.mine.data = call.contribution.data() + 4;
    call.shard("out.data is not aligned to 16 bytes");
  }
  SECTION("out.bytes") { call.mine.bytes = 47, call.shard("out.bytes too small"); }
  SECTION("all_ranks.ranks") { call.all.ranks = 0, call.merge("all_ranks.ranks < 1"); }
  SECTION("all_ranks.data") { call.all.data = nullptr, call.merge("all_ranks.data is null"); }
  SECTION("all_ranks.data aligned") {
    call.all.data = call.contribution.data() + 4;
    call.merge("all_ranks.data is not aligned to 16 bytes");
  }
  SECTION("all_ranks.rank_stride_bytes") {
    call.all.rank_stride_bytes = 32;
    call.merge("all_ranks.rank_stride_bytes shorter than a contribution");
  }
  SECTION("all_ranks.rank_stride_bytes odd") {
    call.all.rank_stride_bytes = 56;
    call.merge("all_ranks.rank_stride_bytes is not a multiple of 16");
  }
  SECTION("log_prob") {
    call.out = call.buffers.view(true), call.merge("out.log_prob without options.shard_log_prob");
  }
  SECTION("out") { call.out.path = nullptr, call.merge("out has a null array"); }
  SECTION("stop tokens") {
    call.options.stop_tokens = odd, call.both("options.stop_tokens is neither i32 nor i64");
  }
  SECTION("bias") {
    call.options.logit_bias_stride = 3;
    call.shard("options.logit_bias_stride shorter than a row");
  }
}
