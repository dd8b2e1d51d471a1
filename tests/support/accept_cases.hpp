// SPDX-License-Identifier: Apache-2.0
// Inputs of the accept calls in a context's memory, and their outputs as the oracle's results.
#pragma once

#include "ddtree/accept.hpp"

#include "oracle/accept.hpp"
#include "rules/dtype_convert.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/trees.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ddtree_test {

using random_engine = std::mt19937;

inline int uniform(random_engine& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// Normal, by Box and Muller: std::normal_distribution is not the same everywhere.
inline float normal(random_engine& random, float deviation) {
  double const u = (static_cast<double>(random()) + 0.5) * 0x1p-32;
  double const v = static_cast<double>(random()) * 0x1p-32;
  return static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) *
                            std::cos(6.283185307179586 * v));
}

inline std::vector<float> random_logits(random_engine& random, int vocab, float deviation = 2.5f) {
  std::vector<float> x;
  for (int i = 0; i < vocab; ++i) x.push_back(normal(random, deviation));
  return x;
}

/// A tree of `nodes` nodes at most, of tokens below vocab; siblings may be alike where asked.
inline oracle::accept::tree random_tree(random_engine& random, int nodes, int depth, int vocab,
                                        bool with_twins = false) {
  oracle::accept::tree t;
  t.token[0] = uniform(random, 0, vocab - 1);
  std::vector<int> depth_of{0};
  for (int tries = 0; t.size() < nodes && tries < 4 * nodes; ++tries) {
    // Deep rather than wide, so that walks get somewhere.
    int const from = uniform(random, std::max(0, t.size() - 6), t.size() - 1);
    int const token = uniform(random, 0, vocab - 1);
    if (depth_of[sized(from)] == depth) continue;
    if (!with_twins && t.child(from, token)) continue;
    t.add(from, token);
    depth_of.push_back(depth_of[sized(from)] + 1);
  }
  return t;
}

/// Trees of a batch. Arrays of rows without a tree, and what no accept call should use, stay
/// poisoned.
class tree_batch {
 public:
  tree_batch(ddtree::context const& ctx, ddtree::round_shape const& shape,
             std::vector<oracle::accept::tree> const& trees,
             std::vector<std::uint32_t> const& flags = {})
      : buffers(ctx, shape), width_(sized(shape.width())) {
    auto num_nodes = buffers.num_nodes.values();
    auto all_flags = buffers.flags.values();
    auto token = buffers.token.values();
    auto parent = buffers.parent.values();
    auto depth = buffers.depth.values();
    auto first_child = buffers.first_child.values();
    auto next_sibling = buffers.next_sibling.values();
    for (std::size_t b = 0; b < trees.size(); ++b) {
      oracle::accept::tree const& t = trees[b];
      num_nodes[b] = t.size();
      all_flags[b] = flags.empty() ? 0 : flags[b];
      for (int i = 0; i < t.size(); ++i) {
        std::size_t const at = b * width_ + sized(i);
        token[at] = t.token[sized(i)];
        parent[at] = t.parent[sized(i)];
        depth[at] = i == 0 ? 0 : depth[b * width_ + sized(t.parent[sized(i)])] + 1;
        first_child[at] = -1;
        next_sibling[at] = -1;
      }
      for (int i = t.size() - 1; i > 0; --i) {
        std::size_t const from = b * width_ + sized(t.parent[sized(i)]);
        next_sibling[b * width_ + sized(i)] = first_child[from];
        first_child[from] = i;
      }
    }
    buffers.num_nodes.assign(num_nodes);
    buffers.flags.assign(all_flags);
    buffers.token.assign(token);
    buffers.parent.assign(parent);
    buffers.depth.assign(depth);
    buffers.first_child.assign(first_child);
    buffers.next_sibling.assign(next_sibling);
  }

  ddtree::draft_tree view() { return buffers.view(); }

  tree_buffers buffers;

 private:
  std::size_t width_;
};

/// One request's share of an `accepted`.
struct accepted_request {
  std::vector<int> path;   // [depth + 1]
  std::vector<int> token;  // [depth + 1]
  std::vector<float> log_prob;
  int num_accepted = 0;
  int bonus = 0;
  std::uint32_t flags = 0;

  bool operator==(accepted_request const& o) const {
    // Bits, so that NaN would equal itself.
    return path == o.path && token == o.token && num_accepted == o.num_accepted &&
           bonus == o.bonus && flags == o.flags && log_prob.size() == o.log_prob.size() &&
           (log_prob.empty() ||
            std::memcmp(log_prob.data(), o.log_prob.data(), log_prob.size() * sizeof(float)) == 0);
  }
};

inline std::vector<accepted_request> read_accepted(accepted_buffers const& out,
                                                   ddtree::round_shape const& shape,
                                                   bool with_log_prob = false) {
  std::vector<accepted_request> all;
  auto const rows = static_cast<std::ptrdiff_t>(shape.depth) + 1;
  auto const path = out.path.values();
  auto const token = out.token.values();
  auto const log_prob = out.log_prob.values();
  auto const num_accepted = out.num_accepted.values();
  auto const bonus = out.bonus.values();
  auto const flags = out.flags.values();
  for (std::ptrdiff_t b = 0; b < shape.batch; ++b) {
    auto const i = sized(b);
    accepted_request r;
    r.path.assign(path.begin() + b * rows, path.begin() + (b + 1) * rows);
    r.token.assign(token.begin() + b * rows, token.begin() + (b + 1) * rows);
    if (with_log_prob)
      r.log_prob.assign(log_prob.begin() + b * rows, log_prob.begin() + (b + 1) * rows);
    r.num_accepted = num_accepted[i];
    r.bonus = bonus[i];
    r.flags = flags[i];
    all.push_back(r);
  }
  return all;
}

