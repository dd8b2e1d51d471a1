// SPDX-License-Identifier: Apache-2.0
// The best-first search, done by one block level by level.
//
// The nodes found so far stand in shared memory in preorder, that is in the lexicographic order of
// their rank paths: of two nodes of one weight the one in front comes first, and no path is ever
// kept or compared. A level is a few steps of two halves each. `raise_threshold` finds a weight
// that the best `others` nodes reach; `grow` drops what is below it and puts the children of the
// deepest level behind their parents, as many as there is room for: of these, only children that
// can still be among the best. What is left out at any time is preceded by as many nodes as are
// wanted, and so is all that descends from it. So the last threshold, exact, leaves the tree,
// whatever the input; memory holds it with a margin, and an unlucky input costs steps, not space.
//
// Chain seeds are the nodes that stand at the place of their depth, up to depth `seeds`. They are
// always kept and not counted.
#pragma once

#include "ddtree/views.hpp"

#include "common/block.cuh"
#include "rules/weight.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Places are indices in the order of the nodes now.
struct search_node {
  std::uint64_t depth : 5;
  std::uint64_t rank : 10;
  std::uint64_t parent : 12;
  /// Nodes that come before it whatever the log-probs are, itself included: all whose ranks are
  /// nowhere above its own. `product` counts those that are as deep as it is.
  std::uint64_t product : 11;
  std::uint64_t left : 12;  // its left sibling; 0 where rank is 0
  std::uint64_t dominated : 11;
};
static_assert(sizeof(search_node) == 8 && max_depth < 32 && max_top_k <= 1024 && max_budget < 2048);

inline constexpr search_node search_root = {0, 0, 0, 1, 0, 0};

/// The candidates of a request. Depths count from 1.
struct search_rows {
  token_t const* token;
  float const* log_prob;
  int top_k;
  int depth;       // beyond it no candidate is usable,
  int ranks;       // nor at this rank,
  int const* bad;  // nor from half of this on, by depth; in shared memory

  __device__ int usable(int at) const {
    if (at > depth) return 0;
    int const end = bad[at] / 2;
    return end < ranks ? end : ranks;
  }

  __device__ rules::weight_t weight(int depth, int rank) const {
    return rules::weight(log_prob[(depth - 1) * top_k + rank]);
  }
};

inline constexpr int search_bins = 256;

/// The sum of the values of this lane and those before it.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    T const other = __shfl_up_sync(all_lanes, value, static_cast<unsigned>(distance));
    if (lane_index() >= distance) value += other;
  }
  return value;
}

struct bin_place {
  int index;   // search_bins where the bins hold less
  int before;  // in the bins before
  int count;
};

/// The bin that holds the item of that rank, counted from 1. Whole warps.
__device__ inline bin_place bin_with(std::uint32_t const* bins, std::uint32_t rank) {
  constexpr int per_lane = search_bins / 32;
  std::uint32_t count[per_lane];
  std::uint32_t sum = 0;
#pragma unroll
  for (int k = 0; k < per_lane; ++k) {
    count[k] = bins[lane_index() * per_lane + k];
    sum += count[k];
  }
  std::uint32_t const end = warp_sum(sum);
  unsigned const reaching = __ballot_sync(all_lanes, end >= rank);
  if (reaching == 0) return {search_bins, 0, 0};
  int const lane = __ffs(static_cast<int>(reaching)) - 1;
  bin_place at{lane_index() * per_lane, static_cast<int>(end - sum), 0};
  bool found = false;
#pragma unroll
  for (int k = 0; k < per_lane; ++k) {
    if (found) continue;
    at.count = static_cast<int>(count[k]);
    found = static_cast<std::uint32_t>(at.before + at.count) >= rank;
    if (found) continue;
    at.before += at.count;
    ++at.index;
  }
  return {__shfl_sync(all_lanes, at.index, lane), __shfl_sync(all_lanes, at.before, lane),
          __shfl_sync(all_lanes, at.count, lane)};
}

template <int Threads, int PerThread>
struct search_memory {
  static constexpr int capacity = Threads * PerThread;
  static_assert(capacity <= 4096, "places have 12 bits");

