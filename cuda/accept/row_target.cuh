// SPDX-License-Identifier: Apache-2.0
// The target's token at a node from its row of logits, found by a team of blocks.
#pragma once

#include "accept/draw.cuh"
#include "accept/scan.cuh"
#include "accept/target_row.cuh"
#include "accept/team.cuh"
#include "common/select_few.cuh"
#include "rules/draw.hpp"
#include "rules/dtype_convert.hpp"
#include "rules/walk.hpp"
#include "support/calls.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// What blocks tell of their parts of a row.
struct part_scan {
  row_best best;
  std::uint64_t floor;  // at least top_k columns of the part reach it, or all finite ones
  float largest;
};

struct row_memory {
  scan_memory scan;
  team_slots<part_scan> parts;
  rules::exp_sum sums[2][row_slices];
};

struct filter_memory {
  union {
    top_k_memory<accept_threads> top_k;
    row_draw_memory from_row;
  };
  list_memory from_list;
  float maxima[warps_of<accept_threads>];
  std::uint32_t counts[max_team];
};

struct greedy_memory {
  static constexpr bool samples = false;
  row_memory row;
};

struct sampled_memory {
  static constexpr bool samples = true;
  row_memory row;
  filter_memory filters;
};

namespace row_target_impl {

/// A block's share of a row.
__device__ inline row_part part_of(team const& blocks) {
  int const share = row_slices / blocks.blocks();
  return {blocks.rank() * share, (blocks.rank() + 1) * share};
}

/// At least k columns of the block's reach it, or all finite ones. Bisection is faster where
/// threads are enough: the maxima fall into few bins of a histogram, one after the other.
__device__ inline std::uint64_t floor_of_part(group_maxima const& maxima, std::uint32_t k,
                                              filter_memory& memory) {
  if (k <= accept_threads / 4) return bisect_floor(maxima.largest(), k);
  return find_floor<accept_threads>(maxima, k, memory.top_k.walk);
}

/// Puts what the blocks found together.
template <bool Samples>
__device__ part_scan combine_parts(part_scan const* parts, int count) {
  part_scan all = parts[0];
  for (int i = 1; i < count; ++i) {
    all.best = better_row{}(all.best, parts[i].best);
    if constexpr (!Samples) continue;
    all.floor = larger{}(all.floor, parts[i].floor);
    all.largest = larger{}(all.largest, parts[i].largest);
  }
  return all;
}

/// Draws from a row that has been scanned, by a rule with filters. A row without a finite logit
/// leaves token 0 and ends the walk.
template <class Type>
__device__ void draw_filtered(target_row<Type> const& part, part_scan const& found,
                              rules::draw_rule const& rule, index_t vocab, index_t position,
                              team& blocks, filter_memory& memory, rules::target_token& target) {
  target.can_match = found.largest > rules::minus_infinity;
  if (!target.can_match) return;
  if (rule.top_k > max_top_k) {
    target.token = draw_from_row(team_row<target_row<Type>>{part, blocks}, rule, vocab, position,
                                 found.largest, found.floor, memory.from_row);
    return;
  }
  auto const k = static_cast<std::uint32_t>(rule.top_k);
  std::uint32_t count = select_top_k<accept_threads>(part, k, found.floor, memory.top_k);
  std::uint64_t const* const keys = merge_lists(blocks, k, memory.top_k.keys, count, memory.counts);
  target.token = draw_from_list(keys, count, rule, position, memory.from_list);
}

}  // namespace row_target_impl

/// The target's token at a node, in all threads of all blocks.
template <class Type, class Memory>
__device__ rules::target_token find_target(support::accept_logits_call const& call,
                                           target_row<Type> const& row,
                                           rules::draw_rule const& rule, index_t position,
                                           team& blocks, Memory& memory) {
  using namespace row_target_impl;
  rules::log_prob_kind const kind = rules::kind_of(call.options, call.out.log_prob != nullptr);
  target_row<Type> const part = row.only(part_of(blocks));
  // Not in use by any block: two exchanges ago was the one that wrote it.
  rules::exp_sum* const sums = memory.row.sums[blocks.begin_exchange()];
  row_scan const scanned = scan_row<Memory::samples>(
      part, {rule, position, kind}, true, memory.row.scan,
      [&](int slice, rules::exp_sum const& sum) { blocks.send_to_all(sum, sums + slice); });
  part_scan found{scanned.best, lowest_finite_key, rules::minus_infinity};
  if constexpr (Memory::samples) {
    if (rule.has_filter) {
      found.largest =
          block_reduce<accept_threads>(scanned.maxima.largest(), larger{}, memory.filters.maxima);
      if (rule.top_k < call.shape.vocab) {
        found.floor =
            floor_of_part(scanned.maxima, static_cast<std::uint32_t>(rule.top_k), memory.filters);
      }
    }
  }
  unsigned const bytes_of_sums =
      kind == rules::log_prob_kind::none ? 0 : row_slices * sizeof(rules::exp_sum);
  found = combine_parts<Memory::samples>(blocks.exchange(found, memory.row.parts, bytes_of_sums),
                                         blocks.blocks());
  // Before the next exchange, after which a block that is ahead may write the sums of its next row.
  rules::exp_sum sum;
  if (kind != rules::log_prob_kind::none) {
    sum = sums[0];
    for (int slice = 1; slice < row_slices; ++slice) sum = rules::merge(sum, sums[slice]);
  }

  rules::target_token target;
  target.can_match = found.best.candidate != 0;
  if (target.can_match)
    target.token = static_cast<token_t>(rules::candidate_id(found.best.candidate));
  if constexpr (Memory::samples) {
    if (rule.has_filter) {
      draw_filtered(part, found, rule, call.shape.vocab, position, blocks, memory.filters, target);
    }
  }
  if (found.best.met_nan != 0) target.flags = flag::target_nan;
  if (kind != rules::log_prob_kind::none) {
    target.log_prob = rules::log_prob_of(row.logit_of(target.token, rule.r, kind), sum);
  }
  return target;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
