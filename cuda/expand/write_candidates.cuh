// SPDX-License-Identifier: Apache-2.0
// The end of expand and expand_merge: log-probs and tokens of what a block has selected.
#pragma once

#include "common/block.cuh"
#include "expand/row_task.cuh"
#include "rules/dtype_convert.hpp"
#include "rules/expand.hpp"
#include "rules/log_sum_exp.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

template <int Threads>
struct write_memory {
  float partial[warps_of<Threads>];
  float before;
};

/// rules::biased for a block's worth of ranks. It is a running minimum, which associates.
template <int Threads>
__device__ float biased_scan(float log_prob, float bias, float before,
                             write_memory<Threads>& memory) {
  float const alone = rules::biased(log_prob, bias, -rules::minus_infinity);
  float const least = block_scan<Threads>(alone, smaller{}, memory.partial);
  return smaller{}(before, least);
}

/// Writes the `count` best of a row, keys in shared memory, and the empty slots after them. Returns
/// flags of this thread's slots. `Call` is an expand_call or expand_merge_call.
template <int Threads, class Call>
__device__ std::uint32_t write_candidates(Call const& call, row_task const& task, float r,
                                          rules::exp_sum const& sum, std::uint64_t const* keys,
                                          std::uint32_t count, write_memory<Threads>& memory) {
  ids_in const& map = call.options.vocab_map;
  float const* const bias = call.options.bias;
  auto const top_k = static_cast<std::uint32_t>(call.shape.top_k);
  index_t const first = index_t{task.row} * top_k;
  float const lse = rules::log_sum_exp(sum);
  float before = 0.0f;
  std::uint32_t flags = 0;
  for (std::uint32_t begin = 0; begin < top_k; begin += Threads) {
    std::uint32_t const rank = begin + threadIdx.x;
    index_t token = 0;
    float log_prob = rules::minus_infinity;
    if (rank < count) {
      index_t const id = rules::candidate_id(keys[rank]);
      index_t const target = map.data != nullptr ? rules::load_id(map, id) : id;
      bool const in_range = target >= 0 && target < call.shape.vocab;
      token = in_range ? target : 0;
      if (!in_range) flags = flag::id_out_of_range;
      log_prob = rules::log_prob(rules::candidate_logit(keys[rank]), r, lse);
    }
    if (bias != nullptr) {
      float const own =
          rank < count ? bias[static_cast<std::uint32_t>(task.i) * top_k + rank] : 0.0f;
      log_prob = biased_scan(log_prob, own, before, memory);
      if (threadIdx.x == Threads - 1) memory.before = log_prob;
      __syncthreads();
      before = memory.before;
    }
    if (rank < top_k) {
      call.out.token[first + rank] = static_cast<token_t>(token);
      call.out.log_prob[first + rank] = log_prob;
    }
  }
  return flags;
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