  rules::weight_t weight[capacity + 1];  // one more, for a sort of a power of two
  search_node node[capacity];
  std::uint16_t place[capacity];
  std::uint32_t histogram[3][search_bins];
  unsigned long long totals[2][warps_of<Threads>];
  std::uint32_t reach;
  int added;
  int frontier;
};

template <int Threads, int PerThread>
class tree_search {
 public:
  using memory = search_memory<Threads, PerThread>;
  static constexpr int capacity = memory::capacity;

  /// Capacity is at least nodes + nodes / 4 + 1 + the most children a node can have. `lowest` is
  /// the weight that all nodes but seeds must reach. All threads, and a barrier has to follow.
  __device__ tree_search(memory& shared, search_rows const& rows, int nodes, int seeds,
                         rules::weight_t lowest)
      : shared_(shared),
        rows_(rows),
        nodes_(nodes),
        seeds_(seeds),
        threshold_(nodes == seeds ? INT64_MAX : lowest) {
    for (int i = static_cast<int>(threadIdx.x); i < search_bins; i += Threads) {
      shared_.histogram[0][i] = 0;
    }
    if (threadIdx.x == 0) {
      shared_.weight[0] = 0;
      shared_.node[0] = search_root;
      shared_.reach = 0;
    }
  }

  /// Leaves the root and the selected nodes in memory, in preorder; returns how many. Ends with a
  /// barrier.
  __device__ int run(int max_depth) {
    int depth = 0;
    for (int added = 0; depth < max_depth;) {
      raise_threshold(depth, nodes_ / 4);
      added += grow(depth);
      if (frontier_ > 0) continue;
      if (added == 0) break;
      added = 0;
      ++depth;
    }
    raise_threshold(depth, 0);
    (void)grow(no_depth);
    return count_;
  }

 private:
  static constexpr int no_depth = -1;

  /// Heavier nodes have the smaller key.
  static __device__ std::uint64_t key_of(rules::weight_t w) {
    return 0 - static_cast<std::uint64_t>(w);
  }

  __device__ bool is_seed(int i, search_node n) const {
    return i <= seeds_ && i == static_cast<int>(n.depth);
  }

  /// Item e of this thread where each warp holds `rounds` times 32 in a row.
  static __device__ int item(int rounds, int e) {
    return (warp_index() * rounds + e) * 32 + lane_index();
  }
  static __device__ int rounds_of(int count) { return (count + Threads - 1) / Threads; }

  /// Puts a weight at the threshold that at least the best nodes_ - seeds_ nodes reach, seeds not
  /// counted, and at most `slack` more; where as many nodes weigh the same, `ties_` of them, from
  /// the front, are in. Below that number of nodes the threshold stays.
  __device__ void raise_threshold(int depth, int slack) {
    ties_ = capacity;
    int const deepest = frontier_ > 0 ? depth + 1 : depth;
    int const seeds = 1 + (deepest < seeds_ ? deepest : seeds_);
    int rest = nodes_ - seeds_;
    if (rest == 0 || count_ - seeds < rest) return;

    std::uint64_t low = 0;
    std::uint64_t high = ((std::uint64_t{shared_.reach} + 1) << reach_shift) - 1;
    if (key_of(threshold_) < high) high = key_of(threshold_);
    for (;;) {
      int const excess = 64 - __clzll(static_cast<long long>(high - low)) - bin_bits;
      int const shift = excess > 0 ? excess : 0;
      bin_place const at = find_bin(low, high, shift, static_cast<std::uint32_t>(rest));
      std::uint64_t const first = low + (static_cast<std::uint64_t>(at.index) << shift);
      std::uint64_t const last = first + ((std::uint64_t{1} << shift) - 1);
      if (at.before + at.count - rest <= slack) {
        threshold_ = -static_cast<rules::weight_t>(last < high ? last : high);
        return;
      }
      if (shift == 0) {
        threshold_ = -static_cast<rules::weight_t>(first);
        ties_ = rest - at.before;
        return;
      }
      rest -= at.before;
      low = first;
      if (last < high) high = last;
    }
  }

