// SPDX-License-Identifier: Apache-2.0
// What one would put together from the toolkit's CUB: every row sorted in full, then a log-sum-exp.
#include "support/cuda_check.hpp"
#include "support/expand_case.hpp"

#include <cub/block/block_reduce.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>

#include <memory>
#include <vector>

namespace bench {
namespace {

using ddtree::index_t;

constexpr int threads = 512;

/// Every row's logits as floats with their ids.
__global__ void unpack_kernel(void const* logits, ddtree::dtype type, index_t count, index_t vocab,
                              float* key, std::int32_t* id) {
  index_t const i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  key[i] = type == ddtree::dtype::f32
               ? static_cast<float const*>(logits)[i]
               : ddtree::rules::bf16_to_float(static_cast<std::uint16_t const*>(logits)[i]);
  id[i] = static_cast<std::int32_t>(i % vocab);
}

/// The first k of each sorted row, with the log-sum-exp of all of it taken off. A block per row.
__global__ void normalise_kernel(float const* key, std::int32_t const* id, index_t vocab,
                                 std::int32_t k, ddtree::candidates out) {
  using reduce = cub::BlockReduce<float, threads>;
  __shared__ typename reduce::TempStorage storage;
  __shared__ float log_sum;
  index_t const row = blockIdx.x;
  float const* const x = key + row * vocab;
  float sum = 0.0f;
  for (index_t i = threadIdx.x; i < vocab; i += threads) sum += __expf(x[i] - x[0]);
  sum = reduce(storage).Sum(sum);
  if (threadIdx.x == 0) log_sum = x[0] + logf(sum);
  __syncthreads();
  for (index_t i = threadIdx.x; i < k; i += threads) {
    out.token[row * k + i] = id[row * vocab + i];
    out.log_prob[row * k + i] = x[i] - log_sum;
  }
}

struct sorter {
  sorter(scene& s, expand_case const& with) : c(with), count(c.rows() * c.shape.vocab) {
    for (int i = 0; i < 2; ++i) {
      key[i] = s.array<float>(count);
      id[i] = s.array<std::int32_t>(count);
    }
    std::vector<std::int64_t> begins;
    for (index_t row = 0; row <= c.rows(); ++row) begins.push_back(row * c.shape.vocab);
    begin = s.array(begins);
    sort(nullptr);  // asks for the size
    storage = s.bytes(storage_bytes);
  }

  void sort(cudaStream_t stream) {
    gpu::check(cub::DeviceSegmentedRadixSort::SortPairsDescending(
        storage, storage_bytes, key[0], key[1], id[0], id[1], count, c.rows(), begin, begin + 1, 0,
        32, stream));
  }

  void run(void const* logits, ddtree::candidates const& out, cudaStream_t stream) {
    auto const blocks = static_cast<unsigned>((count + threads - 1) / threads);
    unpack_kernel<<<blocks, threads, 0, stream>>>(logits, c.type, count, c.shape.vocab, key[0],
                                                  id[0]);
    sort(stream);
    normalise_kernel<<<static_cast<unsigned>(c.rows()), threads, 0, stream>>>(
        key[1], id[1], c.shape.vocab, c.shape.top_k, out);
    gpu::check(cudaGetLastError());
  }

  expand_case c;
  index_t count;
  float* key[2];
  std::int32_t* id[2];
  std::int64_t* begin;
  void* storage = nullptr;
  std::size_t storage_bytes = 0;
};

}  // namespace

work cub_expand(scene& s, expand_case const& c) {
  std::vector<void const*> drafts;
  for (int i = 0; i < s.copies; ++i) drafts.push_back(c.draft_logits(s, i));
  auto const out = c.outputs(s);
  auto const sorting = std::make_shared<sorter>(s, c);
  return {c.bytes(), [=, stream = s.ctx.stream](int copy) {
            sorting->run(drafts[sized(copy)], out, stream);
            return ddtree::status();
          }};
}

}  // namespace bench
