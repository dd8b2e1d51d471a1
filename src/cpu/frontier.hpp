// SPDX-License-Identifier: Apache-2.0
// The heap of the best-first search: the nodes that may come next, the best one first.
#pragma once

#include "ddtree/views.hpp"

#include "rules/weight.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cpu {

/// A node that is not in the tree yet, but whose parent and left siblings are.
struct next_node {
  rules::weight_t weight;
  std::uint64_t path;  // first word of its rank path
  node_t from;         // its left sibling, or its parent where rank is 0
  std::int32_t depth;
  std::int32_t rank;
};

class frontier {
 public:
  /// `heap` is room for the nodes, `paths` the rank path of each node of the tree.
  frontier(next_node* heap, rules::rank_path const* paths) : heap_(heap), paths_(paths) {}

  bool empty() const { return size_ == 0; }
  next_node const& first() const { return heap_[0]; }

  /// The whole path. A first child lengthens the path of `from` by rank 0, a right sibling raises
  /// its last rank: either adds one to the field of the node's depth.
  rules::rank_path path_of(next_node const& n) const {
    rules::rank_path path = paths_[n.from];
    path.word[(n.depth - 1) / rules::rank_path::fields] += one_rank(n.depth);
    return path;
  }

  /// The same for the first word alone, which decides most ties.
  static std::uint64_t first_word(std::uint64_t path_of_from, std::int32_t depth) {
    return path_of_from + (depth <= rules::rank_path::fields ? one_rank(depth) : 0);
  }

  void push(next_node const& n) {
    index_t at = size_++;
    for (; at > 0 && precedes(n, heap_[(at - 1) / 2]); at = (at - 1) / 2) {
      heap_[at] = heap_[(at - 1) / 2];
    }
    heap_[at] = n;
  }

  /// Takes the first node out and puts `n` in: one walk down where a pop and a push need two.
  void replace_first(next_node const& n) {
    index_t at = 0;
    for (index_t child = 1; child < size_; child = 2 * at + 1) {
      if (child + 1 < size_) child += precedes(heap_[child + 1], heap_[child]);
      if (precedes(n, heap_[child])) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = n;
  }

  void drop_first() {
    --size_;
    if (size_ > 0) replace_first(heap_[size_]);
  }

 private:
  static std::uint64_t one_rank(std::int32_t depth) {
    return std::uint64_t{1} << rules::rank_shift(depth);
  }

  // Which of two nodes comes first is a coin toss to a branch predictor: without branches a tree of
  // 1024 nodes is built 1.4 to 1.8 times faster.
  bool precedes(next_node const& a, next_node const& b) const {
    bool const same_weight = a.weight == b.weight;
    if (same_weight & (a.path == b.path)) [[unlikely]] {
      return rules::compare(path_of(a), path_of(b)) < 0;
    }
    return (a.weight > b.weight) | (same_weight & (a.path < b.path));
  }

  next_node* heap_;
  rules::rank_path const* paths_;
  index_t size_ = 0;
};

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
