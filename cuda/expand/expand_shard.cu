// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "common/select_few.cuh"
#include "expand/begin_flags.hpp"
#include "expand/draft_row.cuh"
#include "expand/expand.hpp"
#include "rules/expand.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

template <int Threads>
__device__ void contribute(support::expand_shard_call const& call, row_task const& task,
                           row_result const& row, std::uint64_t const* keys) {
  rules::expand_shard_layout const at = rules::expand_layout(call.shape);
  auto* const floats = static_cast<float*>(call.out.data);
  auto* const ids = static_cast<std::int32_t*>(call.out.data);
  auto const top_k = static_cast<std::uint32_t>(call.shape.top_k);
  index_t const first = index_t{task.row} * top_k;
  for (std::uint32_t rank = threadIdx.x; rank < top_k; rank += Threads) {
    bool const is_there = rank < row.count;
    floats[at.logit + first + rank] =
        is_there ? rules::candidate_logit(keys[rank]) : rules::minus_infinity;
    ids[at.id + first + rank] =
        is_there ? static_cast<std::int32_t>(rules::candidate_id(keys[rank])) : 0;
  }
  if (threadIdx.x != 0) return;
  floats[at.max + task.row] = row.sum.max;
  floats[at.sum + task.row] = row.sum.sum;
}

__device__ __host__ std::uint32_t* flags_of(support::expand_shard_call const& call) {
  return static_cast<std::uint32_t*>(call.out.data) + rules::expand_layout(call.shape).flags;
}

/// A draft row for which a floor is known: packets that do not reach it are not looked at.
template <class Type>
struct gated_row {
  static constexpr int width = Type::width;

  draft_row<Type> const& row;
  floor_gate<Type> gate;

  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    std::uint32_t met_before = 0;
    row.template visit<Threads>(met_before, body, gate);
  }
};

template <int Threads>
struct shard_memory {
  few_memory<Threads> few;
  rules::exp_sum sums[warps_of<Threads>];
};

/// As read_row; where few candidates are wanted, for rows that are soon over.
template <int Threads, class Type>
__device__ row_result read_shard(draft_row<Type> const& row, float r, std::uint32_t top_k,
                                 shard_memory<Threads>& memory) {
  group_maxima groups;
  row_result result = sum_row<Threads>(row, r, groups, memory.sums);
  if (Threads == few_threads || top_k <= Threads / 2) {
    std::uint64_t const floor = bisect_floor(groups.largest(), top_k);
    gated_row<Type> const gated{row, {floor, false}};
    result.count = select_few<Threads>(gated, top_k, floor, memory.few);
  } else {
    std::uint64_t const floor = find_floor<Threads>(groups, top_k, memory.few.top_k.walk);
    result.count = select_top_k<Threads>(row, top_k, floor, memory.few.top_k);
  }
  return result;
}

template <class Type, int Threads>
__global__ __launch_bounds__(Threads, 1024 / Threads) void expand_shard_kernel(
    support::expand_shard_call const call) {
  __shared__ shard_memory<Threads> memory;
  row_task const task = find_task(call.shape);
  rules::batch_row const request = find_request(call, task);
  row_result row{};
  if (request.active) {
    draft_row<Type> const logits{find_logits<Type>(call.shard, task.b, task.i), call.ranges,
                                 call.options.vocab_map, call.shape.vocab};
    row = read_shard(logits, reciprocal_temperature(call.options, request.request),
                     static_cast<std::uint32_t>(call.shape.top_k), memory);
  }
  contribute<Threads>(call, task, row, memory.few.top_k.keys);
  await_previous_kernel();  // which cleared the flags
  raise_flags(flags_of(call) + task.b, row.flags);
}

/// More blocks to a multiprocessor hide what a block does before and after it reads; where rows are
/// few, more threads are over with one sooner. top_k 64, 18,992 columns: 960 rows 40.1 us with 256
/// threads, 53.7 with 512; 15 rows 12.5 and 10.9.
bool prefers_small_blocks(support::expand_shard_call const& call) {
  index_t const rows = call.shape.batch * call.shape.depth;
  return call.shape.top_k <= few_threads / 2 && rows > 2 * multiprocessors(call.ctx.device);
}

}  // namespace

status expand_shard(support::expand_shard_call const& call) noexcept {
  status const begun = begin_flags(call.ctx, {call.shape, call.batch, flags_of(call)});
  if (!begun) return begun;
  bool const is_small = prefers_small_blocks(call);
  launch_shape shape{call.shape.batch * call.shape.depth,
                     is_small ? few_threads : unsigned{row_threads}};
  shape.overlaps = true;
  return for_logits_type(call.shard.type, [&]<class Type>(Type) {
    return launch(
        call.ctx,
        is_small ? expand_shard_kernel<Type, few_threads> : expand_shard_kernel<Type, row_threads>,
        shape, call);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
