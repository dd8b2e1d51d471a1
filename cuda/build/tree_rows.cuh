// SPDX-License-Identifier: Apache-2.0
// How a block writes the tree of a request, row by row.
#pragma once

#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include "rules/arith.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// A row that is linked from nowhere and links nowhere.
struct tree_row {
  token_t token = 0;
  float log_weight = 0.0f;
  node_t parent = -1;
  std::int32_t depth = 0;
  std::int32_t rank = -1;
  node_t first_child = -1;
  node_t next_sibling = -1;
};

__device__ inline void write_row(draft_tree const& tree, int i, tree_row const& row) {
  tree.token[i] = row.token;
  tree.parent[i] = row.parent;
  tree.depth[i] = row.depth;
  tree.rank[i] = row.rank;
  tree.log_weight[i] = row.log_weight;
  tree.first_child[i] = row.first_child;
  tree.next_sibling[i] = row.next_sibling;
}

/// All bits 0, by threads t < threads. A barrier has to follow before `write_tree`.
__device__ inline void clear_ancestors(draft_tree const& tree, round_shape const& shape, int t,
                                       int threads) {
  auto const words = static_cast<int>(shape.width() * shape.words());
  std::uint32_t* const first = tree.ancestors;
  auto const ahead = static_cast<int>((0 - reinterpret_cast<std::uintptr_t>(first) / 4) % 4);
  int const head = ahead < words ? ahead : words;
  auto* const vector = reinterpret_cast<uint4*>(first + head);
  int const vectors = (words - head) / 4;
  if (t < head) first[t] = 0;
  for (int i = t; i < vectors; i += threads) vector[i] = uint4{};
  int const rest = head + 4 * vectors + t;
  if (rest < words) first[rest] = 0;
}

/// The bits of row i, which is cleared. A path to the root visits each word once: every parent
/// stands in an earlier row.
__device__ inline void set_ancestors(std::uint32_t* row, int i, bool is_node,
                                     std::uint16_t const* parent) {
  int word = i / 32;
  std::uint32_t bits = 1u << (i % 32);
  for (int a = is_node ? i : 0; a > 0;) {
    a = parent[a];
    if (a / 32 != word) {
      row[word] = bits;
      word = a / 32;
      bits = 0;
    }
    bits |= 1u << (a % 32);
  }
  row[word] = bits;
}

/// Writes all rows of a tree: row_of(i) for its nodes, then padding. `parent` is in shared memory,
/// the row of each node's parent.
template <int Threads, class RowOf>
__device__ void write_tree(draft_tree const& tree, round_shape const& shape, int num_nodes,
                           token_t root, std::uint16_t const* parent, std::uint32_t flags,
                           RowOf row_of) {
  int const width = static_cast<int>(shape.width());
  int const words = static_cast<int>(shape.words());
  // The root apart, as a budget is often a power of two.
  for (int i = 1 + static_cast<int>(threadIdx.x); i < width; i += Threads) {
    bool const is_node = i < num_nodes;
    write_row(tree, i, is_node ? row_of(i) : tree_row{root, rules::minus_infinity});
    set_ancestors(tree.ancestors + i * words, i, is_node, parent);
  }
  if (threadIdx.x == Threads - 1) {
    write_row(tree, 0, row_of(0));
    tree.ancestors[0] = 1;
    *tree.num_nodes = num_nodes;
    *tree.flags = flags;
  }
}

/// The tree of an inactive request: a root alone.
template <int Threads>
__device__ void write_inactive(draft_tree const& tree, round_shape const& shape) {
  clear_ancestors(tree, shape, static_cast<int>(threadIdx.x), Threads);
  __syncthreads();
  write_tree<Threads>(tree, shape, 1, 0, nullptr, 0, [](int) { return tree_row{}; });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
