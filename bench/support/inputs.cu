// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_check.hpp"
#include "support/gpu.hpp"

namespace bench::gpu {
namespace {

__global__ void fill_kernel(void* data, logit_rows rows) {
  auto const count = rows.rows * rows.vocab;
  auto const stride = static_cast<ddtree::index_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<ddtree::index_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    store_logit(data, rows.type, i, logit_at(rows, i / rows.vocab, i % rows.vocab));
  }
}

__global__ void raise_kernel(void* data, logit_rows rows) {
  auto const i = static_cast<ddtree::index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  auto const row = i / raised_tokens;
  auto const j = static_cast<int>(i % raised_tokens);
  if (row >= rows.rows) return;
  store_logit(data, rows.type, row * rows.vocab + raised_column(rows, row, j),
              raised_logit(rows, row, j));
}

__global__ void set_kernel(void* data, ddtree::dtype type, ddtree::index_t const* at,
                           ddtree::index_t count, float value) {
  auto const i = static_cast<ddtree::index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) store_logit(data, type, at[i], value);
}

unsigned blocks_of(ddtree::index_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

}  // namespace

void fill_logits(void* data, logit_rows const& rows) {
  fill_kernel<<<multiprocessors() * 16, 256, 0, context().stream>>>(data, rows);
  if (rows.kind == logit_kind::peaked) {
    raise_kernel<<<blocks_of(rows.rows * raised_tokens), 256, 0, context().stream>>>(data, rows);
  }
  check(cudaGetLastError());
}

void set_logits(void* data, ddtree::dtype type, std::vector<ddtree::index_t> const& at,
                float value) {
  auto const count = static_cast<ddtree::index_t>(at.size());
  if (count == 0) return;
  auto* const indices = static_cast<ddtree::index_t*>(allocate(at.size() * sizeof(at[0])));
  copy(indices, at.data(), at.size() * sizeof(at[0]));
  set_kernel<<<blocks_of(count), 256, 0, context().stream>>>(data, type, indices, count, value);
  check(cudaGetLastError());
  release(indices);
}

}  // namespace bench::gpu
