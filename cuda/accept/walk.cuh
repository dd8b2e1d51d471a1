// SPDX-License-Identifier: Apache-2.0
// The walk that every accept call does, by a block per request or by several that all come to the
// same: down the tree along the target's own tokens. All threads take part in every step, as
// reading a row needs them.
#pragma once

#include "ddtree/accept.hpp"

#include "common/block.cuh"
#include "rules/views.hpp"
#include "rules/walk.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

struct path_memory {
  static constexpr int max_width = max_budget + 1;

  // Looking a child up is a chase through links, which is slow in device memory.
  token_t node_token[max_width];
  std::int16_t next_sibling[max_width];

  node_t path[max_depth + 1];
  token_t token[max_depth + 1];
  float log_prob[max_depth + 1];
};

/// The links of one request's tree. Nodes stand behind their parents and siblings in rank order, so
/// that an index which does not rise is corrupt; it counts as -1.
struct tree_links {
  static constexpr std::int32_t corrupt = -2;

  path_memory& memory;
  node_t const* first_child;
  std::int32_t num_nodes;

  __device__ std::int32_t checked(node_t link, node_t from) const {
    if (link > from && link < num_nodes) return link;
    return link == -1 ? -1 : corrupt;
  }

  /// They are visible to all threads on return.
  template <int Threads>
  __device__ void load(draft_tree const& tree, index_t first) const {
    for (auto i = static_cast<node_t>(threadIdx.x); i < num_nodes; i += Threads) {
      memory.node_token[i] = tree.token[first + i];
      memory.next_sibling[i] = static_cast<std::int16_t>(checked(tree.next_sibling[first + i], i));
    }
    __syncthreads();
  }

  /// The first child in rank order with this token, -1, or `corrupt`. `first` is the first child.
  /// Every thread looks for itself, which saves barriers.
  __device__ std::int32_t find_child(std::int32_t first, token_t token) const {
    std::int32_t child = first;
    while (child >= 0 && memory.node_token[child] != token) child = memory.next_sibling[child];
    return child;
  }
};

/// How far a walk came: what is written for an inactive request, as it starts.
struct walk_end {
  std::int32_t num_accepted = -1;
  std::uint32_t flags = 0;
};

/// Called by all threads.
template <int Threads>
__device__ bool is_stop(accept_options const& options, index_t request, token_t token) {
  if (options.stop_tokens.data == nullptr) return false;
  index_t const first = request * options.stop_tokens.stride;
  bool is_one = false;
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < options.stop_tokens_per_request;
       i += Threads) {
    is_one = is_one || rules::load_id(options.stop_tokens, first + i) == token;
  }
  return __syncthreads_or(is_one) != 0;
}

/// Follows the tokens that target_at(node, depth) gives to all threads. It is asked for the rows on
/// the path only. The path is in `memory` after the next barrier. `first_child` is the tree's array
/// at its root, or a copy that is faster to read.
template <int Threads, class Call, class TargetAt>
__device__ walk_end follow_target(Call const& call, index_t b, rules::accept_row const& row,
                                  node_t const* first_child, path_memory& memory,
                                  TargetAt& target_at) {
  tree_links const links{memory, first_child, rules::count_nodes(call.tree, call.shape, b)};
  links.load<Threads>(call.tree, b * call.shape.width());
  walk_end walk{0, call.tree.flags[b]};
  for (node_t node = 0;;) {
    // Loaded before the row is read, which hides the latency.
    std::int32_t const child = links.checked(links.first_child[node], node);
    rules::target_token const target = target_at(node, walk.num_accepted);
    if (threadIdx.x == 0) {
      memory.path[walk.num_accepted] = node;
      memory.token[walk.num_accepted] = target.token;
      memory.log_prob[walk.num_accepted] = target.log_prob;
    }
    walk.flags |= target.flags;
    if (!target.can_match) break;
    if (is_stop<Threads>(call.options, row.at.request, target.token)) {
      walk.flags |= flag::stopped;
      break;
    }
    if (walk.num_accepted == call.shape.depth) break;
    node = links.find_child(child, target.token);
    if (node == tree_links::corrupt) walk.flags |= flag::id_out_of_range;
    if (node < 0) break;
    if (walk.num_accepted + 1 == row.remaining) {
      walk.flags |= flag::limit_reached;
      break;
    }
    ++walk.num_accepted;
  }
  return walk;
}

template <class Call>
__device__ void store_walk(Call const& call, index_t b, rules::accept_row const& row,
                           walk_end const& walk, path_memory const& memory) {
  accepted const& out = call.out;
  accept_mirror const& mirror = call.options.mirror;
  index_t const rows = index_t{call.shape.depth} + 1;
  // Every block has at least max_depth + 1 threads.
  auto const i = static_cast<std::int32_t>(threadIdx.x);
  if (i < rows) {
    bool const is_there = i <= walk.num_accepted;
    token_t const token = is_there ? memory.token[i] : -1;
    out.path[b * rows + i] = is_there ? memory.path[i] : -1;
    out.token[b * rows + i] = token;
    if (out.log_prob != nullptr) {
      out.log_prob[b * rows + i] = is_there ? memory.log_prob[i] : 0.0f;
    }
    if (mirror.token.data != nullptr) {
      rules::store_id(mirror.token, b * mirror.token.stride + i, token);
    }
  }
  if (i != 0) return;
  token_t const bonus = walk.num_accepted >= 0 ? memory.token[walk.num_accepted] : -1;
  out.num_accepted[b] = walk.num_accepted;
  out.bonus[b] = bonus;
  out.flags[b] = walk.flags;
  if (mirror.bonus.data != nullptr) rules::store_id(mirror.bonus, b, bonus);
  if (mirror.num_accepted.data != nullptr) {
    rules::store_id(mirror.num_accepted, b, walk.num_accepted);
  }
  if (mirror.new_cache_len.data != nullptr && row.at.active) {
    rules::store_id(mirror.new_cache_len, row.at.request, row.at.cache_len + walk.num_accepted + 1);
  }
}

/// The acceptance of request b. make_target(row of the batch) gives what follow_target asks for; it
/// is not called for an inactive request. Of several blocks one has `writes`.
template <int Threads, class Call, class MakeTarget>
__device__ void accept_request(Call const& call, index_t b, bool writes, path_memory& memory,
                               MakeTarget make_target) {
  static_assert(Threads >= max_depth + 1);
  rules::accept_row const row = rules::find_accept_row(call, b);
  walk_end walk;
  if (row.at.active) {
    auto target_at = make_target(row.at);
    node_t const* const first_child = call.tree.first_child + b * call.shape.width();
    walk = follow_target<Threads>(call, b, row, first_child, memory, target_at);
  }
  __syncthreads();
  if (writes) store_walk(call, b, row, walk, memory);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
