// SPDX-License-Identifier: Apache-2.0
// expand for few rows on devices with clusters: the blocks of a cluster share a row, in one launch.
#include "common/cluster.cuh"
#include "common/cluster.hpp"
#include "common/launch.hpp"
#include "common/race_hook.cuh"
#include "expand/cluster_again.cuh"
#include "expand/cluster_row.cuh"
#include "expand/expand.hpp"
#include "expand/row_flags.cuh"
#include "expand/tuning.hpp"
#include "expand/write_candidates.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

struct cluster_params {
  support::expand_call call;
  int log2_blocks;
  int log2_lanes;               // of a group
  std::uint8_t* flags_of_rows;  // [rows]
};

#if __CUDA_ARCH__ >= 900

/// What is known of the row after one reading of it.
struct first_reading {
  float threshold;
  bool is_finite;
  bool is_enough;  // all that reach the threshold stand in the lists
  list_order order;
};

template <class Type>
__device__ first_reading read_once(cluster_params const& p, strand_reader<Type>& reader, float r,
                                   cluster_memory& memory) {
  row_team const& team = reader.team;
  float const scale = rules::mul(r, rules::log2_of_e);
  first_reading found;
  reader.read(scale, p.log2_lanes, memory);
  race_delay(0);
  memory.strands_told.wait();
  found.threshold = choose_row_threshold(row_strands * 32 >> p.log2_lanes,
                                         static_cast<std::uint32_t>(p.call.shape.top_k), memory);
  collect_hits(reader, found.threshold, memory);
  __syncthreads();
  race_delay(1);
  tell_list(team, memory);
  if (warp_index() == warps_of<cluster_threads> - 1) cluster_impl::add_strands(r, scale, memory);
  memory.lists_told.wait();
  __syncthreads();
  auto const lane = static_cast<std::uint32_t>(lane_index());
  std::uint32_t const count = lane < team.blocks() ? memory.found[lane].count : 0;
  std::uint32_t const total = __reduce_add_sync(all_lanes, count);
  std::uint32_t const most = __reduce_max_sync(all_lanes, count);
  float const sum = memory.sum.sum;
  found.is_finite = sum > 0.0f && sum <= rules::largest_float;
  found.is_enough = found.is_finite && most <= list_room(team);
  found.order = {total, found.is_enough && (total > 192 || most > 64), found.threshold,
                 memory.x_max};
  return found;
}

/// Reads the row again, with an eye on what the first reading took for granted. Returns how many
/// keys there are then.
template <class Type>
__device__ __noinline__ std::uint32_t read_more(row_packets<Type> row, std::uint32_t k, float r,
                                                first_reading found, row_flags flags,
                                                std::int32_t i, row_team team,
                                                cluster_memory& memory) {
  float from = found.threshold;
  if (!found.is_finite) {
    from = -rules::largest_float;
    std::uint32_t const met = sum_again(row, r, team, memory);
    if (met != 0 && team.rank == 0 && warp_index() == 0) {
      if (lane_index() == 0) flags.note(i, met);
      __syncwarp();
      flags.publish();
    }
  }
  return select_again(row, k, from, team, memory);
}

/// Each block writes the candidates of its own list, where no rank depends on the one before it.
__device__ void write_lists(support::expand_call const& call, row_task const& task, float r,
                            list_order const& order, row_team const& team, cluster_memory& memory,
                            write_memory<cluster_threads>& written) {
  auto const k = static_cast<std::uint32_t>(call.shape.top_k);
  if (call.options.bias != nullptr) {
    if (team.rank != 0) return;
    for (std::uint32_t b = 0; b < team.blocks(); ++b) {
      for_each_rank(b, order, team, memory, [&](std::uint32_t rank, std::uint64_t key) {
        if (rank < k) memory.own[rank] = key;
      });
      __syncthreads();
    }
    write_candidates(call, task, r, memory.sum, memory.own, min(order.total, k), written);
    return;
  }
  index_t const first = index_t{task.row} * k;
  float const lse = memory.lse;
  for_each_rank(team.rank, order, team, memory, [&](std::uint32_t rank, std::uint64_t key) {
    if (rank >= k) return;
    call.out.token[first + rank] = static_cast<token_t>(rules::candidate_id(key));
    call.out.log_prob[first + rank] = rules::log_prob(rules::candidate_logit(key), r, lse);
  });
  if (team.rank != 0) return;
  for (std::uint32_t rank = order.total + threadIdx.x; rank < k; rank += cluster_threads) {
    call.out.token[first + rank] = 0;
    call.out.log_prob[first + rank] = rules::minus_infinity;
  }
}

