// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "expand/draft_row.cuh"
#include "expand/read_again.hpp"
#include "expand/write_candidates.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

struct read_again_params {
  support::expand_call call;
  std::uint8_t const* again;
};

template <class Type>
__global__ __launch_bounds__(row_threads, row_blocks_per_multiprocessor) void read_again_kernel(
    read_again_params const p) {
  __shared__ draft_row_memory memory;
  __shared__ write_memory<row_threads> written;
  support::expand_call const& call = p.call;
  auto const rows = static_cast<std::int32_t>(call.shape.batch) * call.shape.depth;
  for (std::int32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    if (p.again[row] == 0) continue;
    std::int32_t const b = row / call.shape.depth;
    row_task const task{row, b, row - b * call.shape.depth};
    rules::batch_row const request = find_request(call, task);
    vocab_ranges const ranges{{{0, call.shape.vocab, 0}, {}}};
    float const r = reciprocal_temperature(call.options, request.request);
    draft_row<Type> const logits{find_logits<Type>(call.draft, b, task.i), ranges,
                                 call.options.vocab_map, call.shape.vocab};
    row_result const found =
        read_row(logits, r, static_cast<std::uint32_t>(call.shape.top_k), memory);
    std::uint32_t const flags = write_candidates<row_threads>(
        call, task, r, found.sum, memory.top_k.keys, found.count, written);
    raise_flags(call.out.flags + b, found.flags | flags);
    __syncthreads();
  }
}

}  // namespace

status read_again(support::expand_call const& call, std::uint8_t const* again) noexcept {
  index_t const rows = call.shape.batch * call.shape.depth;
  index_t const most = index_t{row_blocks_per_multiprocessor} * multiprocessors(call.ctx.device);
  return for_logits_type(call.draft.type, [&]<class Type>(Type) {
    return launch(call.ctx, read_again_kernel<Type>, {rows < most ? rows : most, row_threads, 0},
                  read_again_params{call, again});
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
