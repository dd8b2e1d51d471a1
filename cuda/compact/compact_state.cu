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
constexpr index_t max_blocks = (index_t{1} << 31) - 1;

struct compact_state_params {
  support::compact_state_call call;
  index_t slices;  // blocks that share one state
};

__device__ bool is_slot(index_t slot, index_t slots) { return slot >= 0 && slot < slots; }

__device__ bool is_sound(state_tensor const& t) {
  return t.from != nullptr && t.to != nullptr && t.bytes > 0;
}

/// What a block copies; no `to` where there is nothing to copy, and then perhaps flags.
struct state_copy {
  char* to;
  char const* from;
  std::uint32_t flags;
};

__device__ state_copy find_copy(support::compact_state_call const& call, state_tensor const& tensor,
                                rules::accepted_row const& row, index_t b) {
  state_view const& state = call.state;
  index_t const take = state.take.data != nullptr ? rules::load_id(state.take, b) : row.count;
  index_t const from =
      state.from_slot.data != nullptr ? rules::load_id(state.from_slot, row.at.request) : b;
  index_t const to = state.to_slot.data != nullptr ? rules::load_id(state.to_slot, row.at.request)
                                                   : row.at.request;
  if (take == -1 || to == -1) return {};
  if (take < 0 || take > row.count || !is_sound(tensor) || !is_slot(from, tensor.from_slots) ||
      !is_slot(to, tensor.to_slots)) {
    return {nullptr, nullptr, flag::slot_out_of_range};
  }
  auto const r = static_cast<std::int32_t>(take);
  node_t const node = r == 0 ? 0 : row.path[r];
  if (!rules::is_on_path(node, r, call.shape)) return {nullptr, nullptr, flag::id_out_of_range};
  return {static_cast<char*>(tensor.to) + to * tensor.to_slot_stride,
          static_cast<char const*>(tensor.from) + from * tensor.from_slot_stride +
              node * tensor.from_node_stride,
          0};
}

template <class Word>
__device__ void copy_words(state_copy const& copy, index_t bytes, index_t first, index_t step) {
  auto* const to = reinterpret_cast<Word*>(copy.to);
  auto const* const from = reinterpret_cast<Word const*>(copy.from);
  index_t const words = bytes / static_cast<index_t>(sizeof(Word));
#pragma unroll 4
  for (index_t i = first; i < words; i += step) to[i] = from[i];
}

/// `slices` blocks for each (tensor, request).
__global__ void __launch_bounds__(threads) compact_state_kernel(compact_state_params const params) {
  support::compact_state_call const& call = params.call;
  index_t const batch = call.shape.batch;
  index_t const pieces = call.state.num_tensors * batch * params.slices;
  for (index_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    index_t const slice = piece % params.slices;
    index_t const b = piece / params.slices % batch;
    rules::accepted_row const row = rules::find_accepted(call.batch, call.path, call.shape, b);
    if (row.count < 0) continue;
    state_tensor const tensor = call.state.tensors[piece / params.slices / batch];
    state_copy const copy = find_copy(call, tensor, row, b);
    if (threadIdx.x == 0 && slice == 0) add_flags(call.path, b, row.flags | copy.flags);
    if (copy.to == nullptr) continue;
    index_t const first = slice * threads + threadIdx.x;
    index_t const step = params.slices * threads;
    unsigned const width = common_width(reinterpret_cast<std::uintptr_t>(copy.to) |
                                        reinterpret_cast<std::uintptr_t>(copy.from) |
                                        static_cast<std::uint64_t>(tensor.bytes));
    switch (width) {
      case 16: copy_words<uint4>(copy, tensor.bytes, first, step); break;
      case 8: copy_words<uint2>(copy, tensor.bytes, first, step); break;
      case 4: copy_words<std::uint32_t>(copy, tensor.bytes, first, step); break;
      case 2: copy_words<std::uint16_t>(copy, tensor.bytes, first, step); break;
      default: copy_words<std::uint8_t>(copy, tensor.bytes, first, step);
    }
  }
}

}  // namespace

status compact_state(support::compact_state_call const& call) noexcept {
  // A state's size stands in device memory. States are large (megabytes), so few pairs get many
  // blocks each.
  index_t const pairs = call.state.num_tensors * call.shape.batch;
  index_t const slices = pairs == 0 ? 1 : (pairs < 32 ? 64 : (pairs < 2048 ? 2048 / pairs : 1));
  index_t const blocks = pairs * slices < max_blocks ? pairs * slices : max_blocks;
  return launch(call.ctx, compact_state_kernel, {blocks, threads},
                compact_state_params{call, slices});
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
