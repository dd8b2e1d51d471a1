// SPDX-License-Identifier: Apache-2.0
// The best-first search for ordinary input: breadth first under one threshold.
//
// A family of nodes that can be counted without a search gives a weight which the tree reaches: the
// greedy chain, and the paths that leave it at one depth and follow the best candidates again. The
// levels below the root then hold what reaches it, not many more nodes than are wanted, in the
// order of their paths; one sort by weight leaves the tree.
//
// It gives up, and `tree_search` has to do it, where the nodes do not fit: only input that is tied
// throughout has so many of them.
#pragma once

#include "build/search.cuh"
#include "build/sort.cuh"
#include "common/block.cuh"
#include "rules/arith.hpp"
#include "rules/weight.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

template <int Threads, int PerThread>
struct quick_memory {
  static constexpr int buckets =
      Threads > Threads* PerThread / 2 ? Threads : Threads* PerThread / 2;

  rules::weight_t chain[max_depth + 1];  // of the rank-0 node of each depth
  std::uint32_t totals[2][warps_of<Threads>];
  std::uint32_t partial[warps_of<Threads>];
  std::uint32_t bucket[buckets + 1];  // nodes of each, then where it begins
  std::uint16_t seed_rank[max_depth + 1];
};

template <int Threads, int PerThread>
class quick_search {
 public:
  using nodes_memory = search_memory<Threads, PerThread>;
  using memory = quick_memory<Threads, PerThread>;
  static constexpr int capacity = nodes_memory::capacity;

  /// As for tree_search. All threads, and a barrier has to follow.
  __device__ quick_search(nodes_memory& nodes, memory& own, search_rows const& rows, int most,
                          int seeds, rules::weight_t lowest)
      : nodes_(nodes), own_(own), rows_(rows), most_(most), seeds_(seeds), lowest_(lowest) {
    int const t = static_cast<int>(threadIdx.x);
    for (int i = t; i < search_bins; i += Threads) nodes_.histogram[0][i] = 0;
    for (int i = t; i < memory::buckets; i += Threads) own_.bucket[i] = 0;
    if (t == 0) {
      nodes_.weight[0] = 0;
      nodes_.node[0] = {0, 0, 0, 1, 0, 0};
      nodes_.reach = 0;
    }
  }

  /// Leaves the selected nodes in memory, as `sort_rows` does; returns how many there are with the
  /// root, 0 where it gives up. Ends with a barrier.
  __device__ int run(int max_depth) {
    reach_depth_ = sum_chain(max_depth);
    if (reach_depth_ == 0) return 1;
    __syncthreads();
    count_deviations(reach_depth_);
    __syncthreads();
    find_threshold();
    int const count = grow();
    __syncthreads();
    return count == 0 ? 0 : sort(count - 1);
  }

 private:
  /// More nodes in one bucket are too many to compare each with each.
  static constexpr std::uint32_t most_in_bucket = 128;

  // Bins of the distance from the heaviest node, 32 for each power of two from 2^-2 on.
  static constexpr int bin_shift = 23 - 5;
  static constexpr int first_bin = (127 + 44 - 2) << 5;

  static __device__ int bin_of(rules::weight_t distance) {
    auto const bits = rules::float_bits(static_cast<float>(distance));
    int const bin = static_cast<int>(bits >> bin_shift) - first_bin;
    return bin > 0 ? bin : 0;
  }
  /// All distances in the bins up to this one are smaller.
  static __device__ rules::weight_t bin_end(int bin) {
    auto const bits = static_cast<std::uint32_t>(first_bin + bin + 1) << bin_shift;
    return rules::round_to_int64(rules::float_from_bits(bits));
  }

  __device__ bool is_seed(search_node n) const {
    return n.product == 1 && n.depth > 0 && static_cast<int>(n.depth) <= seeds_;
  }

