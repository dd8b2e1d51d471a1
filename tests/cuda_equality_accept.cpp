// SPDX-License-Identifier: Apache-2.0
// Acceptance on a GPU gives what it gives on the CPU: every bit but those of log_prob.
#include "ddtree/accept.hpp"
#include "ddtree/build.hpp"

#include "support/accept_cases.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/words.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::round_shape;
using oracle::accept::parameters;

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

/// Which arrays of `sampling` are bound. `greedy`: none, and accept_greedy is called.
enum class setting { greedy, temperature, top_k, top_p, min_p, all, all_min_p_first };
constexpr setting settings[] = {setting::greedy,         setting::temperature, setting::top_k,
                                setting::top_p,          setting::min_p,       setting::all,
                                setting::all_min_p_first};

/// A call of an accept on the host.
struct accept_batch {
  round_shape shape;
  dtype type = dtype::f32;
  setting how = setting::greedy;
  std::int32_t max_top_k = 0;
  words tree;
  std::vector<unsigned char> logits;
  std::vector<parameters> by_request;
  std::vector<std::int64_t> cache_len, request;
  // Not bound where empty.
  std::vector<unsigned char> bias;  // floats
  words mask;
  std::vector<std::int32_t> stop;  // two per request
  std::vector<std::int64_t> remaining;
  bool processed_log_prob = false;
  bool with_log_prob = true;
};

/// Trees of random candidates.
words random_trees(random_engine& random, round_shape const& shape) {
  context const cpu = context::cpu();
  candidate_buffers from(cpu, shape);
  ddtree::candidates const c = from.view();
  for (index_t row = 0; row < shape.batch * shape.depth; ++row) {
    int const first = uniform(random, 0, static_cast<int>(shape.vocab) - 1);
    float log_prob = 0;
    for (index_t r = 0; r < shape.top_k; ++r) {
      log_prob -= 0.01f * static_cast<float>(uniform(random, 0, 150));
      c.token[row * shape.top_k + r] = static_cast<int>((first + r) % shape.vocab);
      c.log_prob[row * shape.top_k + r] = log_prob;
    }
  }
  std::fill_n(c.flags, shape.batch, 0u);
  std::vector<std::int32_t> root;
  for (index_t b = 0; b < shape.batch; ++b) {
    root.push_back(uniform(random, 0, static_cast<int>(shape.vocab) - 1));
  }
  tree_words out(cpu, shape);
  buffer<unsigned char> scratch(cpu, ddtree::build_tree_workspace_bytes(cpu, shape));
  REQUIRE(ddtree::build_tree(cpu, shape, {}, c, root.data(), out.view(), scratch.as_workspace()));
  return out.values();
}

accept_batch random_batch(random_engine& random, round_shape shape, dtype type, setting how) {
  accept_batch c;
  shape.top_k = static_cast<std::int32_t>(std::min<index_t>(8, shape.vocab));
  c.shape = shape;
  c.type = type;
  c.how = how;
  c.tree = random_trees(random, shape);
  int const vocab = static_cast<int>(shape.vocab);
  std::size_t const width = sized(shape.width());
  tree_words trees(context::cpu(), shape, c.tree);
  ddtree::draft_tree const t = trees.view();
  // A child's token is likely, so that walks get somewhere.
  auto const prefer_a_child = [&](std::size_t row, std::vector<float>& x) {
    if (row % width >= sized(t.num_nodes[row / width])) return;
    ddtree::node_t const child = t.first_child[row];
    if (child >= 0) x[sized(t.token[row / width * width + sized(child)])] += 8;
  };
  std::uint64_t const seed = random();
  c.logits =
      hashed_rows(seed, sized(shape.batch) * width, sized(shape.vocab), type, 2.5f, prefer_a_child);
  for (index_t b = 0; b < shape.batch; ++b) {
    c.by_request.push_back(random_parameters(random, vocab));
    bool const is_long = uniform(random, 0, 9) == 0;
    c.cache_len.push_back(uniform(random, 0, 5000) + (is_long ? std::int64_t{1} << 33 : 0));
    c.request.push_back(uniform(random, 0, 19) == 0 ? -1 : b);
  }
  auto const no_change = [](std::size_t, std::vector<float>&) {};
  if (uniform(random, 0, 1) == 1) {
    c.bias =
        hashed_rows(seed + 1, sized(shape.batch), sized(shape.vocab), dtype::f32, 1.0f, no_change);
  }
  if (uniform(random, 0, 1) == 1) {
    c.mask.resize(sized(shape.batch) * width * sized((shape.vocab + 31) / 32));
    for (auto& word : c.mask) word = static_cast<std::uint32_t>(random() | random() | random());
  }
  if (uniform(random, 0, 1) == 1) {
    for (index_t i = 0; i < 2 * shape.batch; ++i) {
      int const node = uniform(random, 0, shape.budget);
      c.stop.push_back(uniform(random, 0, 3) == 0 ? t.token[i / 2 * shape.width() + node] : -1);
    }
  }
  if (uniform(random, 0, 2) == 0) {
    for (index_t b = 0; b < shape.batch; ++b) c.remaining.push_back(uniform(random, 0, 12));
  }
  c.processed_log_prob = uniform(random, 0, 1) == 1;
  c.with_log_prob = uniform(random, 0, 4) != 0;
  return c;
}