inline std::vector<int> padded(std::vector<int> values, int depth) {
  values.resize(sized(depth) + 1, -1);
  return values;
}

/// What an oracle's result looks like in an `accepted`, without log-probs.
inline accepted_request expected_request(oracle::accept::result const& r, int depth,
                                         std::uint32_t flags) {
  accepted_request e;
  e.path = padded(r.path, depth);
  e.token = padded(r.token, depth);
  e.num_accepted = r.num_accepted();
  e.bonus = r.bonus();
  e.flags = flags | (r.stopped ? ddtree::flag::stopped : 0) |
            (r.limited ? ddtree::flag::limit_reached : 0);
  return e;
}

inline accepted_request inactive_request(int depth, bool with_log_prob = false) {
  accepted_request e;
  e.path = padded({}, depth);
  e.token = padded({}, depth);
  if (with_log_prob) e.log_prob.assign(sized(depth) + 1, 0.0f);
  e.num_accepted = -1;
  e.bonus = -1;
  return e;
}

/// Floats as elements of a type, in memory; `values` gives back what the elements stand for.
class logits_buffer {
 public:
  logits_buffer(ddtree::context const& ctx, std::vector<float> const& values, ddtree::dtype type)
      : type_(type), bytes_(ctx, values.size() * (type == ddtree::dtype::f32 ? 4 : 2)) {
    std::vector<unsigned char> raw(bytes_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type == ddtree::dtype::f32) {
        std::memcpy(&raw[4 * i], &values[i], 4);
      } else {
        std::uint16_t const half = encode(values[i], type);
        std::memcpy(&raw[2 * i], &half, 2);
      }
    }
    bytes_.assign(raw);
  }

  ddtree::logits_view view() {
    ddtree::logits_view v;
    v.data = bytes_.data();
    v.type = type_;
    return v;
  }

  static float rounded(float value, ddtree::dtype type) {
    if (type == ddtree::dtype::f32) return value;
    std::uint16_t const half = encode(value, type);
    return type == ddtree::dtype::f16 ? ddtree::rules::f16_to_float(half)
                                      : ddtree::rules::bf16_to_float(half);
  }

 private:
  static std::uint16_t encode(float value, ddtree::dtype type) {
    return type == ddtree::dtype::f16 ? ddtree::rules::float_to_f16(value)
                                      : ddtree::rules::float_to_bf16(value);
  }

  ddtree::dtype type_;
  buffer<unsigned char> bytes_;
};

/// The arrays of `sampling`, by request.
class sampling_buffers {
 public:
  sampling_buffers(ddtree::context const& ctx,
                   std::vector<oracle::accept::parameters> const& by_request,
                   ddtree::filter_order order = ddtree::filter_order::k_p_min)
      : temperature_(ctx, collect<float>(by_request, [](auto const& p) { return p.temperature; })),
        top_p_(ctx, collect<float>(by_request, [](auto const& p) { return p.top_p; })),
        min_p_(ctx, collect<float>(by_request, [](auto const& p) { return p.min_p; })),
        top_k_(ctx, collect<std::int64_t>(by_request, [](auto const& p) { return p.top_k; })),
        seed_(ctx,
              collect<std::int64_t>(
                  by_request, [](auto const& p) { return static_cast<std::int64_t>(p.seed); })),
        order_(order) {}

  ddtree::sampling view() {
    ddtree::sampling how;
    how.temperature = temperature_.data();
    how.top_k = top_k_.data();
    how.top_p = top_p_.data();
    how.min_p = min_p_.data();
    how.seed = seed_.data();
    how.order = order_;
    return how;
  }

 private:
  template <class T, class Get>
  static std::vector<T> collect(std::vector<oracle::accept::parameters> const& from, Get get) {
    std::vector<T> all;
    for (oracle::accept::parameters const& p : from) all.push_back(get(p));
    return all;
  }

  buffer<float> temperature_, top_p_, min_p_;
  buffer<std::int64_t> top_k_, seed_;
  ddtree::filter_order order_;
};

inline oracle::accept::parameters random_parameters(random_engine& random, int vocab) {
  oracle::accept::parameters p;
  p.temperature =
      uniform(random, 0, 5) == 0 ? 0.0f : 0.2f + 0.1f * static_cast<float>(uniform(random, 0, 12));
  if (uniform(random, 0, 1) == 1) p.top_k = uniform(random, -1, vocab + 1);
  if (uniform(random, 0, 1) == 1) p.top_p = 0.05f * static_cast<float>(uniform(random, 0, 21));
  if (uniform(random, 0, 1) == 1) p.min_p = 0.02f * static_cast<float>(uniform(random, -1, 20));
  p.seed = (static_cast<std::uint64_t>(random()) << 32) | random();
  return p;
}

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace ddtree_test
