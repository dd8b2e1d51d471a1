// SPDX-License-Identifier: Apache-2.0
// Acceptance restated: the walk, and the drawing of a token in long double. Nothing of the library
// is used. What the library decides in its own polynomials can differ from this where two keys, or
// a sum and its target, all but coincide; such draws are marked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace oracle::accept {

// ---- the walk ----

/// Node 0 is the root. Siblings stand in rank order.
struct tree {
  std::vector<int> token{0};
  std::vector<int> parent{-1};

  int size() const { return static_cast<int>(token.size()); }
  int add(int from, int id) {
    parent.push_back(from);
    token.push_back(id);
    return size() - 1;
  }
  int depth_of(int node) const {
    return node == 0 ? 0 : 1 + depth_of(parent[static_cast<std::size_t>(node)]);
  }
  std::vector<int> children(int node) const {
    std::vector<int> found;
    for (int i = 1; i < size(); ++i) {
      if (parent[static_cast<std::size_t>(i)] == node) found.push_back(i);
    }
    return found;
  }
  std::optional<int> child(int node, int id) const {
    for (int const i : children(node)) {
      if (token[static_cast<std::size_t>(i)] == id) return i;
    }
    return std::nullopt;
  }
};

/// The target's token at a node; `matches` false = no token of the tree is equal to it.
struct target {
  int token = 0;
  bool matches = true;
};

struct limits {
  std::set<int> stop;
  long long remaining = std::numeric_limits<long long>::max();
};

struct result {
  std::vector<int> path;
  std::vector<int> token;
  bool stopped = false;
  bool limited = false;

  int num_accepted() const { return static_cast<int>(path.size()) - 1; }
  int bonus() const { return token.back(); }
};

/// target_at(node, depth) is asked for the rows on the path only.
template <class TargetAt>
result walk(tree const& t, limits const& limit, TargetAt target_at) {
  result r;
  for (std::optional<int> node = 0; node;) {
    target const said = target_at(*node, static_cast<int>(r.path.size()));
    r.path.push_back(*node);
    r.token.push_back(said.token);
    if (!said.matches) break;
    if (limit.stop.count(said.token) != 0) {
      r.stopped = true;
      break;
    }
    node = t.child(*node, said.token);
    if (node && static_cast<long long>(r.token.size()) >= limit.remaining) {
      r.limited = true;
      break;
    }
  }
  return r;
}

/// The definition that needs no walk: a node is accepted if and only if every edge from the root to
/// it matches. said[i] is the target's token at node i.
inline std::vector<int> accepted_by_edges(tree const& t, std::vector<target> const& said) {
  std::vector<int> accepted;
  for (int i = 0; i < t.size(); ++i) {
    bool every = true;
    for (int at = i; at != 0; at = t.parent[static_cast<std::size_t>(at)]) {
      int const from = t.parent[static_cast<std::size_t>(at)];
      target const& s = said[static_cast<std::size_t>(from)];
      every = every && s.matches && t.child(from, s.token) == at;
    }
    if (every) accepted.push_back(i);
  }
  return accepted;
}

// ---- noise ----

/// Philox4x32-10.
inline std::vector<std::uint32_t> philox(std::vector<std::uint32_t> counter, std::uint64_t key) {
  std::uint64_t k0 = key & 0xffffffffu, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const left = 0xd2511f53ull * counter[0];
    std::uint64_t const right = 0xcd9e8d57ull * counter[2];
    counter = {static_cast<std::uint32_t>((right >> 32) ^ counter[1] ^ k0),
               static_cast<std::uint32_t>(right & 0xffffffffu),
               static_cast<std::uint32_t>((left >> 32) ^ counter[3] ^ k1),
               static_cast<std::uint32_t>(left & 0xffffffffu)};
    k0 = (k0 + 0x9e3779b9u) & 0xffffffffu;
    k1 = (k1 + 0xbb67ae85u) & 0xffffffffu;
  }
  return counter;
}

inline long double gumbel(std::uint64_t seed, long long position, int token) {
  auto const p = static_cast<std::uint64_t>(position);
  std::uint32_t const word =
      philox({static_cast<std::uint32_t>(token) / 4, static_cast<std::uint32_t>(p),
              static_cast<std::uint32_t>(p >> 32), 0x44445452u},
             seed)[static_cast<std::size_t>(token % 4)];
  float const q = std::min((static_cast<float>(word) + 0.5f) / 4294967296.0f, 1.0f - 0x1p-24f);
  return -std::log(-std::log1p(-static_cast<long double>(q)));
}

// ---- what sampling sees of a row ----

struct row {
  std::vector<float> logits;
  std::vector<float> bias;    // empty = none
  std::vector<bool> allowed;  // empty = all
};

inline float sane(float x) {
  if (std::isnan(x)) return -std::numeric_limits<float>::infinity();
  return std::min(x, std::numeric_limits<float>::max());
}

inline bool has_nan(row const& r) {
  return std::any_of(r.logits.begin(), r.logits.end(), [](float x) {
    return std::isnan(x) || x == std::numeric_limits<float>::infinity();
  });
}

