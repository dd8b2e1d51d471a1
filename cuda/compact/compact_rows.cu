// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "compact/compact.hpp"
#include "compact/move_rows.cuh"
#include "rules/path.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr unsigned threads = 256;

struct compact_rows_params {
  support::compact_rows_call call;
  index_t blocks_per_request;
};

/// Several blocks for each request, each with columns of its own.
__global__ void __launch_bounds__(threads) compact_rows_kernel(compact_rows_params const params) {
  __shared__ move_list lists[threads / 32];
  move_list& moves = lists[warp_index()];
  support::compact_rows_call const& call = params.call;
  index_t const b = blockIdx.x / params.blocks_per_request;
  index_t const part = blockIdx.x % params.blocks_per_request;
  path_lane const path = find_path_lane(call, b);
  if (path.row.count < 0) return;
  index_t const first_from = rules::row_index(call.from, b, 0);
  index_t const first_to = rules::row_index(call.to, b, 0);
  if (threadIdx.x == 0) {
    add_flags(call.path, b, path.row.flags);
    if (first_from < 0 || first_to < 0) add_flags(call.path, b, flag::slot_out_of_range);
  }
  if (first_from < 0 || first_to < 0) return;
  list_moves(call, b, path, false, moves, [&](index_t entry, bool is_source) {
    rows_view const& rows = is_source ? call.from : call.to;
    return static_cast<char*>(rows.data) +
           ((is_source ? first_from : first_to) + entry) * rows.row_stride_bytes;
  });
  unsigned const width =
      common_width(reinterpret_cast<std::uintptr_t>(call.from.data) |
                   reinterpret_cast<std::uintptr_t>(call.to.data) |
                   static_cast<std::uint64_t>(call.from.row_stride_bytes |
                                              call.to.row_stride_bytes | call.to.row_bytes));
  move_columns(moves, {1, 0, call.to.row_bytes}, width, part * threads + threadIdx.x,
               params.blocks_per_request * threads);
}

}  // namespace

status compact_rows(support::compact_rows_call const& call) noexcept {
  // 16 bytes for each thread, at most 64 blocks a request.
  index_t const wanted = (call.to.row_bytes + 16 * threads - 1) / (16 * threads);
  index_t const blocks = wanted < 1 ? 1 : (wanted < 64 ? wanted : 64);
  return launch(call.ctx, compact_rows_kernel, {call.shape.batch * blocks, threads},
                compact_rows_params{call, blocks});
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
