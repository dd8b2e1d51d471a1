// SPDX-License-Identifier: Apache-2.0
#include "build/build.hpp"
#include "build/sort.cuh"
#include "build/tree_rows.cuh"
#include "common/launch.hpp"
#include "rules/build.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

/// The nodes of a request, by row; 0 stands for none where a row is a child or a sibling.
template <int Rows>
struct link_memory {
  std::uint32_t sorted[Rows];  // parent and row of each node but the root, in this order
  token_t token[Rows];
  std::uint16_t parent[Rows];
  std::uint16_t rank[Rows];
  std::uint16_t first_child[Rows];
  std::uint16_t next_sibling[Rows];
  std::uint8_t depth[Rows];
  int first_bad;
  int first_deep;
};

constexpr int row_bits = 11;
static_assert(max_budget < 1 << row_bits);

__device__ constexpr int parent_in(std::uint32_t entry) {
  return static_cast<int>(entry >> row_bits);
}
__device__ constexpr int row_in(std::uint32_t entry) {
  return static_cast<int>(entry & ((1u << row_bits) - 1));
}

/// Reads the nodes; returns the first that names no earlier row or no token, or `given`. Ends with
/// a barrier.
template <int Threads, class Memory>
__device__ int read_nodes(support::link_tree_call const& p, index_t b, int given, Memory& shared) {
  int const t = static_cast<int>(threadIdx.x);
  if (t == 0) shared.first_bad = shared.first_deep = given;
  __syncthreads();
  for (int i = 1 + t; i < given; i += Threads) {
    index_t const parent = rules::load_id(p.in.parent, b * p.in.parent.stride + i);
    index_t const token = rules::load_id(p.in.token, b * p.in.token.stride + i);
    bool const sound = parent >= 0 && parent < i && token >= 0 && token < p.shape.vocab;
    shared.parent[i] = static_cast<std::uint16_t>(sound ? parent : 0);
    shared.token[i] = static_cast<token_t>(token);
    if (!sound) atomicMin(&shared.first_bad, i);
  }
  __syncthreads();
  return shared.first_bad;
}

/// Finds the depths of the first n nodes; returns the first that is too deep, or `n`. Ends with a
/// barrier.
template <int Threads, class Memory>
__device__ int find_depths(int max_depth, int n, Memory& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += Threads) {
    int depth = 0;
    for (int a = i; a > 0 && depth <= max_depth; a = shared.parent[a]) ++depth;
    shared.depth[i] = static_cast<std::uint8_t>(depth);
    if (depth > max_depth) atomicMin(&shared.first_deep, i);
  }
  __syncthreads();
  return shared.first_deep < n ? shared.first_deep : n;
}

/// Links the children of each node in the order of their rows. Ends with a barrier.
template <int Threads, class Memory>
__device__ void link_siblings(int num_nodes, Memory& shared) {
  int const t = static_cast<int>(threadIdx.x);
  int const drafted = num_nodes - 1;
  int n = 1;
  while (n < drafted) n *= 2;
  for (int k = t; k < n; k += Threads) {
    auto const parent = static_cast<std::uint32_t>(k < drafted ? shared.parent[k + 1] : ~0u);
    shared.sorted[k] =
        k < drafted ? parent << row_bits | static_cast<std::uint32_t>(k + 1) : ~std::uint32_t{0};
  }
  for (int i = t; i < num_nodes; i += Threads) shared.first_child[i] = 0;
  __syncthreads();

  std::uint32_t* const sorted = shared.sorted;
  block_sort<Threads>(
      n, [=](int i, int j) { return sorted[i] < sorted[j]; },
      [=](int i, int j) {
        std::uint32_t const entry = sorted[i];
        sorted[i] = sorted[j];
        sorted[j] = entry;
      });

  // Where the children of a parent begin, until their ranks are known.
  for (int k = t; k < drafted; k += Threads) {
    bool const is_first = k == 0 || parent_in(sorted[k - 1]) != parent_in(sorted[k]);
    if (is_first) shared.first_child[parent_in(sorted[k])] = static_cast<std::uint16_t>(k);
  }
  __syncthreads();
  for (int k = t; k < drafted; k += Threads) {
    int const parent = parent_in(sorted[k]);
    int const row = row_in(sorted[k]);
    bool const has_next = k + 1 < drafted && parent_in(sorted[k + 1]) == parent;
    shared.rank[row] = static_cast<std::uint16_t>(k - shared.first_child[parent]);
    shared.next_sibling[row] = static_cast<std::uint16_t>(has_next ? row_in(sorted[k + 1]) : 0);
  }
  __syncthreads();
  for (int k = t; k < drafted; k += Threads) {
    int const row = row_in(sorted[k]);
    if (shared.rank[row] > 0) continue;
    shared.first_child[parent_in(sorted[k])] = static_cast<std::uint16_t>(row);
  }
  __syncthreads();
}

