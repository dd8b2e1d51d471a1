// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "expand/begin_flags.hpp"
#include "expand/draft_row.cuh"
#include "expand/expand.hpp"
#include "rules/expand.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

__device__ void contribute(support::expand_shard_call const& call, row_task const& task,
                           row_result const& row, std::uint64_t const* keys) {
  rules::expand_shard_layout const at = rules::expand_layout(call.shape);
  auto* const floats = static_cast<float*>(call.out.data);
  auto* const ids = static_cast<std::int32_t*>(call.out.data);
  auto const top_k = static_cast<std::uint32_t>(call.shape.top_k);
  index_t const first = index_t{task.row} * top_k;
  for (std::uint32_t rank = threadIdx.x; rank < top_k; rank += row_threads) {
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

template <class Type>
__global__ __launch_bounds__(row_threads, row_blocks_per_multiprocessor) void expand_shard_kernel(
    support::expand_shard_call const call) {
  __shared__ draft_row_memory memory;
  row_task const task = find_task(call.shape);
  rules::batch_row const request = find_request(call, task);
  row_result row{};
  if (request.active) {
    draft_row<Type> const logits{find_logits<Type>(call.shard, task.b, task.i), call.ranges,
                                 call.options.vocab_map, call.shape.vocab};
    row = read_row(logits, reciprocal_temperature(call.options, request.request),
                   static_cast<std::uint32_t>(call.shape.top_k), memory);
  }
  contribute(call, task, row, memory.top_k.keys);
  raise_flags(flags_of(call) + task.b, row.flags);
}

}  // namespace

status expand_shard(support::expand_shard_call const& call) noexcept {
  status const begun = begin_flags(call.ctx, {call.shape, call.batch, flags_of(call)});
  if (!begun) return begun;
  index_t const rows = call.shape.batch * call.shape.depth;
  return for_logits_type(call.shard.type, [&]<class Type>(Type) {
    return launch(call.ctx, expand_shard_kernel<Type>, {rows, row_threads, 0}, call);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