inline std::vector<float> adjusted(row const& r) {
  std::vector<float> x;
  for (std::size_t i = 0; i < r.logits.size(); ++i) {
    float value = sane(r.logits[i]);
    if (!r.bias.empty() && !std::isnan(r.bias[i])) value = sane(value + r.bias[i]);
    if (!r.allowed.empty() && !r.allowed[i]) value = -std::numeric_limits<float>::infinity();
    x.push_back(value);
  }
  return x;
}

inline float scaled(float x, float temperature) {
  float const most = std::numeric_limits<float>::max();
  bool const counts = temperature > 0 && std::isfinite(temperature);
  float const r = std::min(1.0f / (counts ? temperature : 1.0f), most);
  return std::isinf(x) ? x : std::clamp(x * r, -most, most);
}

inline int argmax(row const& r) {
  std::vector<float> const x = adjusted(r);
  return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
}

inline bool is_dead(row const& r) {
  for (float const x : adjusted(r)) {
    if (!std::isinf(x)) return false;
  }
  return true;
}

/// log-softmax of a token, of the logits as given or after bias, bitmask and temperature.
inline long double log_prob(row const& r, int token, bool processed, float temperature) {
  std::vector<float> y = processed ? adjusted(r) : r.logits;
  for (float& value : y) value = processed ? scaled(value, temperature) : sane(value);
  long double const most = *std::max_element(y.begin(), y.end());
  if (std::isinf(most)) return most;
  long double sum = 0;
  for (float const value : y) sum += std::exp(value - most);
  return y[static_cast<std::size_t>(token)] - most - std::log(sum);
}

// ---- drawing ----

struct parameters {
  float temperature = 0.0f;
  long long top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  bool min_p_first = false;
  std::uint64_t seed = 0;
};

/// Tokens that filters leave, and whether rounding may decide otherwise.
struct survivors {
  std::vector<int> token;  // by (logit descending, id ascending)
  bool is_close = false;
};

class drawing {
 public:
  drawing(row const& r, parameters const& p) : x_(adjusted(r)), p_(p) {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      z_.push_back(scaled(x_[i], p.temperature));
      if (!std::isinf(x_[i])) kept_.token.push_back(static_cast<int>(i));
    }
    std::stable_sort(kept_.token.begin(), kept_.token.end(),
                     [&](int a, int b) { return at(x_, a) > at(x_, b); });
    if (kept_.token.empty()) return;
    most_ = at(z_, kept_.token.front());
    if (p.min_p_first) keep_min_p();
    keep_top_k();
    keep_top_p();
    if (!p.min_p_first) keep_min_p();
  }

  survivors const& kept() const { return kept_; }

  /// Share of a survivor.
  long double probability(int token) const {
    long double sum = 0;
    for (int const i : kept_.token) sum += weight(i);
    return weight(token) / sum;
  }

  /// Tokens that may be drawn: one, unless keys all but coincide. Of equal keys the lowest id.
  std::set<int> draw(long long position) const {
    std::map<int, long double> key;
    for (int const i : kept_.token) key[i] = at(z_, i) + gumbel(p_.seed, position, i);
    long double best = -std::numeric_limits<long double>::infinity();
    for (auto const& [id, k] : key) best = std::max(best, k);
    // Keys are floats in the library: large ones lie far apart.
    long double const margin = 1e-5L + std::fabs(best) * 0x1p-22L;
    std::set<int> close;
    for (auto const& [id, k] : key) {
      if (k >= best - margin) close.insert(id);
    }
    return close;
  }

 private:
  static float at(std::vector<float> const& v, int i) { return v[static_cast<std::size_t>(i)]; }
  long double weight(int i) const {
    return std::exp(static_cast<long double>(at(z_, i)) - static_cast<long double>(most_));
  }

  void keep_top_k() {
    bool const off = p_.top_k <= 0 || p_.top_k >= static_cast<long long>(x_.size());
    auto const k = static_cast<std::size_t>(p_.top_k);
    if (!off && k < kept_.token.size()) kept_.token.resize(k);
  }

  void keep_min_p() {
    if (!(p_.min_p > 0)) return;
    std::vector<int> stay;
    for (int const i : kept_.token) {
      long double const w = weight(i);
      if (at(z_, i) == most_ || w >= p_.min_p) stay.push_back(i);
      kept_.is_close |= at(z_, i) != most_ && std::fabs(w - p_.min_p) < 1e-5L * p_.min_p;
    }
    kept_.token = stay;
  }

  void keep_top_p() {
    if (!(p_.top_p < 1)) return;
    long double total = 0;
    for (int const i : kept_.token) total += weight(i);
    long double const goal = std::max(0.0L, p_.top_p * total);
    long double sum = 0;
    std::size_t n = 0;
    do {  // a value with all its tokens
      float const value = at(z_, kept_.token[n]);
      while (n < kept_.token.size() && at(z_, kept_.token[n]) == value) {
        sum += weight(kept_.token[n++]);
      }
      kept_.is_close |= std::fabs(sum - goal) < 1e-6L * total;
    } while (sum < goal && n < kept_.token.size());
    kept_.token.resize(n);
  }

  std::vector<float> x_, z_;
  parameters p_;
  survivors kept_;
  float most_ = 0;
};

}  // namespace oracle::accept
