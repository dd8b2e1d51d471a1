// SPDX-License-Identifier: Apache-2.0
// expand for many rows: one block per row, which reads it once. Rows that this is not enough for
// are read again by a second kernel, which otherwise has little to do.
#include "common/launch.hpp"
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

struct stream_params {
  support::expand_call call;
  int wanted;           // groups of the sample that shall reach the threshold
  std::uint8_t* again;  // [rows]
};

template <class Type, class Room, int Blocks>
__global__ __launch_bounds__(Room::threads, Blocks) void stream_kernel(stream_params const p) {
  extern __shared__ __align__(16) unsigned char block_memory[];
  auto& memory = *reinterpret_cast<stream_memory<Room>*>(block_memory);
  __shared__ write_memory<Room::threads> written;
  support::expand_call const& call = p.call;
  row_task const task = find_task(call.shape);
  if (task.i == 0 && threadIdx.x == 0) call.out.flags[task.b] = 0;
  rules::batch_row const request = find_request(call, task);
  float r = 1.0f;
  rules::exp_sum sum;
  std::uint32_t count = 0;
  if (request.active) {
    r = reciprocal_temperature(call.options, request.request);
    auto const top_k = static_cast<std::uint32_t>(call.shape.top_k);
    auto const* const data = find_logits<Type>(call.draft, task.b, task.i);
    float const scale = rules::mul(r, rules::log2_of_e);
    stream_result const found = stream_row<Type>(data, static_cast<std::int32_t>(call.shape.vocab),
                                                 {0, 1}, scale, p.wanted, memory);
    bool const is_enough = found.complete && found.count >= top_k;
    if (threadIdx.x == 0) p.again[task.row] = is_enough ? 0 : 1;
    if (!is_enough) return;
    sort_keys(memory, found, top_k);
    count = top_k;
    sum = relative_sum(found, r, scale, rules::candidate_logit(memory.keys[0]));
  } else if (threadIdx.x == 0) {
    p.again[task.row] = 0;
  }
  write_candidates<Room::threads>(call, task, r, sum, memory.keys, count, written);
}

using small_room = stream_room<128, 768, 512>;
using large_room = stream_room<512, 2560, 2048>;

template <class Type, class Room, int Blocks>
status launch_stream(stream_params const& params) noexcept {
  index_t const rows = params.call.shape.batch * params.call.shape.depth;
  return launch(params.call.ctx, stream_kernel<Type, Room, Blocks>,
                {rows, Room::threads, sizeof(stream_memory<Room>)}, params);
}

}  // namespace

bool can_stream(support::expand_call const& call) noexcept {
  auto const address = reinterpret_cast<std::uintptr_t>(call.draft.data);
  index_t const row_bytes = call.draft.row_stride * (call.draft.type == dtype::f32 ? 4 : 2);
  return call.options.vocab_map.data == nullptr && address % 16 == 0 && row_bytes % 16 == 0 &&
         call.shape.batch > 0 && call.shape.depth > 0;
}

bool prefers_expand_stream(support::expand_call const& call) noexcept {
  return can_stream(call) && call.shape.vocab >= tuning::min_streamed_columns;
}

/// A byte for each row; see read_again.
std::size_t expand_stream_workspace(support::expand_call const& call) noexcept {
  return static_cast<std::size_t>(call.shape.batch * call.shape.depth);
}

status expand_stream(support::expand_call const& call) noexcept {
  if (!can_stream(call)) return expand(call);
  index_t const rows = call.shape.batch * call.shape.depth;
  bool const is_small =
      tuning::prefers_small_blocks(rows, call.shape.top_k, multiprocessors(call.ctx.device));
  auto* const again = static_cast<std::uint8_t*>(call.scratch.data);
  status const streamed = for_logits_type(call.draft.type, [&]<class Type>(Type) {
    // Of the top_k the sample holds its share, give or take.
    double const sampled = 32.0 * Type::width * stream_segments;
    double const mean = call.shape.top_k * (sampled < static_cast<double>(call.shape.vocab)
                                                ? sampled / static_cast<double>(call.shape.vocab)
                                                : 1.0);
    stream_params const params{call, static_cast<int>(mean + 4 * std::sqrt(mean) + 4), again};
    return is_small ? launch_stream<Type, small_room, 8>(params)
                    : launch_stream<Type, large_room, 3>(params);
  });
  return streamed ? read_again(call, again) : streamed;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
