// SPDX-License-Identifier: Apache-2.0
// One call of build_tree: its requests, how their arrays stand in memory, and the comparison with
// the oracle.
#pragma once

#include "ddtree/build.hpp"

#include "oracle/build.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ddtree_test {

using ddtree::dtype;
using ddtree::operation;
using ddtree::round_shape;
using oracle::build::build_input;
using oracle::build::tree;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int share_of_cases = 50;  // sanitizers are slow: a fiftieth
#else
inline constexpr int share_of_cases = 1;
#endif

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr std::int64_t far = std::int64_t{1} << 50;  // a limit that limits nothing

class random_numbers {
 public:
  explicit random_numbers(unsigned seed) : engine_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }
  float normal(float sigma) { return std::normal_distribution<float>(0.0f, sigma)(engine_); }
  template <class T>
  T any_of(std::vector<T> const& values) {
    return values[sized(between(0, static_cast<int>(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

enum class row_kind { normalised, bf16, integers, equal, one_hot };
inline std::vector<row_kind> const row_kinds = {
    row_kind::normalised, row_kind::bf16, row_kind::integers, row_kind::equal, row_kind::one_hot};

inline float to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0xffff0000u;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Log-probs of one depth, best first.
inline std::vector<float> make_log_probs(random_numbers& rng, row_kind kind, int top_k,
                                         float sigma) {
  std::vector<float> row(sized(top_k));
  for (float& x : row) x = rng.normal(sigma);
  if (kind == row_kind::bf16) std::transform(row.begin(), row.end(), row.begin(), to_bf16);
  std::sort(row.rbegin(), row.rend());
  float sum = 0.0f;
  for (float const x : row) sum += std::exp(x - row[0]);
  float const log_sum = row[0] + std::log(sum);
  for (std::size_t r = 0; r < row.size(); ++r) {
    switch (kind) {
      case row_kind::normalised:
      case row_kind::bf16: row[r] = std::min(row[r] - log_sum, 0.0f); break;
      case row_kind::integers: row[r] = std::min(std::round(row[r] - log_sum), 0.0f); break;
      case row_kind::equal: row[r] = -2.5f; break;
      case row_kind::one_hot: row[r] = r == 0 ? 0.0f : -infinity; break;
    }
  }
  return row;
}

inline build_input make_input(random_numbers& rng, row_kind kind, round_shape const& shape) {
  build_input in;
  in.vocab = static_cast<int>(shape.vocab);
  in.root = rng.between(0, in.vocab - 1);
  in.budget = shape.budget;
  float const sigma = rng.any_of<float>({0.5f, 2.5f, 6.0f, 12.0f});
  for (int d = 0; d < shape.depth; ++d) {
    in.log_probs.push_back(make_log_probs(rng, kind, shape.top_k, sigma));
    std::vector<int> tokens(sized(shape.top_k));
    for (int& t : tokens) t = rng.between(0, in.vocab - 1);
    in.tokens.push_back(tokens);
  }
  return in;
}

/// Puts something at a random place that ends its row.
inline void spoil(random_numbers& rng, build_input& in) {
  auto const d = sized(rng.between(0, static_cast<int>(in.tokens.size()) - 1));
  auto const r = sized(rng.between(0, static_cast<int>(in.tokens[d].size()) - 1));
  switch (rng.between(0, 7)) {
    case 0: in.log_probs[d][r] = not_a_number; break;
    case 1: in.log_probs[d][r] = infinity; break;
    case 2: in.log_probs[d][r] = 0.5f; break;
    case 3: in.log_probs[d][r] = 0.0f; break;  // rises, unless it is the first
    case 4: in.log_probs[d][r] = -infinity; break;
    case 5: in.log_probs[d][r] = -8192.5f; break;
    case 6: in.tokens[d][r] = -1; break;
    default: in.tokens[d][r] = in.vocab; break;
  }
}

/// A batch to build. Row b without an input is inactive.
struct build_batch {
  round_shape shape;
  std::vector<std::optional<build_input>> rows;
  dtype ids = dtype::i32;
  bool with_limits = false;  // binds cache_len, capacity and max_position
  std::int32_t seed_depth = 0;
  float min_log_weight = -infinity;
};

inline build_batch batch_of(round_shape shape, std::vector<std::optional<build_input>> rows) {
  build_batch c;
  c.shape = shape;
  c.shape.batch = static_cast<ddtree::index_t>(rows.size());
  c.rows = std::move(rows);
  return c;
}

inline std::vector<tree> expected_trees(build_batch const& c) {
  std::vector<tree> trees;
  for (auto row : c.rows) {
    if (row) {
      row->seed_depth = c.seed_depth;
      row->min_log_weight = c.min_log_weight;
      trees.push_back(
          oracle::build::build_tree(*row, c.shape.budget, c.shape.depth, c.shape.top_k));
    } else {
      trees.push_back(oracle::build::inactive_tree(sized(c.shape.width())));
    }
  }
  return trees;
}

/// Copies of all arrays of a tree buffer.
struct tree_values {
  explicit tree_values(tree_buffers const& t)
      : token(t.token.values()),
        parent(t.parent.values()),
        depth(t.depth.values()),
        rank(t.rank.values()),
        first_child(t.first_child.values()),
        next_sibling(t.next_sibling.values()),
        num_nodes(t.num_nodes.values()),
        log_weight(t.log_weight.values()),
        ancestors(t.ancestors.values()),
        flags(t.flags.values()) {}

  std::vector<int> token, parent, depth, rank, first_child, next_sibling, num_nodes;
  std::vector<float> log_weight;
  std::vector<std::uint32_t> ancestors, flags;
};

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Where row b of a batch differs from a tree; empty where nowhere. Flags are compared apart.
inline std::string difference(tree_values const& got, std::size_t b, tree const& want) {
  std::size_t const width = want.token.size();
  std::size_t const words = (width + 31) / 32;
  if (got.num_nodes[b] != want.num_nodes) {
    return "num_nodes " + std::to_string(got.num_nodes[b]) + " not " +
           std::to_string(want.num_nodes);
  }
  for (std::size_t i = 0; i < width; ++i) {
    std::size_t const at = b * width + i;
    std::string const row = " of row " + std::to_string(i);
    if (got.token[at] != want.token[i]) return "token" + row;
    if (got.parent[at] != want.parent[i]) return "parent" + row;
    if (got.depth[at] != want.depth[i]) return "depth" + row;
    if (got.rank[at] != want.rank[i]) return "rank" + row;
    if (!same_bits(got.log_weight[at], want.log_weight[i])) return "log_weight" + row;
    if (got.first_child[at] != want.first_child[i]) return "first_child" + row;
    if (got.next_sibling[at] != want.next_sibling[i]) return "next_sibling" + row;
    if (!std::equal(want.ancestors[i].begin(), want.ancestors[i].end(),
                    got.ancestors.begin() + static_cast<std::ptrdiff_t>(at * words))) {
      return "ancestors" + row;
    }
  }
  return "";
}

inline std::uint32_t flags_of(tree const& t) {
  return (t.cut ? ddtree::flag::candidates_cut : 0u) |
         (t.top_k_limited ? ddtree::flag::top_k_limited : 0u) |
         (t.length_limited ? ddtree::flag::length_limited : 0u) |
         (t.bad_id ? ddtree::flag::id_out_of_range : 0u);
}

using id_list = std::vector<std::int64_t>;

/// The arrays of a call of build_tree, in a context's memory.
///
/// Row b of the batch is request 2 (batch - 1 - b) + 1 of a pool twice as large; requests that no
/// row names, and those of inactive rows, hold nonsense.
class build_call {
 public:
  build_call(ddtree::context const& on, build_batch const& c)
      : ctx(on),
        shape(pool_shape(c)),
        in(on, shape),
        out(on, shape),
        root(on, c.ids, roots(c)),
        request(on, c.ids, requests(c)),
        cache_len(on, c.ids, by_request(c, c.with_limits, length)),
        budget(on, c.ids, by_request(c, true, [](auto const& r, std::size_t) { return r.budget; })),
        max_depth(on, c.ids,
                  by_request(c, true, [](auto const& r, std::size_t) { return r.max_depth; })),
        capacity(on, c.ids,
                 by_request(c, c.with_limits,
                            [](auto const& r, std::size_t b) { return limit(r.rows_left, b); })),
        max_position(
            on, c.ids,
            by_request(c, c.with_limits,
                       [](auto const& r, std::size_t b) { return limit(r.positions_left, b); })),
        scratch(on, ddtree::build_tree_workspace_bytes(on, shape)) {
    fill_candidates(c);
    options.budget = budget.view();
    options.max_depth = max_depth.view();
    options.capacity = capacity.view();
    options.max_position = max_position.view();
    options.seed_depth = c.seed_depth;
    options.min_log_weight = c.min_log_weight;
    batch = {cache_len.view(), request.view()};
  }

  ddtree::status run() {
    return ddtree::build_tree(ctx, shape, batch, in.view(), root.view(), out.view(),
                              scratch.as_workspace(), options);
  }

  bool intact() const {
    return in.intact() && out.intact() && root.intact() && request.intact() && cache_len.intact() &&
           budget.intact() && max_depth.intact() && capacity.intact() && max_position.intact() &&
           scratch.intact();
  }

  /// The flag that the candidates of row b come with.
  static std::uint32_t flag_in(std::size_t b) { return b % 2 == 1 ? ddtree::flag::draft_nan : 0u; }

  ddtree::context ctx;
  round_shape shape;
  candidate_buffers in;
  tree_buffers out;
  optional_ids root, request, cache_len, budget, max_depth, capacity, max_position;
  buffer<unsigned char> scratch;
  ddtree::build_options options;
  ddtree::batch_view batch;

 private:
  static round_shape pool_shape(build_batch const& c) {
    round_shape s = c.shape;
    s.requests = 2 * s.batch;
    return s;
  }
  static std::int64_t request_of(build_batch const& c, std::size_t b) {
    return static_cast<std::int64_t>(2 * (c.rows.size() - 1 - b) + 1);
  }
  static id_list requests(build_batch const& c) {
    id_list ids;
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      // Inactive: below the range or past it.
      std::int64_t const none = b % 2 == 0 ? -1 : static_cast<std::int64_t>(2 * c.rows.size());
      ids.push_back(c.rows[b] ? request_of(c, b) : none);
    }
    return ids;
  }
  static id_list roots(build_batch const& c) {
    id_list ids;
    for (auto const& row : c.rows) ids.push_back(row ? row->root : 123456789);
    return ids;
  }
  static std::int64_t length(build_input const&, std::size_t b) {
    return static_cast<std::int64_t>(1000 + 17 * b);
  }
  static std::int64_t limit(std::int64_t left, std::size_t b) {
    return left >= far ? std::numeric_limits<std::int32_t>::max() : length({}, b) + left;
  }
  template <class Value>
  static std::optional<id_list> by_request(build_batch const& c, bool bound, Value value) {
    if (!bound) return std::nullopt;
    id_list values(2 * c.rows.size(), -77);
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      if (c.rows[b]) values[sized(request_of(c, b))] = value(*c.rows[b], b);
    }
    return values;
  }

  void fill_candidates(build_batch const& c) {
    std::vector<int> tokens(in.token.size(), -5);
    std::vector<float> log_probs(in.token.size(), not_a_number);
    std::vector<std::uint32_t> flags(c.rows.size(), ~0u);
    auto const k = static_cast<std::size_t>(shape.top_k);
    for (std::size_t b = 0; b < c.rows.size(); ++b) {
      if (!c.rows[b]) continue;
      flags[b] = flag_in(b);
      for (std::size_t d = 0; d < c.rows[b]->tokens.size(); ++d) {
        auto const at = static_cast<std::ptrdiff_t>((b * sized(shape.depth) + d) * k);
        std::copy_n(c.rows[b]->tokens[d].begin(), k, tokens.begin() + at);
        std::copy_n(c.rows[b]->log_probs[d].begin(), k, log_probs.begin() + at);
      }
    }
    in.token.assign(tokens);
    in.log_prob.assign(log_probs);
    in.flags.assign(flags);
  }
};

inline void check(ddtree::context const& ctx, build_batch const& c, std::vector<tree> const& want) {
  build_call call(ctx, c);
  auto const status = call.run();
  CAPTURE(status.message);
  REQUIRE(status);
  REQUIRE(call.intact());
  tree_values const got(call.out);
  for (std::size_t b = 0; b < c.rows.size(); ++b) {
    CAPTURE(b);
    REQUIRE(difference(got, b, want[b]) == "");
    std::uint32_t const flags_in = c.rows[b] ? build_call::flag_in(b) : 0u;
    REQUIRE(got.flags[b] == (flags_of(want[b]) | flags_in));
  }
}

inline void check_everywhere(build_batch const& c) {
  auto const want = expected_trees(c);
  for (auto const& on : contexts_for(operation::build_tree)) {
    CAPTURE(on.name);
    check(on.ctx, c, want);
  }
}

inline round_shape make_shape(int depth, int top_k, int budget, ddtree::index_t vocab = 1000) {
  round_shape s;
  s.vocab = vocab;
  s.depth = depth;
  s.top_k = top_k;
  s.budget = budget;
  return s;
}

/// One request with these rows of log-probs; the token of rank r at depth d is 10 d + r.
inline build_input input_of(std::vector<std::vector<float>> const& log_probs, int budget) {
  build_input in;
  in.vocab = 1000;
  in.root = 7;
  in.budget = budget;
  in.log_probs = log_probs;
  for (std::size_t d = 0; d < log_probs.size(); ++d) {
    in.tokens.emplace_back();
    for (std::size_t r = 0; r < log_probs[d].size(); ++r) {
      in.tokens.back().push_back(static_cast<int>(10 * (d + 1) + r));
    }
  }
  return in;
}

/// A batch of one such request.
inline build_batch single(build_input const& in) {
  auto const k = in.log_probs.empty() ? 1 : static_cast<int>(in.log_probs[0].size());
  return batch_of(
      make_shape(static_cast<int>(in.log_probs.size()), k, static_cast<int>(in.budget), in.vocab),
      {in});
}

}  // namespace ddtree_test