  /// Returns the depth of the greedy chain.
  __device__ int sum_chain(int max_depth) {
    int const depth = lane_index() + 1;
    unsigned const has = __ballot_sync(all_lanes, depth <= max_depth && rows_.usable(depth) > 0);
    int const reach = __ffs(static_cast<int>(~has)) - 1;  // bit 31 is not set: max_depth < 32
    if (warp_index() == 0) {
      rules::weight_t sum = depth <= reach ? rows_.weight(depth, 0) : 0;
      for (int distance = 1; distance < 32; distance *= 2) {
        rules::weight_t const before =
            __shfl_up_sync(all_lanes, sum, static_cast<unsigned>(distance));
        if (lane_index() >= distance) sum += before;
      }
      if (depth <= reach) own_.chain[depth] = sum;
    }
    return reach;
  }

  /// Counts the nodes that take rank r at depth `from` and rank 0 at all others up to `to`, for all
  /// from <= to.
  __device__ void count_deviations(int reach) {
    // The pairs (from, to) of one `from` and those of the one as far from the other end make a row
    // of reach + 1.
    int const across = reach + 1;
    int const slots = across / 2 * across;
    for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += Threads) {
      int const row = slot / across;
      int const column = slot - row * across;
      bool const is_mirrored = column >= reach - row;
      if (is_mirrored && 2 * row + 1 == reach) continue;
      int const from = is_mirrored ? reach - row : row + 1;
      int const to = is_mirrored ? column : from + column;
      count_deviations(from, to);
    }
  }

  __device__ void count_deviations(int from, int to) {
    rules::weight_t const others = own_.chain[to] - rows_.weight(from, 0);
    // Rank r comes after so many nodes that it may not be among the best.
    int const undominated = (most_ - (from - 1)) / (to - from + 1);
    int const usable = rows_.usable(from);
    int const end = usable < undominated ? usable : undominated;
    // The node of rank 0 is the same for all `from`.
    count_ranks(others, from, from == to ? 0 : 1, end);
  }

  /// Counts the nodes of these ranks that weigh `others` without them. Of a run of ranks all are
  /// put where the last one belongs: a few loads do.
  __device__ void count_ranks(rules::weight_t others, int depth, int begin, int end) {
    constexpr int ahead = 4;
    for (int ranks = begin; ranks < end;) {
      // Loads first: none of them waits for another one.
      int count[ahead];
      int bin[ahead];
#pragma unroll
      for (int a = 0; a < ahead; ++a) {
        int const next = next_sample(ranks, end);
        count[a] = next - ranks;
        ranks = next;
        bin[a] = bin_of(own_.chain[1] - others - rows_.weight(depth, ranks - 1));
      }
#pragma unroll
      for (int a = 0; a < ahead; ++a) {
        if (count[a] == 0 || bin[a] >= search_bins) return;
        atomicAdd(&nodes_.histogram[0][bin[a]], static_cast<std::uint32_t>(count[a]));
      }
    }
  }

  /// 1, 2, 3, 4, 6, 8, 12, 16 and so on.
  static __device__ int next_sample(int ranks, int end) {
    int const step = (1 << (31 - __clz(ranks | 1))) >> 1;
    int const next = ranks + (step > 1 ? step : 1);
    return next < end ? next : end;
  }

  /// Nodes of one depth that have children, in the order of their paths: nodes_.place holds them
  /// from `begin` to `end`.
  struct level {
    int depth;
    int begin;
    int end;
    int usable;              // ranks of the children
    bool has_grandchildren;  // of which the best
    rules::weight_t best;    // adds so much to the weight
  };

  __device__ void find_threshold() {
    threshold_ = lowest_;
    if (most_ == seeds_) threshold_ = INT64_MAX;
    raise_threshold();
  }

  /// Raises the threshold to what the best of the counted nodes reach.
  __device__ void raise_threshold() {
    bin_place const at = bin_with(nodes_.histogram[0], static_cast<std::uint32_t>(most_));
    if (at.index == search_bins) return;
    rules::weight_t const reached = own_.chain[1] - bin_end(at.index);
    if (reached > threshold_) threshold_ = reached;
  }

  /// Raises the threshold in view of the nodes so far and the children of a level.
  __device__ void raise_threshold(level const& l, int count) {
    int const t = static_cast<int>(threadIdx.x);
    for (int i = t; i < search_bins; i += Threads) nodes_.histogram[0][i] = 0;
    __syncthreads();
    for (int i = 1 + t; i < count; i += Threads) {
      int const bin = bin_of(own_.chain[1] - nodes_.weight[i]);
      if (bin < search_bins) atomicAdd(&nodes_.histogram[0][bin], 1u);
    }
    for (int k = l.begin + t; k < l.end; k += Threads) {
      int const parent = nodes_.place[k];
      search_node const node = nodes_.node[parent];
      int const undominated =
          (most_ - static_cast<int>(node.dominated)) / static_cast<int>(node.product);
      count_ranks(nodes_.weight[parent], l.depth + 1, 0,
                  l.usable < undominated ? l.usable : undominated);
    }
    __syncthreads();
    raise_threshold();
  }

  __device__ level level_of(int depth, int begin, int end) const {
    level l{depth, begin, end, rows_.usable(depth + 1), depth + 2 <= reach_depth_, 0};
    if (l.has_grandchildren) l.best = rows_.weight(depth + 2, 0);
    return l;
  }

  /// Adds level after level; returns how many nodes there are, 0 where they do not fit.
  __device__ int grow() {
    level l = level_of(0, 0, 1);
    int count = 1;
    while (l.begin < l.end) {
      growth added = l.depth == 0 ? grow_root(l) : grow_level(l, count, count + most_);
      if (added.nodes < 0) {
        raise_threshold(l, count);
        added = grow_level(l, count, capacity);
        if (added.nodes < 0) return 0;
      }
      __syncthreads();
      count += added.nodes;
      l = level_of(l.depth + 1, l.end, l.end + added.parents);
    }
    distance_ = __reduce_max_sync(all_lanes, distance_);
    if (distance_ > 0 && lane_index() == 0) atomicMax(&nodes_.reach, distance_);
    return count;
  }

  /// Nodes, and how many of them are parents in their turn.
  struct growth {
    int nodes;
    int parents;

    __device__ growth operator+(growth other) const {
      return {nodes + other.nodes, parents + other.parents};
    }
  };

  struct child {
    rules::weight_t weight;
    search_node node;
    bool is_kept;
    bool is_parent;
  };

  __device__ bool is_kept(rules::weight_t weight, int dominated, bool is_chain_seed) const {
    return dominated <= most_ && (weight >= threshold_ || is_chain_seed);
  }

  /// Of siblings the first ones are kept, and the first of these are parents: neither weights nor
  /// dominance grow with the rank.
  __device__ child child_at(level const& l, rules::weight_t weight, search_node parent,
                            int rank) const {
    int const product = static_cast<int>(parent.product) * (rank + 1);
    int const dominated = static_cast<int>(parent.dominated) + product;
    bool const is_first = product == 1;
    child c;
    c.weight = weight + rows_.weight(l.depth + 1, rank);
    c.node = parent;
    c.node.depth = parent.depth + 1;
    c.node.rank = static_cast<std::uint64_t>(rank);
    c.node.product = static_cast<std::uint64_t>(product);
    c.node.dominated = static_cast<std::uint64_t>(dominated);
    c.is_kept = is_kept(c.weight, dominated, is_first && l.depth < seeds_);
    c.is_parent = l.has_grandchildren &&
                  is_kept(c.weight + l.best, dominated + product, is_first && l.depth + 1 < seeds_);
    return c;
  }

  /// Writes a child as node `at`, and as entry `entry` of the next level.
  __device__ void put(child const& c, int at, int entry, int parent) {
    search_node n = c.node;
    n.parent = static_cast<std::uint64_t>(parent);
    n.left = n.rank == 0 ? 0u : static_cast<std::uint64_t>(at - 1);
    nodes_.weight[at] = c.weight;
    nodes_.node[at] = n;
    if (c.is_parent) nodes_.place[entry] = static_cast<std::uint16_t>(at);
    if (is_seed(n)) return;
    auto const distance = static_cast<std::uint64_t>(own_.chain[1] - c.weight);
    auto const own = static_cast<std::uint32_t>(distance >> reach_shift);
    distance_ = distance_ < own ? own : distance_;
  }

  /// The children of the root: a thread each.
  __device__ growth grow_root(level const& l) {
    search_node const root = {0, 0, 0, 1, 0, 0};
    growth own{0, 0};
    for (int rank = static_cast<int>(threadIdx.x); rank < l.usable; rank += Threads) {
      child const c = child_at(l, 0, root, rank);
      if (!c.is_kept) break;
      put(c, 1 + rank, l.end + rank, 0);
      own = own + growth{1, c.is_parent ? 1 : 0};
    }
    return sum_before(
               {__reduce_add_sync(all_lanes, own.nodes), __reduce_add_sync(all_lanes, own.parents)})
        .all;
  }

  /// Adds the children of a level to `count` nodes: groups of lanes take a parent each. There are
  /// less than no nodes where there would be more than `limit`.
  __device__ growth grow_level(level const& l, int count, int limit) {
    limit = limit < capacity ? limit : capacity;
    int lanes = 32;
    while (lanes > 4 && lanes * (l.end - l.begin) > Threads) lanes /= 2;
    int const in_group = lane_index() & (lanes - 1);
    int const shift = lane_index() - in_group;
    unsigned const mask = all_lanes >> (32 - lanes);
    growth added{0, 0};
    for (int first = l.begin; first < l.end; first += Threads / lanes) {
      int const k = first + static_cast<int>(threadIdx.x) / lanes;
      int const parent = k < l.end ? nodes_.place[k] : 0;
      rules::weight_t const weight = nodes_.weight[parent];
      search_node const node = nodes_.node[parent];

      child first_child{};
      int rank = in_group;
      if (k < l.end && rank < l.usable) first_child = child_at(l, weight, node, rank);
      unsigned kept = __ballot_sync(all_lanes, first_child.is_kept);
      unsigned parents = __ballot_sync(all_lanes, first_child.is_parent);
      growth own{__popc(kept >> shift & mask), __popc(parents >> shift & mask)};
      // As the groups follow each other, so do their children.
      unsigned const before_group = (1u << shift) - 1u;
      growth before{__popc(kept & before_group), __popc(parents & before_group)};
      growth of_warp{__popc(kept), __popc(parents)};
      if (__any_sync(all_lanes, own.nodes == lanes)) {
        for (bool more = own.nodes == lanes; __any_sync(all_lanes, more);) {
          rank += lanes;
          child c{};
          if (more && rank < l.usable) c = child_at(l, weight, node, rank);
          kept = __ballot_sync(all_lanes, c.is_kept);
          parents = __ballot_sync(all_lanes, c.is_parent);
          int const more_nodes = __popc(kept >> shift & mask);
          own = own + growth{more_nodes, __popc(parents >> shift & mask)};
          more = more && more_nodes == lanes;
        }
        growth sum = own;
        for (int distance = lanes; distance < 32; distance *= 2) {
          growth const other{
              __shfl_up_sync(all_lanes, sum.nodes, static_cast<unsigned>(distance)),
              __shfl_up_sync(all_lanes, sum.parents, static_cast<unsigned>(distance))};
          if (lane_index() >= distance) sum = sum + other;
        }
        before = {sum.nodes - own.nodes, sum.parents - own.parents};
        of_warp = {__shfl_sync(all_lanes, sum.nodes, 31), __shfl_sync(all_lanes, sum.parents, 31)};
      }

      warp_sums const sums = sum_before(of_warp);
      before = before + added + sums.before;
      added = added + sums.all;
      if (count + added.nodes > limit) return {-1, 0};
      int const at = count + before.nodes;
      int const entry = l.end + before.parents;
      if (in_group < own.nodes) put(first_child, at + in_group, entry + in_group, parent);
      for (rank = in_group + lanes; rank < own.nodes; rank += lanes) {
        put(child_at(l, weight, node, rank), at + rank, entry + rank, parent);
      }
    }
    return added;
  }

  struct warp_sums {
    growth before;  // of the warps before
    growth all;
  };

  __device__ warp_sums sum_before(growth value) {
    // Two in turn: the barrier of the next sum stands between reading these and writing them again.
    std::uint32_t* const totals = own_.totals[parity_];
    parity_ ^= 1;
    if (lane_index() == 0) totals[warp_index()] = packed(value);
    __syncthreads();
    std::uint32_t const of_warp = lane_index() < warps_of<Threads> ? totals[lane_index()] : 0;
    bool const is_before = lane_index() < warp_index();
    return {unpacked(__reduce_add_sync(all_lanes, is_before ? of_warp : 0)),
            unpacked(__reduce_add_sync(all_lanes, of_warp))};
  }

  // Two sums in one word. More than fit are as good as any number that does not fit; and where the
  // parents overflow, so do the nodes.
  static constexpr int parent_bits = 13;
  static_assert(capacity < 1 << parent_bits && capacity * 32 < 1 << (32 - parent_bits));

  static __device__ std::uint32_t packed(growth g) {
    int const nodes = g.nodes < capacity ? g.nodes : capacity;
    int const parents = g.parents < capacity ? g.parents : capacity;
    return static_cast<std::uint32_t>(nodes << parent_bits | parents);
  }
  static __device__ growth unpacked(std::uint32_t word) {
    return {static_cast<int>(word >> parent_bits),
            static_cast<int>(word & ((1u << parent_bits) - 1u))};
  }

  /// Whether the path of node i comes before that of node j. In a level the nodes stand in order.
  __device__ bool has_earlier_path(int i, int j) const {
    auto const depth_i = static_cast<int>(nodes_.node[i].depth);
    auto const depth_j = static_cast<int>(nodes_.node[j].depth);
    int above_i = i;
    int above_j = j;
    for (int d = depth_i; d > depth_j; --d) above_i = static_cast<int>(nodes_.node[above_i].parent);
    for (int d = depth_j; d > depth_i; --d) above_j = static_cast<int>(nodes_.node[above_j].parent);
    // Of a node and what descends from it, the node comes first.
    return above_i != above_j ? above_i < above_j : depth_i < depth_j;
  }

  /// Node i and how many stand before it, one for each of the thread's items; i is 0 where there is
  /// none.
  struct ranked {
    rules::weight_t weight;
    int i = 0;
    int rank;
  };

  /// Sorts nodes 1..n and cuts them off; returns how many are left, the root included.
  __device__ int sort(int n) {
    ranked item[PerThread];
    if (fill_buckets(n)) {
      sort_by_network(n, item);
    } else {
      rank_in_buckets(n, item);
    }
    if (seeds_ > 0) {
#pragma unroll
      for (int e = 0; e < PerThread; ++e) {
        search_node const node = nodes_.node[item[e].i];
        if (is_seed(node)) own_.seed_rank[node.depth] = static_cast<std::uint16_t>(item[e].rank);
      }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      if (item[e].i == 0) continue;
      int const row = row_of(item[e]);
      if (row == 0) continue;
      nodes_.weight[row] = item[e].weight;
      nodes_.place[row - 1] = static_cast<std::uint16_t>(item[e].i);
    }
    __syncthreads();
    return 1 + (n < most_ ? n : most_);
  }

  __device__ int bucket_of(rules::weight_t weight) const {
    int const excess = 32 - __clz(static_cast<int>(nodes_.reach)) + reach_shift - bucket_bits;
    auto const distance = static_cast<std::uint64_t>(own_.chain[1] - weight) >> excess;
    return distance < memory::buckets ? static_cast<int>(distance) : memory::buckets - 1;
  }

  /// Puts nodes 1..n into buckets, or returns true where that does not tell them apart well enough.
  /// Ends with a barrier.
  __device__ bool fill_buckets(int n) {
    int const t = static_cast<int>(threadIdx.x);
    int bucket[PerThread];
    std::uint32_t slot[PerThread];
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = 1 + t + e * Threads;
      if (i > n) continue;
      bucket[e] = bucket_of(nodes_.weight[i]);
      slot[e] = atomicAdd(&own_.bucket[bucket[e]], 1u);
    }
    __syncthreads();
    if (find_buckets()) return true;
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = 1 + t + e * Threads;
      if (i > n) continue;
      nodes_.place[own_.bucket[bucket[e]] + slot[e]] = static_cast<std::uint16_t>(i);
    }
    __syncthreads();
    return false;
  }

  __device__ int count_before(int i, int begin, int end) const {
    int before = 0;
    for (int k = begin; k < end; ++k) {
      int const j = nodes_.place[k];
      rules::weight_t const other = nodes_.weight[j];
      if (other < nodes_.weight[i] || j == i) continue;
      if (other > nodes_.weight[i] || has_earlier_path(j, i)) ++before;
    }
    return before;
  }

  __device__ void rank_in_buckets(int n, ranked (&item)[PerThread]) const {
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = 1 + static_cast<int>(threadIdx.x) + e * Threads;
      if (i > n) continue;
      rules::weight_t const weight = nodes_.weight[i];
      int const bucket = bucket_of(weight);
      int const begin = static_cast<int>(own_.bucket[bucket]);
      int const end = static_cast<int>(own_.bucket[bucket + 1]);
      // In a level the index decides a tie; all other ties are rare.
      auto const depth = nodes_.node[i].depth;
      int rank = begin;
      bool has_others = false;
#pragma unroll 4
      for (int k = begin; k < end; ++k) {
        int const j = nodes_.place[k];
        rules::weight_t const other = nodes_.weight[j];
        bool const ties = other == weight;
        rank += static_cast<int>(other > weight) + static_cast<int>(ties & (j < i));
        has_others = has_others | (ties & (nodes_.node[j].depth != depth));
      }
      if (has_others) rank = begin + count_before(i, begin, end);
      item[e] = {weight, i, rank};
    }
  }

  __device__ void sort_by_network(int n, ranked (&item)[PerThread]) {
    sort_rows<Threads>(nodes_, n, [this](int i, int j) { return has_earlier_path(i, j); });
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const rank = static_cast<int>(threadIdx.x) + e * Threads;
      if (rank < n) item[e] = {nodes_.weight[rank + 1], nodes_.place[rank], rank};
    }
  }

  /// Turns the counts of the buckets into their beginnings. Returns whether one is too large; ends
  /// with a barrier.
  __device__ bool find_buckets() {
    constexpr int share = memory::buckets / Threads;
    std::uint32_t* const own = own_.bucket + threadIdx.x * share;
    std::uint32_t count[share];
    std::uint32_t sum = 0;
    bool is_large = false;
#pragma unroll
    for (int k = 0; k < share; ++k) {
      count[k] = own[k];
      sum += count[k];
      is_large = is_large || count[k] > most_in_bucket;
    }
    std::uint32_t begin = block_scan<Threads>(sum, plus{}, own_.partial) - sum;
#pragma unroll
    for (int k = 0; k < share; ++k) {
      own[k] = begin;
      begin += count[k];
    }
    if (threadIdx.x == Threads - 1) own_.bucket[memory::buckets] = begin;
    return __syncthreads_or(is_large) != 0;
  }

  /// 0 where it is cut off.
  __device__ int row_of(ranked const& item) const {
    int const rank = item.rank;
    if (seeds_ == 0) return rank < most_ ? rank + 1 : 0;
    int seeds = 0;
    for (int d = 1; d <= seeds_; ++d) seeds += own_.seed_rank[d] < rank ? 1 : 0;
    int const others = rank - seeds;
    if (others < most_ - seeds_) return rank + 1;
    return is_seed(nodes_.node[item.i]) ? most_ - seeds_ + seeds + 1 : 0;
  }

  static constexpr int log2_of(int x) { return x == 1 ? 0 : 1 + log2_of(x / 2); }
  static constexpr int bucket_bits = log2_of(memory::buckets);
  /// Distances go up to 2^62; reach keeps their upper bits, as that of tree_search does.
  static constexpr int reach_shift = 31;

  nodes_memory& nodes_;
  memory& own_;
  search_rows rows_;
  int most_;
  int seeds_;
  rules::weight_t lowest_;
  rules::weight_t threshold_ = 0;
  int reach_depth_ = 0;         // of the greedy chain
  std::uint32_t distance_ = 0;  // upper bits of the largest from the heaviest node
  int parity_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
