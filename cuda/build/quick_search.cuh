// SPDX-License-Identifier: Apache-2.0
// The best-first search for ordinary input: breadth first under one threshold.
//
// The threshold comes from counting, not from a search. A box of paths (up to m ranks at each of d
// depths) that holds as many nodes as are wanted bounds how far below the heaviest node the tree
// reaches. In bins of that distance the nodes of all paths are counted depth by depth: those with
// rank r at the next depth are those without it, moved by what r costs. Every cost is rounded up to
// bins, so a node is never counted where it weighs less, and where the count reaches the tree's
// size the tree ends. The levels below the root then hold little more than the tree (an eighth more
// at budget 1024), in the order of their paths, and one sort by weight that keeps the order of
// equal nodes leaves it.
//
// It gives up, and `tree_search` has to do it, where the nodes do not fit: only input that is tied
// throughout has so many of them.
#pragma once

#include "build/search.cuh"
#include "common/block.cuh"
#include "rules/arith.hpp"
#include "rules/weight.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Ranks are counted in runs that grow: 1, 2, .. 8, 10, 12, 14, 16, 20, 24 and so on. A run counts
/// as its last rank.
struct rank_runs {
  static constexpr int most = 8 + 4 * 7;   // up to max_top_k
  static constexpr int padded = most + 4;  // to steps of eight

  static __device__ int end(int run) {
    if (run < 8) return run + 1;
    return (2 << (run - 8) / 4) * (5 + (run - 8) % 4);
  }

  /// How many runs hold ranks below `ranks`, from 1 on, to steps of eight.
  static __device__ int count(int ranks) {
    int const octave = 31 - __clz(ranks | 1);
    return octave < 3 ? 8 : octave < 5 ? 16 : octave < 7 ? 24 : octave < 9 ? 32 : padded;
  }
};
static_assert(max_top_k <= 1024);

template <int Threads>
struct quick_memory {
  static constexpr int bins = Threads < 256 ? Threads : 256;
  static constexpr int buckets = 512;
  static constexpr int warps = warps_of<Threads>;

  rules::weight_t chain[max_depth + 1];  // of the rank-0 node of each depth
  int range_bits;                        // of the distance of the box's lightest node
  int last_bin;
  int is_past_last[2];  // by depth, in turn
  int grown_count;
  std::uint32_t totals[2][warps];
  std::uint16_t seed_rank[max_depth + 1];
  union {
    struct {
      // Two in turn, with zeros in front.
      std::uint32_t up_to[2][2 * bins];
      // Of each run the bins that it costs times four, and how many ranks it has.
      alignas(16) std::uint32_t run[max_depth][rank_runs::padded];
      int chain_bin[max_depth + 1];
    } count;
    struct {
      // Nodes of each bucket in the part of each warp.
      alignas(16) std::uint8_t count[buckets * warps];
      std::uint16_t begin[buckets * warps / 16];  // of 16 counts
      std::uint8_t mark[buckets];
      std::uint32_t partial[warps];
    } sort;
  };
};

template <int Threads, int PerThread>
class quick_search {
 public:
  using nodes_memory = search_memory<Threads, PerThread>;
  using memory = quick_memory<Threads>;
  static constexpr int capacity = nodes_memory::capacity;

  /// As for tree_search. All threads, and a barrier has to follow.
  __device__ quick_search(nodes_memory& nodes, memory& own, search_rows const& rows, int most,
                          int seeds, rules::weight_t lowest)
      : nodes_(nodes), own_(own), rows_(rows), most_(most), seeds_(seeds), lowest_(lowest) {
    int const t = static_cast<int>(threadIdx.x);
    for (int i = t; i < bins; i += Threads) {
      own_.count.up_to[0][i] = 0;
      own_.count.up_to[1][i] = 0;
      own_.count.up_to[0][bins + i] = 1;
    }
    if (t == 0) {
      nodes_.weight[0] = 0;
      nodes_.node[0] = search_root;
      own_.range_bits = 63;
      own_.is_past_last[0] = own_.is_past_last[1] = 0;
      own_.last_bin = bins;
    }
  }