/// The arrays of a call in a context's memory.
class placed_batch {
 public:
  placed_batch(context const& ctx, accept_batch const& c)
      : ctx_(ctx),
        c_(c),
        tree_(ctx, c.shape, c.tree),
        logits_(ctx, c.logits),
        sampling_(ctx, c.by_request,
                  c.how == setting::all_min_p_first ? ddtree::filter_order::min_k_p
                                                    : ddtree::filter_order::k_p_min),
        cache_len_(ctx, c.cache_len),
        request_(ctx, c.request),
        bias_(ctx, c.bias),
        mask_(ctx, c.mask),
        stop_(ctx, c.stop),
        remaining_(ctx, c.remaining) {}

  ddtree::batch_view batch() { return {cache_len_.data(), request_.data()}; }
  ddtree::draft_tree tree() { return tree_.view(); }

  ddtree::logits_view logits() {
    ddtree::logits_view v;
    v.data = logits_.data();
    v.type = c_.type;
    return v;
  }

  ddtree::sampling how() {
    if (c_.how == setting::greedy) return {};
    ddtree::sampling all = sampling_.view();
    all.max_top_k = c_.max_top_k;
    bool const is_all = c_.how == setting::all || c_.how == setting::all_min_p_first;
    if (!is_all && c_.how != setting::top_k) all.top_k = {};
    if (!is_all && c_.how != setting::top_p) all.top_p = nullptr;
    if (!is_all && c_.how != setting::min_p) all.min_p = nullptr;
    return all;
  }

  ddtree::accept_options options() {
    ddtree::accept_options o;
    if (bias_.size() != 0) o.logit_bias = reinterpret_cast<float const*>(bias_.data());
    if (mask_.size() != 0) o.token_bitmask.data = mask_.data();
    if (stop_.size() != 0) {
      o.stop_tokens = stop_.data();
      o.stop_tokens_per_request = 2;
    }
    if (remaining_.size() != 0) o.remaining = remaining_.data();
    o.processed_log_prob = c_.processed_log_prob;
    o.shard_log_prob = c_.with_log_prob;
    return o;
  }

  ddtree::accepted view(accepted_words& out) {
    ddtree::accepted a = out.view();
    if (!c_.with_log_prob) a.log_prob = nullptr;
    return a;
  }

 private:
  context ctx_;
  accept_batch const& c_;
  tree_words tree_;
  device_array<unsigned char> logits_;
  sampling_buffers sampling_;
  device_array<std::int64_t> cache_len_, request_;
  device_array<unsigned char> bias_;
  device_array<std::uint32_t> mask_;
  device_array<std::int32_t> stop_;
  device_array<std::int64_t> remaining_;
};

struct outcome {
  words exact;
  std::vector<float> log_prob;
};

