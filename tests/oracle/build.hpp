// SPDX-License-Identifier: Apache-2.0
// Tree construction restated: rank paths as vectors, weights as integers summed along the whole
// path. Nothing of the library is used.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace oracle::build {

using rank_list = std::vector<int>;  // from the root; compares as the paper's tuples do

/// What one request brings to a build. `tokens` and `log_probs` are [depth][top_k].
struct build_input {
  std::vector<std::vector<int>> tokens;
  std::vector<std::vector<float>> log_probs;
  int vocab = 1;
  long long root = 0;
  long long budget = 0;
  long long max_depth = 31;
  /// Rows and positions left after the cache: capacity - S and max_position - S.
  long long rows_left = 1LL << 50;
  long long positions_left = 1LL << 50;
  int seed_depth = 0;
  float min_log_weight = -std::numeric_limits<float>::infinity();
};

/// What one request gets, padding included.
struct tree {
  std::vector<int> token, parent, depth, rank, first_child, next_sibling;
  std::vector<float> log_weight;
  std::vector<std::vector<std::uint32_t>> ancestors;  // rows of words
  int num_nodes = 0;
  bool cut = false, top_k_limited = false, length_limited = false, bad_id = false;
};

/// A log-prob as an integer multiple of 2^-44, ties to even.
inline long long fixed_point(float log_prob) {
  return std::llrint(std::ldexp(static_cast<long double>(log_prob), 44));
}

/// The candidates that may be selected: weights by depth and rank.
struct candidate_table {
  std::vector<std::vector<long long>> weights;
  bool cut = false;

  bool has(rank_list const& path) const {
    std::size_t const depth = path.size();
    return depth <= weights.size() && path.back() < static_cast<int>(weights[depth - 1].size());
  }
  long long weight(rank_list const& path) const {
    long long sum = 0;
    for (std::size_t d = 0; d < path.size(); ++d) {
      sum += weights[d][static_cast<std::size_t>(path[d])];
    }
    return sum;
  }
};

inline candidate_table read_candidates(build_input const& in, long long nodes, long long depth) {
  candidate_table table;
  for (long long d = 0; d < std::min(nodes, depth); ++d) {
    auto const& tokens = in.tokens[static_cast<std::size_t>(d)];
    auto const& log_probs = in.log_probs[static_cast<std::size_t>(d)];
    table.weights.emplace_back();
    for (std::size_t r = 0; r < log_probs.size() && static_cast<long long>(r) < nodes; ++r) {
      float const x = log_probs[r];
      if (x < -8192.0f) break;
      bool const rises = r > 0 && x > log_probs[r - 1];
      bool const is_id = 0 <= tokens[r] && tokens[r] < in.vocab;
      if (std::isnan(x) || x > 0.0f || rises || !is_id) {
        table.cut = true;
        break;
      }
      table.weights.back().push_back(fixed_point(x));
    }
  }
  return table;
}

/// Best first: weight descending, then the path.
using place = std::pair<long long, rank_list>;  // {-weight, path}

