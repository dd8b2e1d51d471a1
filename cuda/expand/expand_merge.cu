// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "common/select_few.cuh"
#include "expand/begin_flags.hpp"
#include "expand/expand.hpp"
#include "expand/write_candidates.cuh"
#include "rules/expand.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

/// A row of all contributions: for the functions of common/select.cuh, its candidates.
struct gathered_row {
  static constexpr int width = 1;

  shard_in const& all_ranks;
  rules::expand_shard_layout at;
  index_t row;
  std::int32_t top_k;
  index_t id_end;
  std::uint32_t* flags;  // of the request

  /// The contribution of a rank, in elements of T.
  template <class T>
  __device__ T const* contribution(index_t rank) const {
    auto const* const bytes = static_cast<unsigned char const*>(all_ranks.data);
    return reinterpret_cast<T const*>(bytes + rank * all_ranks.rank_stride_bytes);
  }

  /// A warp per rank. A list ends at its first -inf (or at NaN or an id out of range, in a
  /// contribution that was damaged on its way).
  template <int Threads, class Body>
  __device__ void for_each_packet(Body body) const {
    for (index_t rank = warp_index(); rank < all_ranks.ranks; rank += warps_of<Threads>) {
      std::int32_t begin = 0;
      while (begin < top_k && visit_some(rank, begin, body)) begin += 32 * unroll;
    }
  }

  /// The sum over the row, in rank order, in every warp alike.
  __device__ rules::exp_sum sum() const {
    rules::exp_sum total;
    for (index_t begin = 0; begin < all_ranks.ranks; begin += 32) {
      index_t const left = all_ranks.ranks - begin;
      int const count = left < 32 ? static_cast<int>(left) : 32;
      rules::exp_sum own;
      if (lane_index() < count) {
        float const* const floats = contribution<float>(begin + lane_index());
        own = {floats[at.max + row], floats[at.sum + row]};
      }
      for (int lane = 0; lane < count; ++lane) {
        total = rules::merge(
            total, {__shfl_sync(all_lanes, own.max, lane), __shfl_sync(all_lanes, own.sum, lane)});
      }
    }
    return total;
  }

 private:
  static constexpr int unroll = 4;

  /// Visits the slots from `begin` on, `unroll` per lane; false where the list has ended.
  template <class Body>
  __device__ bool visit_some(index_t rank, std::int32_t begin, Body& body) const {
    index_t const first = row * top_k;
    float const* const logits = contribution<float>(rank) + at.logit + first;
    std::int32_t const* const ids = contribution<std::int32_t>(rank) + at.id + first;
    float logit[unroll];
    std::int32_t id[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      std::int32_t const slot = begin + 32 * u + lane_index();
      logit[u] = slot < top_k ? logits[slot] : rules::minus_infinity;
      id[u] = slot < top_k ? ids[slot] : 0;
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      bool const is_last = !(logit[u] > rules::minus_infinity);
      bool const ends = is_last || id[u] < 0 || id[u] >= id_end;
      unsigned const end_lanes = __ballot_sync(all_lanes, ends);
      unsigned const up_to_mine = (2u << lane_index()) - 1u;
      float x[1] = {(end_lanes & up_to_mine) == 0 ? logit[u] : rules::minus_infinity};
      body(id[u], x);
      if (end_lanes != 0) {
        bool const damaged = !is_last && (end_lanes & up_to_mine) == 1u << lane_index();
        raise_flags(flags, damaged ? flag::id_out_of_range : 0u);
        return false;
      }
    }
    return true;
  }
};

template <int Threads>
struct merge_memory {
  few_memory<Threads> few;
  write_memory<Threads> written;
};

/// The best of all contributions, in memory.few.top_k.keys.
template <int Threads>
__device__ std::uint32_t best_of_lists(gathered_row const& row, std::uint32_t top_k,
                                       merge_memory<Threads>& memory) {
  if constexpr (Threads == few_threads) {
    float largest = rules::minus_infinity;
    row.template for_each_packet<Threads>(
        [&](std::int32_t, float(&x)[1]) { largest = fmaxf(largest, x[0]); });
    return select_few<Threads>(row, top_k, bisect_floor(largest, top_k), memory.few);
  } else {
    return select_top_k<Threads>(row, top_k, lowest_finite_key, memory.few.top_k);
  }
}

template <int Threads>
__global__ __launch_bounds__(Threads) void expand_merge_kernel(
    support::expand_merge_call const call) {
  __shared__ merge_memory<Threads> memory;
  row_task const task = find_task(call.shape);
  rules::batch_row const request = find_request(call, task);
  gathered_row const row{call.all_ranks,
                         rules::expand_layout(call.shape),
                         task.row,
                         call.shape.top_k,
                         rules::draft_ids(call.options, call.shape.vocab),
                         call.out.flags + task.b};
  float r = 1.0f;
  rules::exp_sum sum;
  std::uint32_t count = 0;
  if (request.active) {
    r = reciprocal_temperature(call.options, request.request);
    sum = row.sum();
  }
  await_previous_kernel();  // which cleared the flags
  if (request.active) {
    count = best_of_lists(row, static_cast<std::uint32_t>(call.shape.top_k), memory);
  }
  std::uint32_t const flags =
      write_candidates(call, task, r, sum, memory.few.top_k.keys, count, memory.written);
  raise_flags(call.out.flags + task.b, flags);
}

}  // namespace

status expand_merge(support::expand_merge_call const& call) noexcept {
  index_t const first_flags = rules::expand_layout(call.shape).flags;
  status const begun =
      begin_flags(call.ctx, {call.shape, call.batch, call.out.flags,
                             static_cast<std::uint32_t const*>(call.all_ranks.data) + first_flags,
                             call.all_ranks.ranks, call.all_ranks.rank_stride_bytes});
  if (!begun) return begun;
  index_t const rows = call.shape.batch * call.shape.depth;
  bool const is_few = call.shape.top_k <= few_threads / 2;
  launch_shape shape{rows, is_few ? few_threads : unsigned{row_threads}};
  shape.overlaps = true;
  return launch(call.ctx,
                is_few ? expand_merge_kernel<few_threads> : expand_merge_kernel<row_threads>, shape,
                call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