outcome accept(context const& ctx, accept_batch const& c) {
  placed_batch placed(ctx, c);
  accepted_words out(ctx, c.shape);
  bool const is_greedy = c.how == setting::greedy;
  device_array<unsigned char> scratch(
      ctx, is_greedy ? ddtree::accept_greedy_workspace_bytes(ctx, c.shape)
                     : ddtree::accept_sampled_workspace_bytes(ctx, c.shape));
  auto const status =
      is_greedy
          ? ddtree::accept_greedy(ctx, c.shape, placed.batch(), placed.tree(), placed.logits(),
                                  placed.view(out), scratch.as_workspace(), placed.options())
          : ddtree::accept_sampled(ctx, c.shape, placed.batch(), placed.tree(), placed.logits(),
                                   placed.how(), placed.view(out), scratch.as_workspace(),
                                   placed.options());
  CAPTURE(status.message);
  REQUIRE(status);
  return {out.exact(), out.log_probs()};
}

/// Within 1e-5, of the value where it is large.
bool is_close(float a, float b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;
  return std::fabs(a - b) <= 1e-5f * std::max(1.0f, std::fabs(b));
}

void require_equal(outcome const& got, outcome const& expected) {
  auto const at = std::mismatch(got.exact.begin(), got.exact.end(), expected.exact.begin()).first -
                  got.exact.begin();
  CAPTURE(at);
  REQUIRE(got.exact == expected.exact);
  REQUIRE(std::equal(got.log_prob.begin(), got.log_prob.end(), expected.log_prob.begin(),
                     expected.log_prob.end(), is_close));
}

/// Every variant gives what the CPU gives, and all the same bits.
void check_variants(accept_batch const& c) {
  outcome const expected = accept(context::cpu(threads_here()), c);
  bool const is_greedy = c.how == setting::greedy;
  words first;
  for (auto const& [name, ctx] : contexts_for(is_greedy ? ddtree::operation::accept_greedy
                                                        : ddtree::operation::accept_sampled)) {
    CAPTURE(name);
    outcome const got = accept(ctx, c);
    require_equal(got, expected);
    words bits(got.log_prob.size());
    std::memcpy(bits.data(), got.log_prob.data(), bits.size() * sizeof(float));
    if (first.empty()) first = bits;
    REQUIRE(bits == first);
  }
}

round_shape random_shape(random_engine& random, int least_vocab, int most_vocab) {
  round_shape s;
  s.batch = uniform(random, 1, 12);
  s.vocab = uniform(random, least_vocab, most_vocab);
  s.depth = uniform(random, 1, 8);
  s.budget = uniform(random, 0, most_vocab > 10000 ? 12 : 31);
  return s;
}

// ---- shards

/// Which columns the ranks hold: two ranges each, apart by columns that belong to nobody.
struct partition {
  std::vector<ddtree::vocab_ranges> rank;
  std::vector<index_t> columns;
};

partition random_partition(random_engine& random, int ranks, index_t vocab) {
  std::vector<index_t> cut{0, vocab};
  for (int i = 1; i < 2 * ranks; ++i) cut.push_back(uniform(random, 0, static_cast<int>(vocab)));
  std::sort(cut.begin(), cut.end());
  partition p;
  for (std::size_t r = 0; r < sized(ranks); ++r) {
    std::size_t const pieces[2] = {r, 2 * sized(ranks) - 1 - r};
    ddtree::vocab_ranges ranges;
    index_t column = uniform(random, 0, 3);
    for (std::size_t i = 0; i < 2; ++i) {
      index_t const begin = cut[pieces[i]], end = cut[pieces[i] + 1];
      ranges.range[i] = {column, end - begin, begin};
      column += end - begin + uniform(random, 0, 3);
    }
    p.rank.push_back(ranges);
    p.columns.push_back(std::max<index_t>(column, 1));
  }
  return p;
}