  /// The bin of keys low + [index, index + 1) << shift that holds the node of that rank, counted
  /// from 1; there are as many nodes up to `high`.
  __device__ bin_place find_bin(std::uint64_t low, std::uint64_t high, int shift,
                                std::uint32_t rank) {
    // Three in turn: the next one is cleared while this one fills and stragglers still read the one
    // before, so that a pass needs one barrier.
    std::uint32_t* const bins = shared_.histogram[turn_];
    turn_ = turn_ == 2 ? 0 : turn_ + 1;
    for (int i = static_cast<int>(threadIdx.x); i < search_bins; i += Threads) {
      shared_.histogram[turn_][i] = 0;
    }
    for (int i = static_cast<int>(threadIdx.x); i < count_; i += Threads) {
      std::uint64_t const key = key_of(shared_.weight[i]);
      if (key < low || key > high || (i <= seeds_ && is_seed(i, shared_.node[i]))) continue;
      atomicAdd(bins + ((key - low) >> shift), 1u);
    }
    __syncthreads();
    return bin_with(bins, rank);
  }

  /// Drops the nodes that the threshold leaves out and adds children of the nodes at `depth`, in
  /// preorder from `frontier_` on. Where not all find room, frontier_ is then the first node
  /// without its children, otherwise 0. Returns how many were added. Ends with a barrier.
  __device__ int grow(int depth) {
    int const rounds = rounds_of(count_);
    unsigned long long before[PerThread] = {};
    if (ties_ < capacity) rank_ties(rounds, before);
    // Kept nodes in the low half, children in the high one.
    int children[PerThread] = {};
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = item(rounds, e);
      bool const kept = e < rounds && i < count_ && is_kept(i, before[e]);
      if (kept) children[e] = count_children(depth, i);
      before[e] = (kept ? 1u : 0u) | static_cast<unsigned long long>(children[e]) << 32;
    }
    unsigned long long const total = exclusive_sum(rounds, before);
    int const kept = low_half(total);
    int added = high_half(total);
    frontier_ = 0;
    if (added == 0 && kept == count_) return 0;

