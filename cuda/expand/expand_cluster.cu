// SPDX-License-Identifier: Apache-2.0
// expand for few rows on devices with clusters: the blocks of a cluster share a row, and the first
// of them puts together what they found.
#include "common/cluster.cuh"
#include "common/cluster.hpp"
#include "common/launch.hpp"
#include "common/race_hook.cuh"
#include "expand/expand.hpp"
#include "expand/read_again.hpp"
#include "expand/stream_row.cuh"
#include "expand/tuning.hpp"
#include "expand/write_candidates.cuh"

#include <cmath>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

struct cluster_params {
  support::expand_call call;
  int wanted;           // groups of a share's sample that shall reach its threshold
  std::uint8_t* again;  // [rows]
};

/// The first block has room for what all find. Together with its threads this is what
/// can_run_clusters asks about.
using room = stream_room<512, 3072, 2048>;

/// What each block tells the first one of its share.
struct share_found {
  float threshold;
  float max;
  float sum;
  float offset;
  bool complete;
};

constexpr int max_cluster = 8;

struct cluster_memory {
  stream_memory<room> stream;
  share_found shares[max_cluster];
};

#if __CUDA_ARCH__ >= 900

/// Moves the keys of this block behind those of the first.
__device__ void contribute(cluster_memory& memory, stream_result const& found) {
  std::uint32_t const rank = cluster_rank();
  cluster_memory* const first = in_block(&memory, 0);
  if (threadIdx.x == 0) {
    first->shares[rank] = {found.threshold, found.max, found.sum, found.offset, found.complete};
  }
  if (rank == 0 || !found.complete) return;
  __shared__ std::uint32_t begin;
  if (threadIdx.x == 0) begin = atomicAdd(&first->stream.count, found.count);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < found.count; i += room::threads) {
    if (begin + i < room::keys) first->stream.keys[begin + i] = memory.stream.keys[i];
  }
}

/// All shares as one, in which no logit from `whole_from` on is missing. Every thread of the first
/// block.
__device__ stream_result put_together(cluster_memory& memory, float& whole_from) {
  std::uint32_t const size = cluster_size();
  stream_result all{true, memory.stream.count, 0, 0, 0, 0};
  all.threshold = whole_from = memory.shares[0].threshold;
  all.max = memory.shares[0].max;
  all.offset = memory.shares[0].offset;
  for (std::uint32_t i = 0; i < size; ++i) {
    share_found const& share = memory.shares[i];
    all.complete = all.complete && share.complete;
    all.threshold = fminf(all.threshold, share.threshold);
    whole_from = fmaxf(whole_from, share.threshold);
    all.max = fmaxf(all.max, share.max);
    all.offset = fmaxf(all.offset, share.offset);
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    share_found const& share = memory.shares[i];
    all.sum =
        rules::add(all.sum, rules::mul(share.sum, exp2f(rules::sub(share.offset, all.offset))));
  }
  all.complete = all.complete && all.count <= room::keys;
  return all;
}

/// The bins were counted by each block for its own range.
__device__ void count_bins(stream_memory<room>& memory, stream_result const& found) {
  bin_scale<room::bins> const bin_of(found.threshold, found.max);
  for (int i = static_cast<int>(threadIdx.x); i < room::bins; i += room::threads) {
    memory.bins[i] = 0;
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < found.count; i += room::threads) {
    atomicAdd(&memory.bins[bin_of(rules::candidate_logit(memory.keys[i]))], 1u);
  }
  __syncthreads();
}

#endif

template <class Type>
__global__ __launch_bounds__(room::threads, 2) void cluster_kernel(cluster_params const p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& memory = *reinterpret_cast<cluster_memory*>(block_memory);
  __shared__ write_memory<room::threads> written;
  support::expand_call const& call = p.call;
  row_task task;
  task.row = static_cast<std::int32_t>(blockIdx.x / cluster_size());
  task.b = task.row / call.shape.depth;
  task.i = task.row - task.b * call.shape.depth;
  bool const is_first = cluster_rank() == 0;
  if (task.i == 0 && is_first && threadIdx.x == 0) call.out.flags[task.b] = 0;
  rules::batch_row const request = find_request(call, task);
  if (!request.active) {
    if (!is_first) return;
    if (threadIdx.x == 0) p.again[task.row] = 0;
    write_candidates<room::threads>(call, task, 1.0f, {}, memory.stream.keys, 0, written);
    return;
  }
  float const r = reciprocal_temperature(call.options, request.request);
  float const scale = rules::mul(r, rules::log2_of_e);
  row_share const share{static_cast<int>(cluster_rank()), static_cast<int>(cluster_size())};
  stream_result const found = stream_row<Type>(find_logits<Type>(call.draft, task.b, task.i),
                                               static_cast<std::int32_t>(call.shape.vocab), share,
                                               scale, p.wanted, memory.stream);
  race_delay(0);
  cluster_sync();  // the first block's own keys are in place
  contribute(memory, found);
  race_delay(1);
  cluster_sync();
  if (!is_first) return;
  float whole_from;
  stream_result const all = put_together(memory, whole_from);
  auto const top_k = static_cast<std::uint32_t>(call.shape.top_k);
  bool is_enough = all.complete && all.count >= top_k;
  if (is_enough) {
    count_bins(memory.stream, all);
    sort_keys(memory.stream, all, top_k);
    is_enough = rules::candidate_logit(memory.stream.keys[top_k - 1]) >= whole_from;
  }
  if (threadIdx.x == 0) p.again[task.row] = is_enough ? 0 : 1;
  if (!is_enough) return;
  rules::exp_sum const sum =
      relative_sum(all, r, scale, rules::candidate_logit(memory.stream.keys[0]));
  write_candidates<room::threads>(call, task, r, sum, memory.stream.keys, top_k, written);
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
  auto* const again = static_cast<std::uint8_t*>(call.scratch.data);
  status const spread = for_logits_type(call.draft.type, [&]<class Type>(Type) {
    // A share holds its part of the top_k, give or take, and its sample a part of that.
    double const columns = static_cast<double>(call.shape.vocab) / blocks;
    double const steps = std::floor(columns / (32.0 * Type::width * stream_segments));
    double const own = static_cast<double>(call.shape.top_k) / blocks;
    double const mean = (own + 6 * std::sqrt(own)) / (steps > 0 ? steps + 0.5 : 1.0);
    cluster_params const params{call, static_cast<int>(mean + 3 * std::sqrt(mean) + 3), again};
    launch_shape shape{rows * blocks, room::threads, sizeof(cluster_memory)};
    shape.cluster = blocks;
    return launch(call.ctx, cluster_kernel<Type>, shape, params);
  });
  return spread ? read_again(call, again) : spread;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
