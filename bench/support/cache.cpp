// SPDX-License-Identifier: Apache-2.0
#include "support/cache.hpp"

#include <numeric>

namespace bench {

kv_pool::kv_pool(scene& s, cache_format const& f, ddtree::index_t requests, ddtree::index_t slots) {
  ddtree::index_t const columns = (slots + f.page_size - 1) / f.page_size;
  ddtree::index_t const pages = requests * columns;
  ddtree::index_t const page_bytes = f.page_size * f.heads * f.row_bytes;
  std::vector<ddtree::kv_tensor> tensors;
  for (ddtree::index_t t = 0; t < f.tensors; ++t) {
    ddtree::kv_tensor tensor;
    tensor.base = s.bytes(sized(pages * page_bytes));
    tensor.page_stride = page_bytes;
    tensor.token_stride = f.head_major ? f.row_bytes : f.heads * f.row_bytes;
    tensor.head_stride = f.head_major ? f.page_size * f.row_bytes : f.row_bytes;
    tensor.pages = pages;
    tensor.heads = static_cast<std::int32_t>(f.heads);
    tensor.row_bytes = static_cast<std::int32_t>(f.row_bytes);
    tensors.push_back(tensor);
  }
  std::vector<std::int32_t> entries(sized(pages));
  std::iota(entries.begin(), entries.end(), 0);
  view_.tensors = s.array(tensors);
  view_.num_tensors = f.tensors;
  view_.table[0].entries = s.array(entries);
  view_.table[0].columns = columns;
  view_.table[0].page_size = f.page_size;
}

}  // namespace bench
