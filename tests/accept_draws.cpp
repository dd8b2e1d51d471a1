// SPDX-License-Identifier: Apache-2.0
// A million draws follow the distribution that the logits and filters describe.
#include "ddtree/accept.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/trees.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::index_t;
using ddtree::round_shape;

constexpr int vocab = 50;
constexpr index_t batch = 50000;
constexpr int calls = 20;

/// Logits 0, 0.1 .. 4.9, in an order of their own.
double logit(int token) { return 0.1 * (token * 17 % vocab); }

struct filter {
  char const* name;
  float temperature;
  int top_k;    // 0 = off
  float top_p;  // 1 = off
  float min_p;  // 0 = off
};

/// The exact probability of each token; no cut falls near a token's.
std::vector<double> distribution(filter const& f) {
  std::vector<double> by_rank(vocab);  // of logit 4.9 first
  for (int r = 0; r < vocab; ++r) by_rank[sized(r)] = std::exp(-0.1 * r / double{f.temperature});
  if (f.top_k > 0) by_rank.resize(sized(f.top_k));
  double total = 0;
  for (double const p : by_rank) total += p;
  std::size_t kept = 0;
  for (double sum = 0; kept < by_rank.size() && sum < double{f.top_p} * total;) {
    sum += by_rank[kept++];
  }
  by_rank.resize(kept);
  while (by_rank.back() < double{f.min_p}) by_rank.pop_back();
  total = 0;
  for (double const p : by_rank) total += p;
  std::vector<double> out(vocab, 0.0);
  for (int t = 0; t < vocab; ++t) {
    auto const rank = sized(vocab - 1 - t * 17 % vocab);
    if (rank < by_rank.size()) out[sized(t)] = by_rank[rank] / total;
  }
  return out;
}

/// What chi-square with this many degrees of freedom exceeds with probability 0.001 (Wilson and
/// Hilferty; within 0.1 from 10 degrees on).
double critical_value(double degrees) {
  double const a = 2 / (9 * degrees);
  double const root = 1 - a + 3.0902 * std::sqrt(a);
  return degrees * root * root * root;
}

/// Requests that decode plainly, all from the same row of logits, each with a seed of its own.
class plain_decoding {
 public:
  plain_decoding(context const& ctx, filter const& f)
      : ctx_(ctx),
        tree_(ctx, shape()),
        out_(ctx, shape()),
        logits_(ctx, vocab),
        row_(ctx, std::vector<std::int32_t>(batch, 0)),
        cache_len_(ctx, std::vector<std::int32_t>(batch, 1000)),
        top_k_(ctx, std::vector<std::int32_t>(batch, f.top_k)),
        temperature_(ctx, std::vector<float>(batch, f.temperature)),
        top_p_(ctx, std::vector<float>(batch, f.top_p)),
        min_p_(ctx, std::vector<float>(batch, f.min_p)),
        seed_(ctx, std::vector<std::int64_t>(batch, 0)),
        scratch_(ctx, ddtree::accept_sampled_workspace_bytes(ctx, shape())) {
    std::vector<float> x;
    for (int t = 0; t < vocab; ++t) x.push_back(static_cast<float>(logit(t)));
    logits_.assign(x);
    std::vector<std::int32_t> const none(batch, -1), zero(batch, 0);
    tree_.token.assign(zero);
    tree_.parent.assign(none);
    tree_.depth.assign(zero);
    tree_.first_child.assign(none);
    tree_.next_sibling.assign(none);
    tree_.num_nodes.assign(std::vector<std::int32_t>(batch, 1));
    tree_.flags.assign(std::vector<std::uint32_t>(batch, 0));
  }

  /// A token per request.
  std::vector<ddtree::token_t> draw(int call) {
    std::vector<std::int64_t> seeds;
    for (index_t b = 0; b < batch; ++b) seeds.push_back(call * batch + b);
    seed_.assign(seeds);
    ddtree::logits_view target;
    target.data = logits_.data();
    target.row_offset = row_.data();
    ddtree::sampling how;
    how.temperature = temperature_.data();
    how.top_k = top_k_.data();
    how.top_p = top_p_.data();
    how.min_p = min_p_.data();
    how.seed = seed_.data();
    REQUIRE(ddtree::accept_sampled(ctx_, shape(), {cache_len_.data(), {}}, tree_.view(), target,
                                   how, out_.view(), scratch_.as_workspace()));
    return out_.bonus.values();
  }

 private:
  static round_shape shape() {
    round_shape s;
    s.batch = batch;
    s.vocab = vocab;
    s.depth = 0;
    s.budget = 0;
    return s;
  }

  context ctx_;
  tree_buffers tree_;
  accepted_buffers out_;
  buffer<float> logits_;
  buffer<std::int32_t> row_, cache_len_, top_k_;
  buffer<float> temperature_, top_p_, min_p_;
  buffer<std::int64_t> seed_;
  buffer<unsigned char> scratch_;
};

}  // namespace

TEST_CASE("a million draws follow the exact distribution", "[accept]") {
  filter const filters[] = {
      {"temperature", 0.8f, 0, 1.0f, 0.0f},
      {"top_k", 1.0f, 20, 1.0f, 0.0f},
      {"top_p", 1.0f, 0, 0.9f, 0.0f},
      {"min_p", 1.0f, 0, 1.0f, 0.06f},
  };
  for (auto const& named : contexts_for(ddtree::operation::accept_sampled)) {
    for (filter const& f : filters) {
      CAPTURE(named.name, f.name);
      plain_decoding decoding(named.ctx, f);
      std::vector<double> const expected = distribution(f);
      std::vector<index_t> count(vocab, 0);
      index_t foreign = 0;
      for (int call = 0; call < calls; ++call) {
        for (ddtree::token_t const token : decoding.draw(call)) {
          bool const is_token = token >= 0 && token < vocab;
          ++(is_token ? count[sized(token)] : foreign);
        }
      }
      CHECK(foreign == 0);
      double chi_square = 0, tokens = 0;
      for (int t = 0; t < vocab; ++t) {
        CAPTURE(t);
        double const mean = expected[sized(t)] * static_cast<double>(calls * batch);
        if (mean == 0) {
          CHECK(count[sized(t)] == 0);
          continue;
        }
        double const difference = static_cast<double>(count[sized(t)]) - mean;
        chi_square += difference * difference / mean;
        ++tokens;
      }
      CAPTURE(tokens);
      CHECK(chi_square < critical_value(tokens - 1));
    }
  }
}
