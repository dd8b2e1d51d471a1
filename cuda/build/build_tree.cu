// SPDX-License-Identifier: Apache-2.0
#include "build/build.hpp"
#include "build/quick_search.cuh"
#include "build/search.cuh"
#include "build/sort.cuh"
#include "build/tree_rows.cuh"
#include "common/device_info.hpp"
#include "common/launch.hpp"
#include "rules/build.hpp"
#include "rules/views.hpp"
#include "rules/weight.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

template <int Threads, int PerThread>
struct build_memory {
  static constexpr int rows = Threads * PerThread / 2;

  search_memory<Threads, PerThread> search;
  int bad[max_depth + 2];  // by depth, from 1 on: see mark_bad
  union {
    quick_memory<Threads> quick;
    // The finished tree, by row; row_of by index in `search`.
    struct {
      std::uint16_t row_of[Threads * PerThread];
      std::uint16_t parent[rows];
      std::uint16_t first_child[rows];
      std::uint16_t next_sibling[rows];
    };
  };
};

/// More than of any rank.
constexpr int none_bad = 2 * max_top_k;

/// Of each row that the tree may use twice the first rank that may not be selected, and one more if
/// the row was cut there. `bad` holds none_bad, visible after the barrier that this starts with; it
/// ends with one.
template <int Threads>
__device__ void mark_bad(search_rows const& rows, index_t vocab, int* bad) {
  constexpr int ahead = Threads < 1024 ? 1024 / Threads : 1;
  int const last = rows.depth * rows.ranks;
  // item * per_item >> 32 is item / ranks: items are fewer than 2^15, and ranks than 2^11.
  auto const divisor = static_cast<std::uint32_t>(rows.ranks < 2 ? 2 : rows.ranks);
  std::uint32_t const per_item = 0xffffffffu / divisor + 1;
  __syncthreads();
  for (int first = static_cast<int>(threadIdx.x); first < last; first += ahead * Threads) {
    token_t token[ahead];
    float log_prob[ahead], before[ahead];
    int row[ahead], rank[ahead];
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      int const item = first + a * Threads;
      if (item >= last) continue;
      row[a] = static_cast<int>(__umulhi(static_cast<std::uint32_t>(item), per_item));
      if (rows.ranks == 1) row[a] = item;
      rank[a] = item - row[a] * rows.ranks;
      int const at = row[a] * rows.top_k + rank[a];
      token[a] = rows.token[at];
      log_prob[a] = rows.log_prob[at];
      before[a] = rank[a] == 0 ? 0.0f : rows.log_prob[at - 1];
    }
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      if (first + a * Threads >= last) continue;
      if (rules::is_usable(token[a], log_prob[a], before[a], vocab)) continue;
      atomicMin(&bad[row[a] + 1], 2 * rank[a] + (rules::is_cut_at(log_prob[a]) ? 1 : 0));
    }
  }
  __syncthreads();
}

/// Whole warps.
__device__ inline bool is_cut(search_rows const& rows) {
  int const depth = lane_index() + 1;
  bool const cut = depth <= rows.depth && (rows.bad[depth] & 1) != 0;
  return __any_sync(all_lanes, cut) != 0;
}

/// The depth of the chain that is taken first.
__device__ inline int count_seeds(index_t seed_depth, index_t nodes, search_rows const& rows) {
  int seeds = 0;
  while (seeds < seed_depth && seeds < nodes && rows.usable(seeds + 1) > 0) ++seeds;
  return seeds;
}

/// Links the rows; returns whether a node has the last rank. Ends with a barrier.
template <int Threads, class Memory>
__device__ bool link_rows(Memory& shared, int num_nodes, int top_k) {
  std::uint16_t const* const place = shared.search.place;
  for (int i = static_cast<int>(threadIdx.x); i < num_nodes; i += Threads) {
    shared.row_of[i == 0 ? 0 : place[i - 1]] = static_cast<std::uint16_t>(i);
    shared.first_child[i] = 0;
    shared.next_sibling[i] = 0;
  }
  __syncthreads();
  int limited = 0;
  for (int i = 1 + static_cast<int>(threadIdx.x); i < num_nodes; i += Threads) {
    search_node const n = shared.search.node[place[i - 1]];
    int const parent = shared.row_of[n.parent];
    shared.parent[i] = static_cast<std::uint16_t>(parent);
    if (n.rank == 0) {
      shared.first_child[parent] = static_cast<std::uint16_t>(i);
    } else {
      shared.next_sibling[shared.row_of[n.left]] = static_cast<std::uint16_t>(i);
    }
    limited |= static_cast<int>(n.rank) == top_k - 1;
  }
  return __syncthreads_or(limited) != 0;
}

/// Row i of the finished tree.
template <class Memory>
__device__ tree_row find_row_of_tree(Memory const& shared, search_rows const& rows, token_t root,
                                     int i) {
  tree_row row;
  if (shared.first_child[i] > 0) row.first_child = shared.first_child[i];
  if (i == 0) {
    row.token = root;
    return row;
  }
  search_node const n = shared.search.node[shared.search.place[i - 1]];
  row.depth = static_cast<std::int32_t>(n.depth);
  row.rank = static_cast<std::int32_t>(n.rank);
  row.token = rows.token[(row.depth - 1) * rows.top_k + row.rank];
  row.log_weight = rules::to_log_weight(shared.search.weight[i]);
  row.parent = shared.parent[i];
  if (shared.next_sibling[i] > 0) row.next_sibling = shared.next_sibling[i];
  return row;
}