/// A rank's columns of whole rows; those of nobody hold rubbish.
std::vector<unsigned char> columns_of(accept_batch const& c, ddtree::vocab_ranges const& ranges,
                                      index_t columns) {
  std::size_t const size = element_bytes(c.type);
  std::size_t const rows = sized(c.shape.batch * c.shape.width());
  std::vector<unsigned char> out(rows * sized(columns) * size, poison_byte);
  for (std::size_t row = 0; row < rows; ++row) {
    for (auto const& range : ranges.range) {
      if (range.count == 0) continue;
      std::memcpy(&out[(row * sized(columns) + sized(range.local_begin)) * size],
                  &c.logits[(row * sized(c.shape.vocab) + sized(range.global_begin)) * size],
                  sized(range.count) * size);
    }
  }
  return out;
}

/// All ranks' contributions, one after the other.
std::vector<unsigned char> contribute(context const& ctx, accept_batch const& c,
                                      partition const& p) {
  placed_batch placed(ctx, c);
  std::size_t const bytes = ddtree::accept_shard_bytes(c.shape, placed.how(), placed.options());
  device_array<unsigned char> scratch(ctx, ddtree::accept_shard_workspace_bytes(ctx, c.shape));
  std::vector<unsigned char> all;
  for (std::size_t r = 0; r < p.rank.size(); ++r) {
    device_array<unsigned char> mine(ctx, columns_of(c, p.rank[r], p.columns[r]));
    device_array<unsigned char> out(ctx, bytes);
    ddtree::logits_view shard;
    shard.data = mine.data();
    shard.type = c.type;
    shard.vocab = p.columns[r];
    auto const status = ddtree::accept_shard(ctx, c.shape, placed.batch(), placed.tree(), shard,
                                             p.rank[r], placed.how(), {out.data(), bytes},
                                             scratch.as_workspace(), placed.options());
    CAPTURE(status.message);
    REQUIRE(status);
    auto const values = out.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

outcome merge(context const& ctx, accept_batch const& c, int ranks,
              std::vector<unsigned char> const& contributions) {
  placed_batch placed(ctx, c);
  accepted_words out(ctx, c.shape);
  device_array<unsigned char> all(ctx, contributions);
  device_array<unsigned char> scratch(ctx,
                                      ddtree::accept_merge_workspace_bytes(ctx, c.shape, ranks));
  auto const status = ddtree::accept_merge(ctx, c.shape, placed.batch(), placed.tree(),
                                           {all.data(), ranks, 0}, placed.how(), placed.view(out),
                                           scratch.as_workspace(), placed.options());
  CAPTURE(status.message);
  REQUIRE(status);
  return {out.exact(), out.log_probs()};
}

void check_shards(random_engine& random, round_shape const& shape, dtype type, setting how,
                  int ranks) {
  context const gpu = cuda_context();
  context const cpu = context::cpu(threads_here());
  accept_batch c = random_batch(random, shape, type, how);
  if (how != setting::greedy && how != setting::temperature)
    c.max_top_k = uniform(random, 0, 3) == 0 ? 1024 : uniform(random, 1, 64);
  partition const p = random_partition(random, ranks, shape.vocab);
  auto const of_cpu = contribute(cpu, c, p);
  auto const of_gpu = contribute(gpu, c, p);
  outcome const expected = merge(cpu, c, ranks, of_cpu);
  CAPTURE(static_cast<int>(type), static_cast<int>(how), ranks, shape.vocab, c.max_top_k);
  require_equal(merge(gpu, c, ranks, of_gpu), expected);
  // A contribution means the same whichever backend made it.
  require_equal(merge(cpu, c, ranks, of_gpu), expected);
  require_equal(merge(gpu, c, ranks, of_cpu), expected);
}

}  // namespace

TEST_CASE("accept_greedy and accept_sampled equal the CPU's in every dtype and setting",
          "[accept][cuda]") {
  random_engine random(1);
  for (dtype const type : types) {
    for (setting const how : settings) {
      for (int round = 0; round < 16; ++round) {
        int const most = round < 10 ? 2000 : round < 14 ? 10000 : 40000;
        accept_batch const c =
            random_batch(random, random_shape(random, round < 10 ? 50 : most / 4, most), type, how);
        CAPTURE(static_cast<int>(type), static_cast<int>(how), round, c.shape.vocab);
        check_variants(c);
      }
    }
  }
}

TEST_CASE("accept_greedy and accept_sampled equal the CPU's over 151,936 tokens",
          "[accept][cuda]") {
  random_engine random(2);
  round_shape shape;
  shape.batch = 4;
  shape.vocab = 151936;
  shape.depth = 5;
  shape.budget = 8;
  for (dtype const type : types) {
    for (setting const how : {setting::greedy, setting::temperature, setting::all}) {
      accept_batch const c = random_batch(random, shape, type, how);
      CAPTURE(static_cast<int>(type), static_cast<int>(how));
      check_variants(c);
    }
  }
}

TEST_CASE("accept_greedy and accept_sampled give the same bits in 200 runs", "[accept][races]") {
  random_engine random(5);
  round_shape shape;
  shape.batch = 2;
  shape.vocab = 3001;
  shape.depth = 7;
  shape.budget = 20;
  for (setting const how : {setting::greedy, setting::temperature, setting::all}) {
    accept_batch const c = random_batch(random, shape, dtype::bf16, how);
    for (auto const& [name, ctx] :
         contexts_for(how == setting::greedy ? ddtree::operation::accept_greedy
                                             : ddtree::operation::accept_sampled)) {
      CAPTURE(name, static_cast<int>(how));
      outcome const first = accept(ctx, c);
      for (int run = 1; run < 200; ++run) {
        outcome const again = accept(ctx, c);
        REQUIRE(again.exact == first.exact);
        REQUIRE(std::memcmp(again.log_prob.data(), first.log_prob.data(),
                            first.log_prob.size() * sizeof(float)) == 0);
      }
    }
  }
}

namespace {

struct extents {
  index_t batch;
  std::int32_t budget;
  index_t vocab;
};

void check_extents(std::vector<extents> const& all) {
  random_engine random(4);
  std::size_t turn = 0;
  for (extents const e : all) {
    for (setting const how : settings) {
      dtype const type = types[turn++ % std::size(types)];
      round_shape shape;
      shape.batch = e.batch;
      shape.vocab = e.vocab;
      shape.depth = 7;
      shape.budget = e.budget;
      accept_batch const c = random_batch(random, shape, type, how);
      CAPTURE(static_cast<int>(how), e.batch, e.budget, e.vocab);
      check_variants(c);
    }
  }
}

}  // namespace

TEST_CASE("accept_greedy and accept_sampled equal the CPU's with few columns",
          "[accept][cuda][small]") {
  // Fewer columns than slices, fewer packets than threads.
  check_extents({{1, 0, 1}, {1, 0, 5}, {2, 1, 63}, {3, 1, 1027}});
}

TEST_CASE("accept_greedy and accept_sampled equal the CPU's with many nodes", "[accept][cuda]") {
  check_extents({{1, 1024, 77}, {1, 2047, 33}});
}

TEST_CASE("accept_greedy and accept_sampled equal the CPU's on teams of 2 and 4 blocks",
          "[accept][cuda][small]") {
  check_extents({{1, 1, 4096}, {30, 0, 2049}});
}

TEST_CASE("accept_greedy and accept_sampled equal the CPU's on teams of 2, 4 and 8 blocks",
          "[accept][cuda]") {
  check_extents(
      {{1, 0, 8192}, {1, 6, 8193}, {3, 1, 10007}, {1, 64, 9000}, {64, 3, 8200}, {65, 2, 4100}});
}

TEST_CASE("accept_shard and accept_merge equal the CPU's for 1, 2 and 4 ranks", "[accept][cuda]") {
  random_engine random(3);
  for (dtype const type : types) {
    for (setting const how : settings) {
      for (int const ranks : {1, 2, 4}) {
        for (int const most : {300, 3000, 12000}) {
          check_shards(random, random_shape(random, most / 6, most), type, how, ranks);
        }
      }
    }
  }
}
