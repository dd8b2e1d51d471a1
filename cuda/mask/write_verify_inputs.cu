// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "mask/mask.hpp"
#include "rules/mask.hpp"
#include "rules/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int threads = 256;

/// What stands in `slot` for row i of a request; `is_node` for rows of the tree.
__device__ index_t slot_of(verify_options const& options, rules::batch_row const& request,
                           index_t i, bool is_node) {
  bool const in_sequence = request.active && options.padding == padding_slot::in_sequence;
  if (is_node || in_sequence) {
    return rules::verify_slot(options, request.request, request.cache_len + i);
  }
  return options.padding == padding_slot::dummy ? options.dummy_slot : index_t{-1};
}

/// One thread per row, exact grid: at most 65,535 * 2,048 of them.
__global__ __launch_bounds__(threads) void write_verify_inputs_kernel(
    support::write_verify_inputs_call const p) {
  index_t const width = p.shape.width();
  index_t const row = index_t{blockIdx.x} * threads + threadIdx.x;
  if (row >= p.shape.batch * width) return;
  index_t const b = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(width);
  index_t const i = row - b * width;
  rules::batch_row const request = rules::find_row(p.batch, p.shape.request_rows(), b);
  if (p.out.token.data != nullptr) {
    rules::store_id(p.out.token, b * p.out.token.stride + i, p.tree.token[row]);
  }
  if (p.out.position.data != nullptr) {
    index_t const position = request.active ? request.cache_len + p.tree.depth[row] : 0;
    rules::store_id(p.out.position, b * p.out.position.stride + i, position);
  }
  if (p.out.slot.data != nullptr) {
    bool const is_node = request.active && i < p.tree.num_nodes[b];
    rules::store_id(p.out.slot, b * p.out.slot.stride + i, slot_of(p.options, request, i, is_node));
  }
}

}  // namespace

status write_verify_inputs(support::write_verify_inputs_call const& call) noexcept {
  index_t const rows = call.shape.batch * call.shape.width();
  return launch(call.ctx, write_verify_inputs_kernel, {(rows + threads - 1) / threads, threads, 0},
                call);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
