// SPDX-License-Identifier: Apache-2.0
// accept_greedy and accept_sampled: a block per request reads the rows that its walk visits.
#include "accept/accept.hpp"
#include "accept/draw.cuh"
#include "accept/scan.cuh"
#include "accept/target_row.cuh"
#include "accept/walk.cuh"
#include "common/launch.hpp"
#include "rules/draw.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

struct logits_params {
  support::accept_logits_call call;
  vocab_ranges columns;
};

struct filter_memory {
  union {
    top_k_memory<accept_threads> top_k;
    row_draw_memory from_row;
  };
  list_memory from_list;
  float maxima[warps_of<accept_threads>];
};

struct greedy_memory {
  static constexpr bool samples = false;
  path_memory path;
  scan_memory scan;
};

struct sampled_memory {
  static constexpr bool samples = true;
  path_memory path;
  scan_memory scan;
  filter_memory filters;
};

/// Draws from a row that has been scanned, by a rule with filters. A row without a finite logit
/// leaves token 0 and ends the walk.
template <class Type>
__device__ void draw_filtered(target_row<Type> const& row, row_scan const& found,
                              rules::draw_rule const& rule, index_t vocab, index_t position,
                              filter_memory& memory, rules::target_token& target) {
  if (rule.top_k <= max_top_k) {
    std::uint32_t const count = select_best(row, found, rule.top_k, memory.top_k);
    target.can_match = count > 0;
    if (count == 0) return;
    target.token = draw_from_list(memory.top_k.keys, count, rule, position, memory.from_list);
    return;
  }
  float const x_max = block_reduce<accept_threads>(found.maxima.largest(), larger{}, memory.maxima);
  target.can_match = x_max > rules::minus_infinity;
  if (!target.can_match) return;
  std::uint64_t floor = lowest_finite_key;
  if (rule.top_k < vocab) {
    floor = find_floor<accept_threads>(found.maxima, static_cast<std::uint32_t>(rule.top_k),
                                       memory.from_row.counts);
  }
  target.token = draw_from_row(row, rule, vocab, position, x_max, floor, memory.from_row);
}

/// The target's token at a node.
template <class Type, class Memory>
__device__ rules::target_token from_logits(support::accept_logits_call const& call,
                                           target_row<Type> const& row,
                                           rules::draw_rule const& rule, index_t position,
                                           Memory& memory) {
  rules::log_prob_kind const kind = rules::kind_of(call.options, call.out.log_prob != nullptr);
  row_scan const found = scan_row<Memory::samples>(row, rule, position, kind, memory.scan);
  rules::target_token target;
  target.can_match = found.best != 0;
  if (target.can_match) target.token = static_cast<token_t>(rules::candidate_id(found.best));
  if constexpr (Memory::samples) {
    if (rule.has_filter) {
      draw_filtered(row, found, rule, call.shape.vocab, position, memory.filters, target);
    }
  }
  if (found.met_nan) target.flags = flag::target_nan;
  if (kind != rules::log_prob_kind::none) {
    target.log_prob = rules::log_prob_of(row.logit_of(target.token, rule.r, kind), found.sum);
  }
  return target;
}

template <class Type, class Memory>
__device__ void accept_logits(logits_params const& p, Memory& memory) {
  support::accept_logits_call const& call = p.call;
  accept_request<accept_threads>(call, memory.path, [&](rules::batch_row const& at) {
    rules::draw_rule rule;
    if constexpr (Memory::samples) {
      rule = rules::find_rule(call.how, at.request, call.shape.vocab);
    }
    return [&p, &call, &memory, at, rule](node_t node, std::int32_t depth) {
      target_row<Type> const row =
          find_target_row<Type>(call.target, p.columns, call.options, at.request, blockIdx.x, node);
      return from_logits(call, row, rule, at.cache_len + depth + 1, memory);
    };
  });
}

template <class Type, class Memory>
__global__ __launch_bounds__(accept_threads) void accept_logits_kernel(logits_params const p) {
  __shared__ Memory memory;
  accept_logits<Type>(p, memory);
}

template <class Memory>
status launch_accept(support::accept_logits_call const& call) noexcept {
  logits_params const params{call, {{{0, call.shape.vocab, 0}, {}}}};
  return for_logits_type(call.target.type, [&]<class Type>(Type) {
    return launch(call.ctx, accept_logits_kernel<Type, Memory>,
                  {call.shape.batch, accept_threads, 0}, params);
  });
}

}  // namespace

status accept_greedy(support::accept_logits_call const& call) noexcept {
  return launch_accept<greedy_memory>(call);
}

status accept_sampled(support::accept_logits_call const& call) noexcept {
  bool const samples = call.how.temperature != nullptr;
  return samples ? launch_accept<sampled_memory>(call) : launch_accept<greedy_memory>(call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
