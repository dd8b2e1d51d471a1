// SPDX-License-Identifier: Apache-2.0
#include "cpu/accept_draw.hpp"

#include "rules/dtype_convert.hpp"
#include "rules/gumbel.hpp"
#include "rules/log_sum_exp.hpp"
#include "rules/math.hpp"
#include "rules/sampling.hpp"
#include "rules/views.hpp"

#include <algorithm>

namespace ddtree {
inline namespace v0 {
namespace cpu {
namespace {

using keys = std::span<std::uint64_t>;

/// The weights of a request's candidates.
struct weigher {
  float r;
  float z_max;

  float z(std::uint64_t key) const { return rules::scaled(rules::candidate_logit(key), r); }
  std::uint64_t operator()(std::uint64_t key) const { return rules::token_weight(z(key), z_max); }
};

keys keep_min_p(keys all, weigher const& weight, float min_p) {
  std::uint64_t const threshold = rules::min_p_threshold(min_p);
  auto const stays = [&](std::uint64_t key) {
    return weight(key) >= threshold || weight.z(key) == weight.z_max;
  };
  auto const end = std::partition(all.begin(), all.end(), stays);
  return all.first(static_cast<std::size_t>(end - all.begin()));
}

/// Takes candidates off a heap, from the best down, until their sum reaches the share, and then
/// those that equal the last one.
keys keep_top_p(keys all, weigher const& weight, float top_p) {
  std::uint64_t total = 0;
  for (std::uint64_t const key : all) total += weight(key);
  std::uint64_t const target = rules::top_p_target(top_p, total);

  std::make_heap(all.begin(), all.end());
  std::uint64_t sum = 0;
  float cut = weight.z_max;
  auto end = all.end();
  for (; end != all.begin(); --end) {
    std::uint64_t const next = all.front();
    if (sum >= target && weight.z(next) != cut) break;
    sum += weight(next);
    cut = weight.z(next);
    std::pop_heap(all.begin(), end);
  }
  return all.last(static_cast<std::size_t>(all.end() - end));
}

/// Tokens whose noise is looked at together.
constexpr index_t packet = 64;
static_assert(logits_chunk::size % packet == 0);

/// The random words of a packet. A block serves the four ids 4n..4n + 3; a shard may begin inside
/// of one.
void load_words(std::uint64_t seed, index_t position, index_t first_id,
                std::uint32_t (&word)[packet]) {
  for (index_t j = 0; j < packet;) {
    index_t const id = first_id + j;
    rules::philox_counter const block =
        rules::noise_block(seed, position, static_cast<std::uint32_t>(id / 4));
    for (index_t i = id % 4; i < 4 && j < packet; ++i) word[j++] = block.word[i];
  }
}

/// The largest word with which a token can beat the best key. -ln(1 - q) >= q, so that g <= -ln q,
/// and z + g > best needs q < exp(z - best). The margin of 2^-10 is a hundred times what rounding
/// can add up to; nearly all tokens fall to this, which saves their two logarithms.
void find_bounds(float const* z, float best, float (&bound)[packet]) {
  for (index_t j = 0; j < packet; ++j) {
    float const below = rules::sub(z[j], best);
    float const held = below >= 0.0f ? 0.0f : below;  // NaN, of -inf and -inf, gives 0
    bound[j] = rules::mul(rules::pexp2(rules::mul(held, rules::log2_of_e)), 0x1.004p32f);
  }
}

}  // namespace

void offer_with_noise(logits_chunk const& z, index_t first_id, draw_rule const& rule,
                      index_t position, best_token& best) {
  for (index_t at = 0; at < logits_chunk::size; at += packet) {
    std::uint32_t word[packet];
    load_words(rule.seed, position, first_id + at, word);
    float bound[packet];
    find_bounds(z.value + at, best.key, bound);
    for (index_t j = 0; j < packet; ++j) {
      if (static_cast<float>(word[j]) > bound[j]) continue;
      best.offer(rules::add(z.value[at + j], rules::gumbel_from_word(word[j])),
                 static_cast<token_t>(first_id + at + j));
    }
  }
}

token_t draw(std::span<std::uint64_t> candidates, draw_rule const& rule, index_t position) {
  std::uint64_t const first = *std::max_element(candidates.begin(), candidates.end());
  weigher const weight{rule.r, rules::scaled(rules::candidate_logit(first), rule.r)};
  bool const has_top_p = !rules::is_top_p_off(rule.top_p);
  bool const has_min_p = !rules::is_min_p_off(rule.min_p);
  bool const min_p_first = rule.order == filter_order::min_k_p;

  // Both min_p and top_k keep the best so many, whichever comes first: that top_k has been applied
  // makes no difference to min_k_p.
  keys kept = candidates;
  if (has_min_p && min_p_first) kept = keep_min_p(kept, weight, rule.min_p);
  if (has_top_p) kept = keep_top_p(kept, weight, rule.top_p);
  if (has_min_p && !min_p_first) kept = keep_min_p(kept, weight, rule.min_p);

  best_token best;
  for (std::uint64_t const key : kept) {
    std::uint32_t const id = rules::candidate_id(key);
    best.offer(rules::add(weight.z(key), rules::noise(rule.seed, position, id)),
               static_cast<token_t>(id));
  }
  return best.id;
}

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