/// Every prefix that may be selected, in order. For small tables only.
inline std::vector<place> every_prefix(candidate_table const& table) {
  std::vector<place> all;
  std::vector<rank_list> level = {{}};
  while (!level.empty()) {
    std::vector<rank_list> next;
    for (rank_list path : level) {
      for (path.push_back(0); table.has(path); ++path.back()) {
        all.push_back({-table.weight(path), path});
        next.push_back(path);
      }
    }
    level = next;
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// The first `count` of the same list, as the paper's heap takes them (Algorithm 1).
inline std::vector<place> best_prefixes(candidate_table const& table, std::size_t count) {
  std::vector<place> taken;
  std::set<place> heap;
  auto const push = [&](rank_list const& path) {
    if (table.has(path)) heap.insert({-table.weight(path), path});
  };
  push({0});
  while (taken.size() < count && !heap.empty()) {
    taken.push_back(*heap.begin());
    heap.erase(heap.begin());
    rank_list path = taken.back().second;
    ++path.back();
    push(path);
    --path.back();
    path.push_back(0);
    push(path);
  }
  return taken;
}

/// The nodes of the tree but its root, in order, from the list of prefixes in order (which must be
/// long enough: the budget, and as many again as there are seeds).
inline std::vector<place> choose(build_input const& in, candidate_table const& table,
                                 std::vector<place> const& ordered, long long nodes) {
  std::set<place> chosen;
  rank_list seed = {0};
  for (long long d = 0; d < std::min<long long>(in.seed_depth, nodes) && table.has(seed); ++d) {
    chosen.insert({-table.weight(seed), seed});
    seed.push_back(0);
  }
  bool const no_minimum = std::isnan(in.min_log_weight);
  long double const lowest = std::rint(std::ldexp(static_cast<long double>(in.min_log_weight), 44));
  for (place const& p : ordered) {
    if (static_cast<long long>(chosen.size()) >= nodes) break;
    if (no_minimum || static_cast<long double>(-p.first) >= lowest) chosen.insert(p);
  }
  return {chosen.begin(), chosen.end()};
}

/// The rows after the nodes.
inline void pad(tree& t, std::size_t width) {
  t.num_nodes = static_cast<int>(t.token.size());
  t.token.resize(width, t.token[0]);
  t.parent.resize(width, -1);
  t.depth.resize(width, 0);
  t.rank.resize(width, -1);
  t.log_weight.resize(width, -std::numeric_limits<float>::infinity());
  t.first_child.resize(width, -1);
  t.next_sibling.resize(width, -1);
  t.ancestors.assign(width, std::vector<std::uint32_t>((width + 31) / 32, 0u));
  for (std::size_t i = 0; i < width; ++i) {
    for (int j = static_cast<int>(i); j >= 0; j = t.parent[static_cast<std::size_t>(j)]) {
      t.ancestors[i][static_cast<std::size_t>(j / 32)] |= 1u << (j % 32);
    }
  }
}

inline tree root_alone(int token) {
  tree t;
  t.token = {token};
  t.parent = {-1};
  t.depth = {0};
  t.rank = {-1};
  t.log_weight = {0.0f};
  t.first_child = {-1};
  t.next_sibling = {-1};
  return t;
}

inline tree inactive_tree(std::size_t width) {
  tree t = root_alone(0);
  pad(t, width);
  return t;
}

enum class method { heap, enumeration };

/// `shape_budget` and `shape_depth` are the extents of the arrays.
inline tree build_tree(build_input const& in, int shape_budget, int shape_depth, int top_k,
                       method how = method::heap) {
  bool const is_id = 0 <= in.root && in.root < in.vocab;
  tree t = root_alone(is_id ? static_cast<int>(in.root) : 0);
  t.bad_id = !is_id;
  long long const budget = std::clamp<long long>(in.budget, 0, shape_budget);
  long long const depth = std::clamp<long long>(in.max_depth, 0, shape_depth);
  t.length_limited = in.rows_left < budget + 1 || in.positions_left < depth;
  long long const nodes = std::clamp<long long>(in.rows_left - 1, 0, budget);
  candidate_table const table =
      read_candidates(in, nodes, std::clamp<long long>(in.positions_left, 0, depth));
  t.cut = table.cut;

  auto const ordered = how == method::enumeration
                           ? every_prefix(table)
                           : best_prefixes(table, static_cast<std::size_t>(nodes + 32));
  std::map<rank_list, int> row_of;
  row_of[{}] = 0;
  for (place const& p : choose(in, table, ordered, nodes)) {
    rank_list path = p.second;
    int const row = static_cast<int>(t.token.size());
    row_of[path] = row;
    t.depth.push_back(static_cast<int>(path.size()));
    t.rank.push_back(path.back());
    t.token.push_back(in.tokens[path.size() - 1][static_cast<std::size_t>(path.back())]);
    t.log_weight.push_back(static_cast<float>(std::ldexp(static_cast<long double>(-p.first), -44)));
    t.top_k_limited = t.top_k_limited || path.back() == top_k - 1;
    t.first_child.push_back(-1);
    t.next_sibling.push_back(-1);
    if (path.back() > 0) {
      rank_list left = path;
      --left.back();
      t.next_sibling[static_cast<std::size_t>(row_of.at(left))] = row;
    }
    bool const is_first = path.back() == 0;
    path.pop_back();
    t.parent.push_back(row_of.at(path));
    if (is_first) t.first_child[static_cast<std::size_t>(t.parent.back())] = row;
  }
  pad(t, static_cast<std::size_t>(shape_budget) + 1);
  return t;
}

/// A tree made elsewhere: entry 0 is the root. `log_weights` may be empty.
struct link_input {
  std::vector<long long> parents, tokens;
  std::vector<float> log_weights;
  long long num_nodes = 1;
  int vocab = 1;
  int max_depth = 31;
};

inline tree link_tree(link_input const& in, std::size_t width) {
  bool const is_id = 0 <= in.tokens[0] && in.tokens[0] < in.vocab;
  tree t = root_alone(is_id ? static_cast<int>(in.tokens[0]) : 0);
  auto const limit = static_cast<long long>(width);
  t.bad_id = !is_id || in.num_nodes < 1 || in.num_nodes > limit;
  for (std::size_t i = 1; static_cast<long long>(i) < std::min(in.num_nodes, limit); ++i) {
    long long const parent = in.parents[i];
    long long const token = in.tokens[i];
    if (parent < 0 || parent >= static_cast<long long>(i) || token < 0 || token >= in.vocab) {
      t.bad_id = true;
      break;
    }
    int const depth = t.depth[static_cast<std::size_t>(parent)] + 1;
    if (depth > in.max_depth) {
      t.length_limited = true;
      break;
    }
    int rank = 0;
    for (std::size_t j = 1; j < i; ++j) {
      if (t.parent[j] != parent) continue;
      ++rank;
      if (t.next_sibling[j] < 0) t.next_sibling[j] = static_cast<int>(i);
    }
    if (rank == 0) t.first_child[static_cast<std::size_t>(parent)] = static_cast<int>(i);
    t.token.push_back(static_cast<int>(token));
    t.parent.push_back(static_cast<int>(parent));
    t.depth.push_back(depth);
    t.rank.push_back(rank);
    t.log_weight.push_back(in.log_weights.empty() ? 0.0f : in.log_weights[i]);
    t.first_child.push_back(-1);
    t.next_sibling.push_back(-1);
  }
  pad(t, width);
  return t;
}

}  // namespace oracle::build