    if (added > capacity - kept) {
#pragma unroll
      for (int e = 0; e < PerThread; ++e) {
        int const room = capacity - kept - high_half(before[e]);
        if (room < 0 || room >= children[e]) continue;
        shared_.added = high_half(before[e]);
        shared_.frontier = low_half(before[e]) + high_half(before[e]);
      }
      __syncthreads();
      added = shared_.added;
      frontier_ = shared_.frontier;
    }
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = item(rounds, e);
      if (e >= rounds || i >= count_) continue;
      int const inserted = high_half(before[e]);
      shared_.place[i] =
          static_cast<std::uint16_t>(low_half(before[e]) + (inserted < added ? inserted : added));
    }
    __syncthreads();
    move(depth, kept + added);
    return added;
  }

  /// Brings every node to its place and puts the children between them.
  __device__ void move(int depth, int count) {
    int const rounds = rounds_of(count);
    rules::weight_t weight[PerThread];
    search_node node[PerThread];
    std::uint32_t reach = 0;
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const at = item(rounds, e);
      if (e >= rounds || at >= count) continue;
      int const i = node_at_or_before(at);
      int const first = shared_.place[i];
      weight[e] = shared_.weight[i];
      node[e] = shared_.node[i];
      if (at == first) {
        node[e].parent = shared_.place[node[e].parent];
        node[e].left = shared_.place[node[e].left];
        continue;
      }
      int const rank = at - first - 1;
      weight[e] += rows_.weight(depth + 1, rank);
      node[e] = child_of(node[e], first, rank);
      if (is_seed(at, node[e])) continue;
      auto const own = static_cast<std::uint32_t>(key_of(weight[e]) >> reach_shift);
      reach = reach < own ? own : reach;
    }
    reach = __reduce_max_sync(all_lanes, reach);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const at = item(rounds, e);
      if (e >= rounds || at >= count) continue;
      shared_.weight[at] = weight[e];
      shared_.node[at] = node[e];
    }
    if (reach > 0 && lane_index() == 0) atomicMax(&shared_.reach, reach);
    count_ = count;
    __syncthreads();
  }

  static __device__ search_node child_of(search_node parent, int place, int rank) {
    search_node n = parent;
    n.depth = parent.depth + 1;
    n.rank = static_cast<std::uint64_t>(rank);
    n.product = parent.product * static_cast<std::uint64_t>(rank + 1);
    n.dominated = parent.dominated + n.product;
    n.parent = static_cast<std::uint64_t>(place);
    n.left = rank == 0 ? 0u : static_cast<std::uint64_t>(place + rank);
    return n;
  }

  /// The last node whose new place is not behind `at`; that is one that is kept, as the place of a
  /// dropped one is that of the next node.
  __device__ int node_at_or_before(int at) const {
    int low = 0;
    for (int high = count_; high - low > 1;) {
      int const middle = (low + high) / 2;
      if (shared_.place[middle] <= at) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /// `tie` is the number of nodes in front of it that weigh as much as the threshold.
  __device__ bool is_kept(int i, unsigned long long tie) const {
    rules::weight_t const weight = shared_.weight[i];
    if (weight > threshold_) return true;
    if (weight == threshold_ && static_cast<int>(tie) < ties_) return true;
    return i <= seeds_ && is_seed(i, shared_.node[i]);
  }

  __device__ void rank_ties(int rounds, unsigned long long (&before)[PerThread]) {
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = item(rounds, e);
      before[e] = e < rounds && i < count_ && shared_.weight[i] == threshold_ &&
                  !is_seed(i, shared_.node[i]);
    }
    (void)exclusive_sum(rounds, before);
  }

  /// How many children of node i can still be selected: 0 where its turn is not now.
  __device__ int count_children(int depth, int i) const {
    search_node const n = shared_.node[i];
    if (static_cast<int>(n.depth) != depth || i < frontier_) return 0;
    rules::weight_t const weight = shared_.weight[i];
    int const usable = rows_.usable(depth + 1);
    int const undominated = (nodes_ - static_cast<int>(n.dominated)) / static_cast<int>(n.product);
    int most = usable < undominated ? usable : undominated;
    int children = 0;
    while (children < most) {
      int const middle = (children + most) / 2;
      if (weight + rows_.weight(depth + 1, middle) >= threshold_) {
        children = middle + 1;
      } else {
        most = middle;
      }
    }
    return children == 0 && i == depth && depth < seeds_ ? 1 : children;
  }

  static __device__ int low_half(unsigned long long x) {
    return static_cast<int>(static_cast<std::uint32_t>(x));
  }
  static __device__ int high_half(unsigned long long x) { return static_cast<int>(x >> 32); }

  /// Of each item the sum of the items before it; returns the sum of all.
  __device__ unsigned long long exclusive_sum(int rounds, unsigned long long (&value)[PerThread]) {
    constexpr int warps = warps_of<Threads>;
    unsigned long long sum = 0;
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      if (e >= rounds) continue;
      unsigned long long const end = warp_sum(value[e]);
      value[e] = sum + end - value[e];
      sum += __shfl_sync(all_lanes, end, 31);
    }
    // Two in turn: the barrier of the next sum stands between reading these and writing them again.
    unsigned long long* const totals = shared_.totals[parity_];
    parity_ ^= 1;
    if (lane_index() == 0) totals[warp_index()] = sum;
    __syncthreads();
    unsigned long long const of_warp = lane_index() < warps ? totals[lane_index()] : 0;
    unsigned long long const end = warp_sum(of_warp);
    unsigned long long const before = __shfl_sync(all_lanes, end - of_warp, warp_index());
#pragma unroll
    for (int e = 0; e < PerThread; ++e) value[e] += before;
    return __shfl_sync(all_lanes, end, 31);
  }

  static constexpr int bin_bits = 8;
  static_assert(1 << bin_bits == search_bins);
  /// Keys go up to 2^62; reach keeps their upper bits, finer than any spread worth telling apart.
  static constexpr int reach_shift = 31;

  memory& shared_;
  search_rows rows_;
  int nodes_;
  int seeds_;
  rules::weight_t threshold_;
  int ties_ = capacity;
  int count_ = 1;
  int frontier_ = 0;  // where the nodes begin that have not been asked for children at this depth
  int turn_ = 0;
  int parity_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
