// SPDX-License-Identifier: Apache-2.0
#include "build/build.hpp"
#include "build/search.cuh"
#include "build/sort.cuh"
#include "build/tree_rows.cuh"
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
  int ranks[max_depth + 2];  // usable candidates by depth, from 1 on
  // The finished tree, by row; row_of by place.
  std::uint16_t row_of[rows];
  std::uint16_t parent[rows];
  std::uint16_t next_sibling[rows];
};

/// Finds how many candidates of each depth may be selected; returns whether a row was cut. Starts
/// without a barrier and ends with one.
template <int Threads>
__device__ bool count_usable(round_shape const& shape, search_rows const& rows,
                             rules::growth const& most, int* ranks) {
  int const t = static_cast<int>(threadIdx.x);
  int const depth = static_cast<int>(most.depth);
  // Rank r comes after r siblings, so it cannot be selected where r >= most.nodes.
  int const width = static_cast<int>(shape.top_k < most.nodes ? shape.top_k : most.nodes);
  // Of a row's first bad rank, twice it, and one more if it is a cut.
  for (int d = t; d <= max_depth + 1; d += Threads) ranks[d] = 1 <= d && d <= depth ? 2 * width : 0;
  __syncthreads();
  for (int i = t; i < depth * width; i += Threads) {
    int const row = i / width;
    int const rank = i - row * width;
    int const at = row * rows.top_k + rank;
    float const log_prob = rows.log_prob[at];
    float const before = rank == 0 ? 0.0f : rows.log_prob[at - 1];
    if (rules::is_usable(rows.token[at], log_prob, before, shape.vocab)) continue;
    atomicMin(&ranks[row + 1], 2 * rank + (rules::is_cut_at(log_prob) ? 1 : 0));
  }
  __syncthreads();
  int cut = 0;
  for (int d = t; d <= max_depth + 1; d += Threads) {
    cut |= ranks[d] & 1;
    ranks[d] /= 2;
  }
  return __syncthreads_or(cut) != 0;
}

/// The depth of the chain that is taken first.
__device__ inline int count_seeds(index_t seed_depth, index_t nodes, int const* ranks) {
  int seeds = 0;
  while (seeds < seed_depth && seeds < nodes && ranks[seeds + 1] > 0) ++seeds;
  return seeds;
}

/// Puts the selected nodes in the exact order: weight[i] is then the weight of row i, and the place
/// of row i (not of the root) is place[i - 1]. Ends with a barrier.
template <int Threads, class Memory>
__device__ void sort_nodes(Memory& search, int num_nodes) {
  int n = 1;
  while (n < num_nodes - 1) n *= 2;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += Threads) {
    search.place[i] = static_cast<std::uint16_t>(i + 1);
    if (i + 1 >= num_nodes) search.weight[i + 1] = INT64_MIN;
  }
  __syncthreads();
  rules::weight_t* const weight = search.weight + 1;
  std::uint16_t* const place = search.place;
  block_sort<Threads>(
      n,
      [=](int i, int j) {
        return weight[i] != weight[j] ? weight[i] > weight[j] : place[i] < place[j];
      },
      [=](int i, int j) {
        rules::weight_t const w = weight[i];
        weight[i] = weight[j];
        weight[j] = w;
        std::uint16_t const p = place[i];
        place[i] = place[j];
        place[j] = p;
      });
}

/// Turns places into rows; returns whether a node has the last rank. Ends with a barrier.
template <int Threads, class Memory>
__device__ bool link_rows(Memory& shared, int num_nodes, int top_k) {
  std::uint16_t const* const place = shared.search.place;
  for (int i = static_cast<int>(threadIdx.x); i < num_nodes; i += Threads) {
    shared.row_of[i == 0 ? 0 : place[i - 1]] = static_cast<std::uint16_t>(i);
    shared.next_sibling[i] = 0;
  }
  __syncthreads();
  int limited = 0;
  for (int i = 1 + static_cast<int>(threadIdx.x); i < num_nodes; i += Threads) {
    search_node const n = shared.search.node[place[i - 1]];
    shared.parent[i] = shared.row_of[n.parent];
    if (n.rank > 0) shared.next_sibling[shared.row_of[n.left]] = static_cast<std::uint16_t>(i);
    limited |= static_cast<int>(n.rank) == top_k - 1;
  }
  return __syncthreads_or(limited) != 0;
}