/// Leaves the selected nodes in memory, as `sort_rows` does; returns how many there are with the
/// root. Starts without a barrier and ends with one. Calls meanwhile(t, threads) as quick_search
/// does.
template <int Threads, int PerThread, class Meanwhile>
__device__ int search_nodes(build_memory<Threads, PerThread>& shared, search_rows const& rows,
                            int nodes, int seeds, rules::weight_t lowest, Meanwhile meanwhile) {
  quick_search<Threads, PerThread> quick(shared.search, shared.quick, rows, nodes, seeds, lowest);
  __syncthreads();
  int num_nodes = quick.run(rows.depth, meanwhile);
  if (num_nodes > 0) return num_nodes;

  tree_search<Threads, PerThread> thorough(shared.search, rows, nodes, seeds, lowest);
  __syncthreads();
  num_nodes = thorough.run(rows.depth);
  sort_rows<Threads>(shared.search, num_nodes - 1, [](int i, int j) { return i < j; });
  return num_nodes;
}

/// One block per request, exact grid.
template <int Threads, int PerThread>
__global__ __launch_bounds__(Threads, 1) void build_tree_kernel(support::build_tree_call const p) {
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& shared = *reinterpret_cast<build_memory<Threads, PerThread>*>(block_memory);
  for (int d = static_cast<int>(threadIdx.x); d < max_depth + 2; d += Threads) {
    shared.bad[d] = none_bad;
  }
  index_t const b = blockIdx.x;
  draft_tree const tree = rules::tree_of(p.out, p.shape, b);
  rules::batch_row const request = rules::find_row(p.batch, p.shape.request_rows(), b);
  if (!request.active) return write_inactive<Threads>(tree, p.shape);

  rules::growth const most = rules::growth_of(p.shape, p.options, request);
  index_t const root = rules::load_id(p.root, b);
  std::uint32_t const flags_in = p.in.flags[b];
  index_t const first = b * p.shape.depth * p.shape.top_k;
  auto const nodes = static_cast<int>(most.nodes);
  // Rank r comes after r siblings, so it cannot be selected where r >= nodes.
  search_rows const rows{p.in.token + first,
                         p.in.log_prob + first,
                         p.shape.top_k,
                         static_cast<int>(most.depth),
                         p.shape.top_k < nodes ? p.shape.top_k : nodes,
                         shared.bad};
  mark_bad<Threads>(rows, p.shape.vocab, shared.bad);
  int const seeds = count_seeds(p.options.seed_depth, most.nodes, rows);
  bool const cut = is_cut(rows);
  int const num_nodes = search_nodes<Threads, PerThread>(
      shared, rows, nodes, seeds, rules::min_weight(p.options.min_log_weight),
      [&](int t, int threads) { clear_ancestors(tree, p.shape, t, threads); });
  bool const top_k_limited = link_rows<Threads>(shared, num_nodes, p.shape.top_k);

  bool const is_id = root >= 0 && root < p.shape.vocab;
  auto const root_token = static_cast<token_t>(is_id ? root : 0);
  std::uint32_t const flags = flags_in | (is_id ? 0u : flag::id_out_of_range) |
                              (most.length_limited ? flag::length_limited : 0u) |
                              (cut ? flag::candidates_cut : 0u) |
                              (top_k_limited ? flag::top_k_limited : 0u);
  write_tree<Threads>(tree, p.shape, num_nodes, root_token, shared.parent, flags,
                      [&](int i) { return find_row_of_tree(shared, rows, root_token, i); });
}

template <int Threads, int PerThread>
status launch_build(support::build_tree_call const& call) noexcept {
  return launch(call.ctx, build_tree_kernel<Threads, PerThread>,
                {call.shape.batch, Threads, sizeof(build_memory<Threads, PerThread>)}, call);
}

/// The search has room for a tree, a quarter more, and the children of a node.
constexpr bool has_room(int capacity, int budget) {
  int const children = budget < max_top_k ? budget : max_top_k;
  return capacity >= budget + budget / 4 + 1 + children;
}

}  // namespace

/// Threads, and nodes for each thread. Timed on an H200 with 15 depths of
/// N(0, 2.5) and N(0, 6) logits, top_k 64.
status build_tree(support::build_tree_call const& call) noexcept {
  static_assert(has_room(256 * 1, 64) && has_room(1024 * 1, 256) && has_room(1024 * 4, max_budget));
  if (call.shape.budget <= 64) return launch_build<256, 1>(call);
  // Of blocks of 256 threads a multiprocessor has room for more: budget 256, batch 256 takes 14.7
  // us with them and 20.0 with 512 threads.
  if (call.shape.budget <= 256) {
    bool const is_one_wave = call.shape.batch <= multiprocessors(call.ctx.device);
    return is_one_wave ? launch_build<512, 2>(call) : launch_build<256, 4>(call);
  }
  return launch_build<1024, 4>(call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
