// SPDX-License-Identifier: Apache-2.0
// The calls of one round around FlashInfer's prefill; docs/embed/flashinfer.md says where they go.
#include "ddtree/formats/flashinfer.hpp"

#include "ddtree/ddtree.hpp"
#include "ddtree/formats/kv_layout.hpp"

#include "tiny_round.hpp"

namespace {

namespace flashinfer = ddtree::formats::flashinfer;
using ddtree::formats::kv_extents;
using ddtree::formats::kv_order;

// The buffers that were given to the wrapper's constructor for a CUDA graph, and the block table.
struct wrapper_buffers {
  std::int32_t* qo_indptr;               // [batch + 1]
  std::int32_t* paged_kv_indptr;         // [batch + 1]
  std::int32_t* paged_kv_indices;        // [max_pages]
  std::int32_t* paged_kv_last_page_len;  // [batch]
  std::uint8_t* custom_mask_buf;         // uint8
  std::int32_t* mask_indptr_buf;         // [batch + 1]
  ddtree::index_t max_pages;
  ddtree::index_t custom_mask_bytes;
  ddtree::kv_table table;
};

// Before the target's forward, after the wrapper's plan (whose indices are placeholders then).
ddtree::status fill_plan(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                         wrapper_buffers const& w) {
  flashinfer::plan_buffers out;
  out.qo_indptr = w.qo_indptr;
  out.paged_kv_indptr = w.paged_kv_indptr;
  out.paged_kv_indices = w.paged_kv_indices;
  out.max_pages = w.max_pages;
  out.paged_kv_last_page_len = w.paged_kv_last_page_len;
  out.custom_mask = w.custom_mask_buf;
  out.custom_mask_bytes = w.custom_mask_bytes;
  out.mask_indptr = w.mask_indptr_buf;
  return flashinfer::write_plan_buffers(round.ctx, round.shape, batch, round.tree, w.table, out);
}

// Once, on the host: K and V of one layer of a cache [pages, 2, page_size, heads, head_dim] (NHD)
// or [pages, 2, heads, page_size, head_dim] (HND).
void describe_layer(void* kv, kv_order order, kv_extents const& extents, ddtree::kv_tensor out[2]) {
  ddtree::index_t const page = extents.page_bytes();
  out[0] = ddtree::formats::make_kv_tensor(order, kv, extents, 2 * page);
  out[1] = ddtree::formats::make_kv_tensor(order, static_cast<char*>(kv) + page, extents, 2 * page);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::int32_t n = static_cast<std::int32_t>(tiny_round::rows);
  std::int32_t qo[2], kv[2], indices[8], last[1], mask_indptr[2];
  std::vector<std::uint8_t> mask(n * (10 + n) / 8 + 1);
  std::int32_t const block_table[8] = {7, 6, 5, 4, 3, 2, 1, 0};
  wrapper_buffers w{
      qo, kv, indices, last, mask.data(), mask_indptr, 8, ddtree::index_t(mask.size()), {}};
  w.table.entries = {const_cast<std::int32_t*>(block_table), ddtree::dtype::i32};
  w.table.columns = 8;
  w.table.page_size = 4;
  std::vector<char> cache(8 * 2 * 4 * 2 * 16);
  ddtree::kv_tensor layer[2];
  describe_layer(cache.data(), kv_order::hnd, {8, 4, 2, 16}, layer);

  auto s = tiny.draft();
  if (s) s = fill_plan(tiny.round, tiny.batch, w);
  if (s) s = tiny.round.accept_tokens(tiny.batch, tiny.target_tokens().data());
  ddtree::kv_cache cache_view;
  cache_view.tensors = layer;
  cache_view.num_tensors = 2;
  cache_view.table[0] = w.table;
  if (s) s = tiny.round.commit(tiny.batch, cache_view, tiny.cache_len);
  if (!s) return report(s, false);
  std::printf("%d rows over %d pages, %d tokens in the last; the cache has %d tokens now\n", qo[1],
              kv[1], last[0], tiny.cache_len[0]);
  return report(s, qo[1] == n && kv[1] == (10 + n + 3) / 4 && tiny.cache_len[0] == 14);
}