/// Row i of the finished tree.
template <class Memory>
__device__ tree_row find_row_of_tree(Memory const& shared, search_rows const& rows, int num_nodes,
                                     token_t root, int i) {
  int const place = i == 0 ? 0 : shared.search.place[i - 1];
  search_node const n = shared.search.node[place];
  // In preorder a first child stands right behind its parent.
  bool const has_child =
      place + 1 < num_nodes && shared.search.node[place + 1].depth == n.depth + 1;
  tree_row row;
  row.first_child = has_child ? shared.row_of[place + 1] : -1;
  if (i == 0) {
    row.token = root;
    return row;
  }
  row.depth = static_cast<std::int32_t>(n.depth);
  row.rank = static_cast<std::int32_t>(n.rank);
  row.token = rows.token[(row.depth - 1) * rows.top_k + row.rank];
  row.log_weight = rules::to_log_weight(shared.search.weight[i]);
  row.parent = shared.parent[i];
  row.next_sibling = shared.next_sibling[i] > 0 ? shared.next_sibling[i] : -1;
  return row;
}

/// One block per request, exact grid.
template <int Threads, int PerThread>
__global__ __launch_bounds__(Threads, 1) void build_tree_kernel(support::build_tree_call const p) {
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& shared = *reinterpret_cast<build_memory<Threads, PerThread>*>(block_memory);
  index_t const b = blockIdx.x;
  draft_tree const tree = rules::tree_of(p.out, p.shape, b);
  rules::batch_row const request = rules::find_row(p.batch, p.shape.request_rows(), b);
  if (!request.active) return write_inactive<Threads>(tree, p.shape);

  clear_ancestors<Threads>(tree, p.shape);
  rules::growth const most = rules::growth_of(p.shape, p.options, request);
  index_t const first = b * p.shape.depth * p.shape.top_k;
  search_rows const rows{p.in.token + first, p.in.log_prob + first, p.shape.top_k, shared.ranks};
  bool const cut = count_usable<Threads>(p.shape, rows, most, shared.ranks);
  int const seeds = count_seeds(p.options.seed_depth, most.nodes, shared.ranks);

  tree_search<Threads, PerThread> search(shared.search, rows, static_cast<int>(most.nodes), seeds,
                                         rules::min_weight(p.options.min_log_weight));
  __syncthreads();
  int const num_nodes = search.run(static_cast<int>(most.depth));
  sort_nodes<Threads>(shared.search, num_nodes);
  bool const top_k_limited = link_rows<Threads>(shared, num_nodes, p.shape.top_k);

  index_t const root = rules::load_id(p.root, b);
  bool const is_id = root >= 0 && root < p.shape.vocab;
  auto const root_token = static_cast<token_t>(is_id ? root : 0);
  std::uint32_t const flags = p.in.flags[b] | (is_id ? 0u : flag::id_out_of_range) |
                              (most.length_limited ? flag::length_limited : 0u) |
                              (cut ? flag::candidates_cut : 0u) |
                              (top_k_limited ? flag::top_k_limited : 0u);
  write_tree<Threads>(tree, p.shape, num_nodes, root_token, shared.parent, flags, [&](int i) {
    return find_row_of_tree(shared, rows, num_nodes, root_token, i);
  });
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

status build_tree(support::build_tree_call const& call) noexcept {
  static_assert(has_room(128 * 2, 64) && has_room(256 * 4, 256) && has_room(1024 * 4, max_budget));
  if (call.shape.budget <= 64) return launch_build<128, 2>(call);
  if (call.shape.budget <= 256) return launch_build<256, 4>(call);
  return launch_build<1024, 4>(call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