#endif

/// A warp beside those that read sees to the flags.
template <class Type>
__global__ __launch_bounds__(cluster_threads + 32, 1) void cluster_kernel(cluster_params const p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& memory = *reinterpret_cast<cluster_memory*>(block_memory);
  __shared__ write_memory<cluster_threads> written;
  support::expand_call const& call = p.call;
  row_task task;
  row_team const team{p.log2_blocks, cluster_rank()};
  task.row = static_cast<std::int32_t>(blockIdx.x >> p.log2_blocks);
  task.b = task.row / call.shape.depth;
  task.i = task.row - task.b * call.shape.depth;
  row_flags const flags{p.flags_of_rows + (task.row - task.i), call.shape.depth,
                        call.out.flags + task.b};
  bool const is_beside = threadIdx.x >= cluster_threads;
  if (is_beside) {
    if (team.rank == 0 && lane_index() == 0) flags.note(task.i, 0);
    __syncthreads();           // a later note of the row comes later
    cluster_arrive_relaxed();  // nobody shall wait for what follows
    if (team.rank == 0) flags.publish();
    return;
  }
  rules::batch_row const request = find_request(call, task);
  if (!request.active) {
    __syncthreads();
    if (team.rank != 0) return;
    write_candidates<cluster_threads>(call, task, 1.0f, {}, memory.own, 0, written);
    return;
  }
  row_packets<Type> const row{find_logits<Type>(call.draft, task.b, task.i),
                              static_cast<std::int32_t>(call.shape.vocab)};
  strand_reader<Type> reader(row, team);
  begin_reading(team, memory);
  __syncthreads();
  cluster_arrive_relaxed();
  float const r = reciprocal_temperature(call.options, request.request);
  first_reading read = read_once(p, reader, r, memory);
  if (!read.is_enough) {
    auto const k = static_cast<std::uint32_t>(call.shape.top_k);
    read.order.total = read_more(row, k, r, read, flags, task.i, team, memory);
  }
  write_lists(call, task, r, read.order, team, memory, written);
#endif
}

}  // namespace

static_assert(sizeof(cluster_memory) <= 64 * 1024, "see can_run_clusters");

bool can_expand_cluster(support::expand_call const& call) noexcept {
  return can_run_clusters(call.ctx.device);
}

bool prefers_expand_cluster(support::expand_call const& call) noexcept {
  index_t const rows = call.shape.batch * call.shape.depth;
  return prefers_expand_stream(call) &&
         tuning::cluster_blocks(rows, call.shape.vocab, multiprocessors(call.ctx.device)) > 1;
}

status expand_cluster(support::expand_call const& call) noexcept {
  if (!can_stream(call)) return expand(call);
  index_t const rows = call.shape.batch * call.shape.depth;
  unsigned const preferred =
      tuning::cluster_blocks(rows, call.shape.vocab, multiprocessors(call.ctx.device));
  unsigned const blocks = preferred > 1 ? preferred : 2;
  int const log2_blocks = blocks == 8 ? 3 : blocks == 4 ? 2 : 1;
  // At least twice as many groups as the threshold is to have above it.
  int const log2_lanes = call.shape.top_k <= 64 ? 5 : call.shape.top_k <= 256 ? 3 : 1;
  cluster_params const params{call, log2_blocks, log2_lanes,
                              static_cast<std::uint8_t*>(call.scratch.data)};
  launch_shape shape{rows * blocks, cluster_threads + 32, sizeof(cluster_memory)};
  shape.cluster = blocks;
  return for_logits_type(call.draft.type, [&]<class Type>(Type) {
    return launch(call.ctx, cluster_kernel<Type>, shape, params);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
