// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "expand/begin_flags.hpp"
#include "expand/draft_row.cuh"
#include "expand/expand.hpp"
#include "expand/write_candidates.cuh"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

struct expand_params {
  support::expand_call call;
  vocab_ranges ranges;
};

template <class Type>
__global__ __launch_bounds__(row_threads, row_blocks_per_multiprocessor) void expand_kernel(
    expand_params const p) {
  __shared__ draft_row_memory memory;
  __shared__ write_memory<row_threads> written;
  support::expand_call const& call = p.call;
  row_task const task = find_task(call.shape);
  rules::batch_row const request = find_request(call, task);
  row_result row{};
  float r = 1.0f;
  if (request.active) {
    r = reciprocal_temperature(call.options, request.request);
    draft_row<Type> const logits{find_logits<Type>(call.draft, task.b, task.i), p.ranges,
                                 call.options.vocab_map, call.shape.vocab};
    row = read_row(logits, r, static_cast<std::uint32_t>(call.shape.top_k), memory);
  }
  row.flags |= write_candidates(call, task, r, row.sum, memory.top_k.keys, row.count, written);
  raise_flags(call.out.flags + task.b, row.flags);
}

}  // namespace

status expand(support::expand_call const& call) noexcept {
  status const begun = begin_flags(call.ctx, {call.shape, call.batch, call.out.flags});
  if (!begun) return begun;
  bool const is_mapped = call.options.vocab_map.data != nullptr;
  index_t const columns = is_mapped ? call.draft.vocab : call.shape.vocab;
  expand_params const params{call, {{{0, columns, 0}, {}}}};
  index_t const rows = call.shape.batch * call.shape.depth;
  return for_logits_type(call.draft.type, [&]<class Type>(Type) {
    return launch(call.ctx, expand_kernel<Type>, {rows, row_threads, 0}, params);
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