  /// Leaves the selected nodes in memory, as `sort_rows` does; returns how many there are with the
  /// root, 0 where it gives up. Ends with a barrier. Calls meanwhile(t, threads) for t < threads:
  /// threads that have nothing else to do, if there are such.
  template <class Meanwhile>
  __device__ int run(int max_depth, Meanwhile meanwhile) {
    int const t = static_cast<int>(threadIdx.x);
    find_chain(max_depth);
    if (Threads == bins || reach_depth_ == 0) meanwhile(t, Threads);
    if (reach_depth_ == 0) return 1;
    __syncthreads();
    find_costs();
    __syncthreads();
    if (t < bins) {
      count_nodes();
    } else {
      meanwhile(t - bins, Threads - bins);
    }
    __syncthreads();
    find_threshold();
    int const count = grow();
    return count == 0 ? 0 : sort(count - 1);
  }

 private:
  static constexpr int bins = memory::bins;
  static constexpr int buckets = memory::buckets;
  static constexpr int warps = memory::warps;
  static_assert(bins <= Threads);

  /// Finds the greedy chain and how far down a box of paths reaches that holds the tree's size.
  __device__ void find_chain(int max_depth) {
    int const depth = lane_index() + 1;
    int const usable = depth <= max_depth ? rows_.usable(depth) : 0;
    reach_depth_ = __ffs(static_cast<int>(~__ballot_sync(all_lanes, usable > 0))) - 1;
    if (reach_depth_ == 0) return;
    heaviest_ = rows_.weight(1, 0);
    // A warp each: 1, 2, 3, 4, 8, 16 ranks and so on; the last one, all.
    int const warp = warp_index();
    bool const takes_all = warp == warps - 1;
    int const most = takes_all ? max_top_k : warp < 4 ? warp + 1 : 4 << (warp - 3);
    if (most > max_top_k) return;
    bool const is_there = depth <= reach_depth_;
    int const ranks = usable < most ? usable : most;
    rules::weight_t sum = is_there ? rows_.weight(depth, ranks - 1) : 0;
    int paths = is_there ? ranks : 1;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      auto const step = static_cast<unsigned>(distance);
      rules::weight_t const sum_before = __shfl_up_sync(all_lanes, sum, step);
      int const paths_before = __shfl_up_sync(all_lanes, paths, step);
      if (lane_index() < distance) continue;
      sum += sum_before;
      paths = limited(paths * paths_before);
    }
    if (warp == 0 && is_there) own_.chain[depth] = sum;
    // One node at least of each depth before the last one.
    unsigned const enough = __ballot_sync(all_lanes, is_there && paths + lane_index() >= most_);
    // All nodes are in the last box, enough or not.
    int last = takes_all ? reach_depth_ - 1 : -1;
    if (enough != 0) last = __ffs(static_cast<int>(enough)) - 1;
    if (lane_index() != last) return;
    atomicMin(&own_.range_bits, 64 - __clzll(heaviest_ - sum));
  }

  static constexpr int most_counted = 4096;
  static_assert(max_budget <= most_counted);
  static __device__ int limited(int count) { return count < most_counted ? count : most_counted; }

  /// In bins, rounded up; `bins` where it is out of range.
  __device__ int bins_of(rules::weight_t distance) const {
    rules::weight_t const up = (distance + ((rules::weight_t{1} << bin_shift_) - 1)) >> bin_shift_;
    return up < bins ? static_cast<int>(up) : bins;
  }

  __device__ void find_costs() {
    int const excess = own_.range_bits - log2_of(bins);
    bin_shift_ = excess > 0 ? excess : 0;
    int const runs = rank_runs::count(rows_.ranks);
    for (int run = lane_index(); run < runs; run += 32) {
      int const begin = run == 0 ? 0 : rank_runs::end(run - 1);
      int const whole = rank_runs::end(run);
#pragma unroll 2
      for (int d = 1 + warp_index(); d <= reach_depth_; d += warps) {
        int const usable = rows_.usable(d);
        int const end = whole < usable ? whole : usable;
        std::uint32_t cost = 4 * bins;
        if (begin < end) {
          cost = static_cast<std::uint32_t>(
              4 * bins_of(rows_.weight(d, 0) - rows_.weight(d, end - 1)) | (end - begin) << 16);
        }
        own_.count.run[d - 1][run] = cost;
      }
    }
    int const d = static_cast<int>(threadIdx.x);
    if (d > 0 && d <= reach_depth_) own_.count.chain_bin[d] = bins_of(heaviest_ - own_.chain[d]);
  }

  /// Threads below `bins`: finds the bin that the tree ends in.
  __device__ void count_nodes() {
    int const bin = static_cast<int>(threadIdx.x);
    auto const most = static_cast<std::uint32_t>(most_);
    int const runs = rank_runs::count(rows_.ranks);
    std::uint32_t nodes = 0;
    int chain_bin = 0;
    for (int d = 1; chain_bin < bins; ++d) {
      std::uint32_t const* const before = own_.count.up_to[(d - 1) & 1] + bins;
      std::uint32_t* const now = own_.count.up_to[d & 1] + bins;
      now[bin] = count_paths(own_.count.run[d - 1], runs, before + bin);
      int const next_bin = d < reach_depth_ ? own_.count.chain_bin[d + 1] : bins;
      asm volatile("bar.sync 1, %0;" ::"n"(bins) : "memory");
      // All nodes from this depth on come too late.
      if (own_.is_past_last[(d - 1) & 1] != 0) break;
      nodes += now[bin - chain_bin];
      if (bin == next_bin - 1 && nodes >= most) own_.is_past_last[d & 1] = 1;
      chain_bin = next_bin;
    }
    unsigned const enough = __ballot_sync(all_lanes, nodes >= most);
    if (enough != 0 && lane_index() == __ffs(static_cast<int>(enough)) - 1) {
      atomicMin(&own_.last_bin, bin);
    }
  }

  static __device__ std::uint32_t count_paths(std::uint32_t const* run, int runs,
                                              std::uint32_t const* before) {
    std::uint32_t paths = 0;
    for (int r = 0; r < runs; r += 8) {
      uint4 const a = *reinterpret_cast<uint4 const*>(run + r);
      uint4 const b = *reinterpret_cast<uint4 const*>(run + r + 4);
      paths += times_moved(a.x, before) + times_moved(a.y, before) + times_moved(a.z, before) +
               times_moved(a.w, before) + times_moved(b.x, before) + times_moved(b.y, before) +
               times_moved(b.z, before) + times_moved(b.w, before);
      if ((b.w & 0xffffu) >= 4 * bins) break;
    }
    return paths < most_counted ? paths : most_counted;
  }

  static __device__ std::uint32_t times_moved(std::uint32_t run, std::uint32_t const* before) {
    auto const* const at = reinterpret_cast<unsigned char const*>(before) - (run & 0xffffu);
    return (run >> 16) * *reinterpret_cast<std::uint32_t const*>(at);
  }

  __device__ void find_threshold() {
    int const last = own_.last_bin < bins ? own_.last_bin : bins;
    spread_ = rules::weight_t{last} << bin_shift_;
    threshold_ = heaviest_ - spread_;
    if (threshold_ < lowest_) threshold_ = lowest_;
    if (most_ == seeds_) threshold_ = INT64_MAX;
    // The counts are done with.
    static_assert(sizeof(own_.sort.count) == 16 * Threads);
    reinterpret_cast<uint4*>(own_.sort.count)[threadIdx.x] = {};
    for (int i = static_cast<int>(threadIdx.x); i < buckets; i += Threads) {
      own_.sort.mark[i] = 0;
    }
  }

  /// Nodes, and how many of them are parents in their turn: two sums in one word. Where the parents
  /// overflow the nodes do not fit, and overflowing makes them no fewer.
  struct growth {
    static constexpr int parent_bits = 13;
    static_assert(capacity < 1 << parent_bits && capacity * 32 < 1 << (32 - parent_bits));
    std::uint32_t word;

    static __device__ growth of(int nodes, int parents) {
      return {static_cast<std::uint32_t>(nodes << parent_bits | parents)};
    }
    __device__ int nodes() const { return static_cast<int>(word >> parent_bits); }
    __device__ int parents() const { return static_cast<int>(word & ((1u << parent_bits) - 1u)); }
  };

  /// Nodes of one depth that have children, in the order of their paths: nodes_.place holds them
  /// from `begin` to `end`.
  struct level {
    int depth;
    int begin;
    int end;
    int usable;                  // ranks of the children
    float const* log_prob;       // of these
    rules::weight_t parents_at;  // the least weight of a child that has children
  };

  __device__ level level_of(int depth, int begin, int end) const {
    level l{depth,    begin, end, rows_.usable(depth + 1), rows_.log_prob + depth * rows_.top_k,
            INT64_MAX};
    if (depth + 2 <= reach_depth_ && threshold_ < INT64_MAX) {
      l.parents_at = threshold_ - (own_.chain[depth + 2] - own_.chain[depth + 1]);
    }
    return l;
  }

  /// Adds level after level; returns how many nodes there are, 0 where they do not fit. Ends with a
  /// barrier.
  __device__ int grow() {
    if (threadIdx.x == 0) nodes_.place[0] = 0;
    level const l = level_of(0, 0, 1);
    int count = 1;
    __syncthreads();
    if constexpr (capacity <= 256) {
      // Small levels take one warp less time than the block.
      if (warp_index() == 0) {
        grow_levels<32>(l, count, [] { __syncwarp(); });
        if (lane_index() == 0) own_.grown_count = count;
      }
      __syncthreads();
      count = own_.grown_count;
    } else {
      grow_levels<Threads>(l, count, [] { __syncthreads(); });
    }
    return count <= capacity ? count : 0;
  }

  template <int GrowingThreads, class Sync>
  __device__ void grow_levels(level l, int& count, Sync sync) {
    while (l.begin < l.end && count <= capacity) {
      growth const added = grow_level<GrowingThreads>(l, count);
      sync();
      count += added.nodes();
      l = level_of(l.depth + 1, l.end, l.end + added.parents());
    }
  }

  struct child {
    rules::weight_t weight;
    bool is_kept;
    bool is_parent;
  };

  /// Of siblings the first ones are kept, and the first of these are parents.
  __device__ child child_at(level const& l, rules::weight_t weight, bool is_chain, int rank) const {
    child c{};
    if (rank >= l.usable) return c;
    c.weight = weight + rules::weight(l.log_prob[rank]);
    bool const is_first = is_chain && rank == 0;
    c.is_kept = c.weight >= threshold_ || (is_first && l.depth < seeds_);
    c.is_parent = c.weight >= l.parents_at ||
                  (is_first && l.depth + 1 < seeds_ && l.depth + 2 <= reach_depth_);
    return c;
  }

  /// Writes a child as node `at`, and as entry `entry` of the next level.
  __device__ void put(level const& l, child const& c, bool is_chain, int rank, int at, int entry,
                      int parent) {
    search_node n{};
    n.depth = static_cast<std::uint64_t>(l.depth + 1);
    n.rank = static_cast<std::uint64_t>(rank);
    n.parent = static_cast<std::uint64_t>(parent);
    n.product = is_chain ? 1u : 0u;
    n.left = rank == 0 ? 0u : static_cast<std::uint64_t>(at - 1);
    nodes_.weight[at] = c.weight;
    nodes_.node[at] = n;
    if (c.is_parent) nodes_.place[entry] = static_cast<std::uint16_t>(at);
  }

  /// Adds the children of a level to `count` nodes, if they fit: groups of lanes take a parent
  /// each. `Team` threads, those of the block or of its first warp.
  template <int Team>
  __device__ growth grow_level(level const& l, int count) {
    // As many lanes for a parent as there are, from 4 to 32.
    int const parents_bits = 32 - __clz(l.end - l.begin - 1);
    int const spare_bits = log2_of(Team) - parents_bits;
    int const bits = spare_bits < 2 ? 2 : spare_bits > 5 ? 5 : spare_bits;
    int const lanes = 1 << bits;
    int const in_group = lane_index() & (lanes - 1);
    int const shift = lane_index() - in_group;
    unsigned const mask = all_lanes >> (32 - lanes);
    unsigned const before_group = (1u << shift) - 1u;
    growth added{0};
    for (int first = l.begin; first < l.end; first += Team >> bits) {
      int const k = first + (static_cast<int>(threadIdx.x) >> bits);
      bool const is_there = k < l.end;
      int const parent = is_there ? nodes_.place[k] : 0;
      rules::weight_t const weight = nodes_.weight[parent];

      child first_child{};
      int rank = in_group;
      if (is_there) first_child = child_at(l, weight, k == l.begin, rank);
      unsigned kept = __ballot_sync(all_lanes, first_child.is_kept);
      unsigned parents = __ballot_sync(all_lanes, first_child.is_parent);
      growth own = growth::of(__popc(kept >> shift & mask), __popc(parents >> shift & mask));
      // As the groups follow each other, so do their children.
      growth before = growth::of(__popc(kept & before_group), __popc(parents & before_group));
      growth of_warp = growth::of(__popc(kept), __popc(parents));
      bool more = own.nodes() == lanes;
      if (__any_sync(all_lanes, more)) {
        while (__any_sync(all_lanes, more)) {
          rank += lanes;
          child c{};
          if (more) c = child_at(l, weight, false, rank);
          kept = __ballot_sync(all_lanes, c.is_kept) >> shift & mask;
          parents = __ballot_sync(all_lanes, c.is_parent) >> shift & mask;
          own.word += growth::of(__popc(kept), __popc(parents)).word;
          more = kept == mask;
        }
        std::uint32_t sum = own.word;
        for (int distance = lanes; distance < 32; distance *= 2) {
          std::uint32_t const other =
              __shfl_up_sync(all_lanes, sum, static_cast<unsigned>(distance));
          if (lane_index() >= distance) sum += other;
        }
        before.word = sum - own.word;
        of_warp.word = __shfl_sync(all_lanes, sum, 31);
      }

      warp_sums sums{{0}, of_warp};
      if (Team > 32) sums = sum_before(of_warp);
      before.word += added.word + sums.before.word;
      added.word += sums.all.word;
      if (count + added.nodes() > capacity) return added;
      int const at = count + before.nodes();
      int const entry = l.end + before.parents();
      rank = in_group;
      if (rank < own.nodes())
        put(l, first_child, k == l.begin && rank == 0, rank, at + rank, entry + rank, parent);
      for (rank += lanes; rank < own.nodes(); rank += lanes) {
        put(l, child_at(l, weight, false, rank), false, rank, at + rank, entry + rank, parent);
      }
    }
    return added;
  }

  struct warp_sums {
    growth before;  // of the warps before
    growth all;
  };

  __device__ warp_sums sum_before(growth value) {
    // More than fit are as good as any number that does not fit.
    if (value.nodes() > capacity) value = growth::of(capacity, 0);
    // Two in turn: the barrier of the next sum stands between reading these and writing them again.
    std::uint32_t* const totals = own_.totals[parity_];
    parity_ ^= 1;
    if (lane_index() == 0) totals[warp_index()] = value.word;
    __syncthreads();
    std::uint32_t const of_warp = lane_index() < warps ? totals[lane_index()] : 0;
    bool const is_before = lane_index() < warp_index();
    return {{__reduce_add_sync(all_lanes, is_before ? of_warp : 0)},
            {__reduce_add_sync(all_lanes, of_warp)}};
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

  /// Sorts nodes 1..n and cuts them off; returns how many are left, the root included, and 0 where
  /// it gives up. Ends with a barrier.
  __device__ int sort(int n) {
    // A warp counts in bytes.
    if (n > 7 * Threads) return 0;
    put_in_buckets(n);
    // In a level indices decide between nodes of one weight. Others are rarely alike.
    if (__syncthreads_or(mark(n, 1)) != 0) {
      if (!sort_marked(n, 1)) return 0;
      if (__syncthreads_or(mark(n, 2)) != 0 && !sort_marked(n, 2)) return 0;
    }
    if (seeds_ > 0) keep_seeds(n);
    return 1 + (n < most_ ? n : most_);
  }

  __device__ int bucket_of(rules::weight_t weight) const {
    int const excess = 64 - __clzll(spread_) - log2_of(buckets);
    rules::weight_t const distance = (heaviest_ - weight) >> (excess > 0 ? excess : 0);
    return distance < buckets ? static_cast<int>(distance) : buckets - 1;
  }

  /// Where the nodes begin that a bucket has from a warp's part on.
  __device__ int begin_of(int bucket, int warp) const {
    int const slot = bucket * warps + warp;
    uint4 const counts = reinterpret_cast<uint4 const*>(own_.sort.count)[slot / 16];
    int const rest = slot % 16;
    return own_.sort.begin[slot / 16] + sum_of_first(counts.x, rest) +
           sum_of_first(counts.y, rest - 4) + sum_of_first(counts.z, rest - 8) +
           sum_of_first(counts.w, rest - 12);
  }

  /// The sum of the first n bytes of a word.
  static __device__ int sum_of_first(std::uint32_t word, int n) {
    std::uint32_t const ones = n >= 4 ? 0x01010101u : n <= 0 ? 0u : 0x01010101u >> (32 - 8 * n);
    return static_cast<int>(__dp4a(word, ones, 0u));
  }

  /// Puts nodes 1..n in the order of their buckets, and in a bucket in that of their indices: of
  /// the n places, place p has its weight in nodes_.weight[p + 1]. Ends with a barrier.
  __device__ void put_in_buckets(int n) {
    int const rounds = (n + Threads - 1) / Threads;
    int const first = 1 + warp_index() * rounds * 32 + lane_index();
    rules::weight_t weight[PerThread];
    int bucket[PerThread];
    int rank[PerThread];
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      if (e >= rounds) continue;
      bool const is_there = first + e * 32 <= n;
      weight[e] = is_there ? nodes_.weight[first + e * 32] : 0;
      bucket[e] = is_there ? bucket_of(weight[e]) : buckets;
      unsigned const same = __match_any_sync(all_lanes, bucket[e]);
      int const slot = bucket[e] * warps + warp_index();
      int const before = is_there ? own_.sort.count[slot] : 0;
      unsigned const lower = same & ((1u << lane_index()) - 1u);
      rank[e] = before + __popc(lower);
      __syncwarp();
      if (is_there && lower == 0) {
        own_.sort.count[slot] = static_cast<std::uint8_t>(before + __popc(same));
      }
      __syncwarp();
    }
    __syncthreads();
    uint4 const counts = reinterpret_cast<uint4 const*>(own_.sort.count)[threadIdx.x];
    std::uint32_t const sum = __dp4a(counts.x, 0x01010101u, 0u) +
                              __dp4a(counts.y, 0x01010101u, 0u) +
                              __dp4a(counts.z, 0x01010101u, 0u) + __dp4a(counts.w, 0x01010101u, 0u);
    std::uint32_t const end = block_scan<Threads>(sum, plus{}, own_.sort.partial);
    own_.sort.begin[threadIdx.x] = static_cast<std::uint16_t>(end - sum);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const i = first + e * 32;
      if (e >= rounds || i > n) continue;
      int const place = begin_of(bucket[e], warp_index()) + rank[e];
      nodes_.weight[place + 1] = weight[e];
      nodes_.place[place] = static_cast<std::uint16_t>(i);
    }
    __syncthreads();
  }

  /// Marks the buckets whose order is not that of the nodes; returns whether the thread found one.
  __device__ bool mark(int n, std::uint8_t as) {
    bool found = false;
    for (int p = 1 + static_cast<int>(threadIdx.x); p < n; p += Threads) {
      rules::weight_t const before = nodes_.weight[p];
      rules::weight_t const weight = nodes_.weight[p + 1];
      if (before > weight) continue;
      if (before == weight &&
          nodes_.node[nodes_.place[p - 1]].depth == nodes_.node[nodes_.place[p]].depth) {
        continue;
      }
      own_.sort.mark[bucket_of(weight)] = as;
      found = true;
    }
    return found;
  }

  /// Compares each node with each in marked buckets, those of one weight by index first and by path
  /// next; returns false where a bucket is too large. Ends with a barrier.
  __device__ bool sort_marked(int n, std::uint8_t mark) {
    rules::weight_t weight[PerThread];
    int node[PerThread];
    int to[PerThread];
    bool is_large = false;
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const p = static_cast<int>(threadIdx.x) + e * Threads;
      to[e] = -1;
      if (p >= n) continue;
      weight[e] = nodes_.weight[p + 1];
      int const bucket = bucket_of(weight[e]);
      if (own_.sort.mark[bucket] != mark) continue;
      node[e] = nodes_.place[p];
      int const begin = begin_of(bucket, 0);
      int const end = bucket + 1 < buckets ? begin_of(bucket + 1, 0) : n;
      is_large = is_large || end - begin > most_compared;
      if (is_large) continue;
      to[e] = begin + (mark == 1 ? count_before(begin, end, p, weight[e])
                                 : count_before_by_path(begin, end, node[e], weight[e]));
    }
    if (__syncthreads_or(is_large) != 0) return false;
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      if (to[e] < 0) continue;
      nodes_.weight[to[e] + 1] = weight[e];
      nodes_.place[to[e]] = static_cast<std::uint16_t>(node[e]);
    }
    __syncthreads();
    return true;
  }

  __device__ int count_before(int begin, int end, int p, rules::weight_t weight) const {
    int before = 0;
#pragma unroll 4
    for (int q = begin; q < end; ++q) {
      rules::weight_t const other = nodes_.weight[q + 1];
      before += static_cast<int>(other > weight) + static_cast<int>((other == weight) & (q < p));
    }
    return before;
  }

  __device__ int count_before_by_path(int begin, int end, int i, rules::weight_t weight) const {
    int before = 0;
    for (int q = begin; q < end; ++q) {
      int const j = nodes_.place[q];
      rules::weight_t const other = nodes_.weight[q + 1];
      if (other < weight || j == i) continue;
      if (other > weight || has_earlier_path(j, i)) ++before;
    }
    return before;
  }

  /// Cuts the rows off behind the last one that is wanted, but for chain seeds. Ends with a
  /// barrier.
  __device__ void keep_seeds(int n) {
    rules::weight_t weight[PerThread];
    int node[PerThread];
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const p = static_cast<int>(threadIdx.x) + e * Threads;
      if (p >= n) continue;
      weight[e] = nodes_.weight[p + 1];
      node[e] = nodes_.place[p];
      search_node const own = nodes_.node[node[e]];
      if (is_seed(own)) own_.seed_rank[own.depth] = static_cast<std::uint16_t>(p);
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PerThread; ++e) {
      int const p = static_cast<int>(threadIdx.x) + e * Threads;
      int const row = p < n ? row_of(p, node[e]) : 0;
      if (row == 0) continue;
      nodes_.weight[row] = weight[e];
      nodes_.place[row - 1] = static_cast<std::uint16_t>(node[e]);
    }
    __syncthreads();
  }

  __device__ bool is_seed(search_node n) const {
    return n.product == 1 && static_cast<int>(n.depth) <= seeds_;
  }

  /// Of the node at place p; 0 where it is cut off.
  __device__ int row_of(int p, int node) const {
    int seeds = 0;
    for (int d = 1; d <= seeds_; ++d) seeds += own_.seed_rank[d] < p ? 1 : 0;
    if (p - seeds < most_ - seeds_) return p + 1;
    return is_seed(nodes_.node[node]) ? most_ - seeds_ + seeds + 1 : 0;
  }

  static constexpr int log2_of(int x) { return x == 1 ? 0 : 1 + log2_of(x / 2); }
  /// More nodes in one bucket are too many to compare each with each.
  static constexpr int most_compared = 256;

  nodes_memory& nodes_;
  memory& own_;
  search_rows rows_;
  int most_;
  int seeds_;
  rules::weight_t lowest_;
  int reach_depth_ = 0;           // of the greedy chain
  rules::weight_t heaviest_ = 0;  // of all nodes but the root
  int bin_shift_ = 0;
  rules::weight_t spread_ = 0;  // no node is further from the heaviest, but for seeds
  rules::weight_t threshold_ = 0;
  int parity_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