template <class Memory>
__device__ tree_row row_of(Memory const& shared, token_t root, float const* log_weight, int i) {
  tree_row row;
  if (shared.first_child[i] > 0) row.first_child = shared.first_child[i];
  if (i == 0) {
    row.token = root;
    return row;
  }
  row.token = shared.token[i];
  row.log_weight = log_weight != nullptr ? log_weight[i] : 0.0f;
  row.parent = shared.parent[i];
  row.depth = shared.depth[i];
  row.rank = shared.rank[i];
  if (shared.next_sibling[i] > 0) row.next_sibling = shared.next_sibling[i];
  return row;
}

/// One block per request, exact grid.
template <int Threads, int Rows>
__global__ __launch_bounds__(Threads, 1) void link_tree_kernel(support::link_tree_call const p) {
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& shared = *reinterpret_cast<link_memory<Rows>*>(block_memory);
  index_t const b = blockIdx.x;
  draft_tree const tree = rules::tree_of(p.out, p.shape, b);
  rules::batch_row const request = rules::find_row(p.batch, p.shape.request_rows(), b);
  if (!request.active) return write_inactive<Threads>(tree, p.shape);

  clear_ancestors(tree, p.shape, static_cast<int>(threadIdx.x), Threads);
  index_t const wanted = rules::load_id(p.in.num_nodes, b);
  index_t const width = p.shape.width();
  int const given = static_cast<int>(wanted < 1 ? 1 : wanted < width ? wanted : width);
  index_t const root = rules::load_id(p.in.token, b * p.in.token.stride);
  bool const is_id = root >= 0 && root < p.shape.vocab;
  auto const root_token = static_cast<token_t>(is_id ? root : 0);

  int const sound = read_nodes<Threads>(p, b, given, shared);
  int const num_nodes = find_depths<Threads>(p.shape.depth, sound, shared);
  link_siblings<Threads>(num_nodes, shared);

  // Reading stops at the first node that is not sound, whichever way.
  bool const bad_id = num_nodes == sound && sound < given;
  std::uint32_t const flags = (wanted != given || !is_id || bad_id ? flag::id_out_of_range : 0u) |
                              (num_nodes < sound ? flag::length_limited : 0u);
  float const* const log_weight =
      p.in.log_weight != nullptr ? p.in.log_weight + b * width : nullptr;
  write_tree<Threads>(tree, p.shape, num_nodes, root_token, shared.parent, flags,
                      [&](int i) { return row_of(shared, root_token, log_weight, i); });
}

template <int Threads, int Rows>
status launch_link(support::link_tree_call const& call) noexcept {
  return launch(call.ctx, link_tree_kernel<Threads, Rows>,
                {call.shape.batch, Threads, sizeof(link_memory<Rows>)}, call);
}

}  // namespace

status link_tree(support::link_tree_call const& call) noexcept {
  if (call.shape.width() <= 256) return launch_link<128, 256>(call);
  return launch_link<1024, 2048>(call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
