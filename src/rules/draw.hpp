// SPDX-License-Identifier: Apache-2.0
// How the target's token at a node is drawn from its logits.
#pragma once

#include "ddtree/accept.hpp"

#include "rules/arith.hpp"
#include "rules/hd.hpp"
#include "rules/log_sum_exp.hpp"
#include "rules/math.hpp"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace rules {

/// One request's parameters of `sampling`.
struct draw_rule {
  bool is_greedy = true;
  float r = 1.0f;  // 1 / temperature
  std::uint64_t seed = 0;
  index_t top_k = 0;  // the vocabulary where off
  float top_p = 1.0f;
  float min_p = 0.0f;
  filter_order order = filter_order::k_p_min;
  bool has_filter = false;  // never of a greedy request
};

DDTREE_HD inline draw_rule find_rule(sampling const& how, index_t request, index_t vocab) {
  draw_rule rule;
  rule.order = how.order;
  rule.top_k = vocab;
  if (how.temperature == nullptr || is_greedy(how.temperature[request])) return rule;
  rule.is_greedy = false;
  rule.r = reciprocal_temperature(how.temperature[request]);
  rule.seed = static_cast<std::uint64_t>(load_id(how.seed, request));
  if (how.top_k.data != nullptr) {
    index_t const top_k = load_id(how.top_k, request);
    if (!is_top_k_off(top_k, vocab)) rule.top_k = top_k;
  }
  if (how.top_p != nullptr) rule.top_p = how.top_p[request];
  if (how.min_p != nullptr) rule.min_p = how.min_p[request];
  rule.has_filter = rule.top_k < vocab || !is_top_p_off(rule.top_p) || !is_min_p_off(rule.min_p);
  return rule;
}

/// Candidates that a request draws from where ranks exchange them: its top_k, held to how many.
DDTREE_HD inline index_t exchanged_top_k(draw_rule const& rule, sampling const& how) {
  return rule.top_k < how.max_top_k ? rule.top_k : how.max_top_k;
}

/// The winner among the tokens offered so far: the largest key, of equal keys the lowest id.
struct best_token {
  float key = minus_infinity;
  token_t id = -1;

  DDTREE_HD void offer(float other_key, token_t other_id) {
    // As unsigned, -1 is behind every id.
    bool const is_behind = static_cast<std::uint32_t>(other_id) >= static_cast<std::uint32_t>(id);
    if (other_key < key || (other_key == key && is_behind)) return;
    key = other_key;
    id = other_id;
  }
};

/// Which logits a log-prob is of.
enum class log_prob_kind { none, given, processed };

DDTREE_HD inline log_prob_kind kind_of(accept_options const& options, bool is_wanted) {
  if (!is_wanted) return log_prob_kind::none;
  return options.processed_log_prob ? log_prob_kind::processed : log_prob_kind::given;
}

/// log-softmax of a logit, given the sum over its row.
DDTREE_HD inline float log_prob_of(float logit, exp_sum const& sum) {
  if (logit == minus_infinity || sum.max == minus_infinity) return minus_infinity;
  double const log_prob = double{logit} - double{sum.max} - double{plog(sum.sum)};
  double const lowest = -double{largest_float};
  return static_cast<float>(log_prob < lowest ? lowest : log_prob);
}

}  // namespace rules
}  // namespace v0
}  // namespace ddtree
