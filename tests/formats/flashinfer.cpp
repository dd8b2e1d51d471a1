// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/flashinfer.hpp"

#include "ddtree/formats/kv_layout.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

#include <limits>

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::formats::query_rows;
namespace flashinfer = ddtree::formats::flashinfer;
using flashinfer::mask_form;

constexpr std::int64_t dummy_page = 9999;

/// A block table by request; some of its rows end before the tree.
struct page_table {
  page_table(host_batch const& h, index_t size) : page_size(size) {
    std::int64_t longest = 0;
    for (std::int64_t const length : h.cache_len) longest = std::max(longest, length);
    columns = (longest + h.shape.width()) / page_size + 1;
    for (std::size_t r = 0; r < h.cache_len.size(); ++r) {
      for (index_t c = 0; c < columns; ++c) {
        bool const is_missing = r % 4 == 3 && c > 0;
        entries.push_back(is_missing ? -1 : 1 + static_cast<std::int64_t>(r) * columns + c);
      }
    }
  }
  std::int64_t page(std::int64_t request, std::int64_t token) const {
    std::int64_t const entry = entries[sized(request * columns + token / page_size)];
    return entry < 0 ? dummy_page : entry;
  }

  index_t page_size, columns = 0;
  id_list entries;
};

/// The arrays that a plan leaves on the device.
struct plan {
  plan(ddtree::context const& ctx, host_batch const& h, page_table const& t, mask_form form,
       query_rows rows, std::size_t offset = 0)
      : qo_indptr(ctx, dtype::i32, h.tree.size() + 1),
        kv_indptr(ctx, dtype::i32, h.tree.size() + 1),
        last_page_len(ctx, dtype::i32, h.tree.size()),
        mask_indptr(ctx, dtype::i32, h.tree.size() + 1),
        kv_indices(ctx, dtype::i32, count_pages(h, t)),
        mask(ctx, count_bytes(h, form) + offset) {
    device_batch d(ctx, h);
    optional_ids entries(ctx, dtype::i32, t.entries);
    ddtree::kv_table table;
    table.entries = entries.view();
    table.columns = t.columns;
    table.page_size = t.page_size;
    flashinfer::plan_buffers out;
    out.qo_indptr = qo_indptr.view();
    out.paged_kv_indptr = kv_indptr.view();
    out.paged_kv_indices = kv_indices.view();
    out.max_pages = static_cast<index_t>(count_pages(h, t));
    out.paged_kv_last_page_len = last_page_len.view();
    out.custom_mask = mask.data() + offset;
    out.custom_mask_bytes = static_cast<index_t>(mask.size() - offset);
    out.form = form;
    out.mask_indptr = mask_indptr.view();
    auto const s = flashinfer::write_plan_buffers(ctx, h.shape, d.view(), d.tree.view(), table, out,
                                                  {rows, dummy_page});
    REQUIRE(s.message == std::string());
    bytes = mask.values();
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  static std::size_t count_pages(host_batch const& h, page_table const& t) {
    return h.tree.size() * sized(t.columns);
  }
  static std::size_t count_bytes(host_batch const& h, mask_form form) {
    std::size_t total = 0;
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      std::size_t const bits = sized(h.shape.width() * (h.length(b) + h.shape.width()));
      total += form == mask_form::packed ? bits / 8 + 1 : bits;
    }
    return total;
  }
  bool intact() const {
    return qo_indptr.intact() && kv_indptr.intact() && last_page_len.intact() &&
           mask_indptr.intact() && kv_indices.intact() && mask.intact();
  }

  id_array qo_indptr, kv_indptr, last_page_len, mask_indptr, kv_indices;
  buffer<std::uint8_t> mask;
  std::vector<std::uint8_t> bytes;
};

/// The kernel's question: does query q of request b attend to its token k?
bool attends(plan const& p, mask_form form, std::int64_t first_byte, std::int64_t kv_len,
             std::int64_t q, std::int64_t k) {
  std::uint64_t const o = static_cast<std::uint64_t>(q * kv_len + k);
  std::uint8_t const* const mask = p.bytes.data() + first_byte;
  return form == mask_form::packed ? (mask[o / 8] >> (o % 8) & 1) != 0 : mask[o] == 1;
}

/// Reads the plan as FlashInfer's kernel does, request after request.
void check_plan(ddtree::context const& ctx, host_batch const& h, index_t page_size, mask_form form,
                query_rows rows) {
  CAPTURE(page_size, static_cast<int>(form), static_cast<int>(rows));
  page_table const t(h, page_size);
  plan const p(ctx, h, t, form, rows, form == mask_form::packed ? 3 : 0);
  auto const qo = p.qo_indptr.values(), kv = p.kv_indptr.values();
  auto const last = p.last_page_len.values(), first_byte = p.mask_indptr.values();
  auto const pages = p.kv_indices.values();
  CHECK(qo[0] == 0);
  CHECK(kv[0] == 0);
  CHECK(first_byte[0] == 0);
  std::size_t wrong_bits = 0, wrong_pages = 0, wrong_tail = 0;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    std::int64_t const q_len = qo[b + 1] - qo[b];
    CHECK(q_len == (rows == query_rows::width ? h.width() : h.nodes(b)));
    REQUIRE((last[b] >= 1 && last[b] <= page_size));
    std::int64_t const kv_len = (kv[b + 1] - kv[b] - 1) * page_size + last[b];
    REQUIRE(kv_len == std::max<std::int64_t>(h.length(b) + q_len, 1));
    for (std::int64_t k = 0; k < kv_len; k += page_size) {
      std::int64_t const wanted = h.is_active(b) ? t.page(h.request[b], k) : dummy_page;
      wrong_pages += pages[sized(kv[b] + k / page_size)] != wanted;
    }
    for (int q = 0; q < q_len; ++q) {
      std::vector<char> sees(sized(q_len), 0);
      for (int const j : h.tree[b].path_to(q)) sees[sized(j)] = 1;
      for (std::int64_t k = 0; k < kv_len; ++k) {
        bool const wanted = k < h.length(b) || sees[sized(k - h.length(b))] != 0;
        wrong_bits += attends(p, form, first_byte[b], kv_len, q, k) != wanted;
      }
    }
    std::int64_t const bits = q_len * kv_len;
    CHECK(first_byte[b + 1] - first_byte[b] == (form == mask_form::packed ? (bits + 7) / 8 : bits));
    for (std::int64_t o = bits; form == mask_form::packed && o % 8 != 0; ++o) {
      wrong_tail += (p.bytes[sized(first_byte[b] + o / 8)] >> (o % 8) & 1) != 0;
    }
  }
  CHECK(wrong_pages == 0);
  CHECK(wrong_bits == 0);
  CHECK(wrong_tail == 0);
  for (auto i = sized(first_byte.back()); i < p.bytes.size(); ++i) {
    wrong_tail += p.bytes[i] != poisoned<std::uint8_t>();
  }
  for (auto i = sized(kv.back()); i < pages.size(); ++i) wrong_tail += pages[i] != untouched;
  CHECK(wrong_tail == 0);
  CHECK(p.intact());
}

}  // namespace

TEST_CASE("flashinfer: the kernel's bit rule reads the mask of every request",
          "[formats][flashinfer][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (mask_form const form : {mask_form::packed, mask_form::boolean}) {
      for (query_rows const rows : {query_rows::width, query_rows::nodes}) {
        check_plan(ctx, h, h.width() % 2 == 0 ? 16 : 1, form, rows);
      }
    }
  });
}

TEST_CASE("flashinfer: a mask of 70,000 context columns over 1,025 rows",
          "[formats][flashinfer]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(99);
    host_batch const h = make_batch(rng, {1, 1025, 31, {70000}, false});
    check_plan(ctx, h, 64, mask_form::packed, query_rows::width);
  }
}

TEST_CASE("flashinfer: nothing is written beyond the buffers", "[formats][flashinfer][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(5);
    host_batch const h = make_batch(rng, {4, 9, 3, {5, 0, 40}, false});
    page_table const t(h, 4);
    plan const whole(ctx, h, t, mask_form::packed, query_rows::width);
    for (index_t bytes = 0; bytes < 90; bytes += 7) {
      device_batch d(ctx, h);
      optional_ids entries(ctx, dtype::i32, t.entries);
      ddtree::kv_table table;
      table.entries = entries.view();
      table.columns = t.columns;
      table.page_size = t.page_size;
      buffer<std::uint8_t> mask(ctx, sized(bytes));
      id_array indices(ctx, dtype::i64, sized(bytes / 7));
      flashinfer::plan_buffers out;
      out.custom_mask = mask.data();
      out.custom_mask_bytes = bytes;
      out.paged_kv_indices = indices.view();
      out.max_pages = bytes / 7;
      REQUIRE(flashinfer::write_plan_buffers(ctx, h.shape, d.view(), d.tree.view(), table, out,
                                             {query_rows::width, dummy_page}));
      auto const got = mask.values();
      CHECK(std::equal(got.begin(), got.end(), whole.bytes.begin()));
      auto const pages = indices.values(), all = whole.kv_indices.values();
      CHECK(std::equal(pages.begin(), pages.end(), all.begin()));
      CHECK((mask.intact() && indices.intact()));
    }
  }
}

TEST_CASE("flashinfer: a contiguous cache is one page per request",
          "[formats][flashinfer][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(6);
    host_batch const h = make_batch(rng, {4, 9, 3, {5, 0, 40}, false});
    device_batch d(ctx, h);
    id_array indices(ctx, dtype::i32, 4), last(ctx, dtype::i32, 4);
    flashinfer::plan_buffers out;
    out.paged_kv_indices = indices.view();
    out.max_pages = 4;
    out.paged_kv_last_page_len = last.view();
    ddtree::kv_table table;
    table.page_size = 64;
    REQUIRE(flashinfer::write_plan_buffers(ctx, h.shape, d.view(), {}, table, out));
    CHECK(indices.values() == h.request);
    for (std::size_t b = 0; b < 4; ++b) CHECK(last.values()[b] == h.length(b) + 9);
  }
}

TEST_CASE("flashinfer: tensors of both orders", "[formats][flashinfer][small]") {
  using ddtree::formats::kv_extents;
  using ddtree::formats::kv_order;
  kv_extents const extents{5, 16, 3, 8};  // pages, page size, heads, bytes of a row
  std::vector<unsigned char> memory(5 * 2 * 16 * 3 * 8);
  // [pages, 2, page size, heads, row] and [pages, 2, heads, page size, row]: V of page 2, token 7,
  // head 1.
  for (kv_order const order : {kv_order::nhd, kv_order::hnd}) {
    auto const v = ddtree::formats::make_kv_tensor(order, memory.data() + extents.page_bytes(),
                                                   extents, 2 * extents.page_bytes(), 1);
    index_t const in_page = order == kv_order::nhd ? (7 * 3 + 1) * 8 : (1 * 16 + 7) * 8;
    index_t const at = 2 * v.page_stride + 7 * v.token_stride + 1 * v.head_stride;
    CHECK(static_cast<unsigned char*>(v.base) + at ==
          memory.data() + (2 * 2 + 1) * 16 * 3 * 8 + in_page);
    CHECK((v.pages == 5 && v.heads == 3 && v.row_bytes == 8 && v.table == 1));
  }
}

TEST_CASE("flashinfer: lengths that no cache has stay within the buffers",
          "[formats][flashinfer][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(3);
    host_batch const h = make_batch(rng, {40, 65, 7, {5}, false});
    device_batch d(ctx, h);
    id_list lengths(sized(h.shape.requests), std::int64_t{1} << 40);
    optional_ids cache_len(ctx, dtype::i64, lengths);
    buffer<std::uint8_t> mask(ctx, 20000);
    id_array indices(ctx, dtype::i32, 50);
    flashinfer::plan_buffers out;
    out.custom_mask = mask.data();
    out.custom_mask_bytes = static_cast<index_t>(mask.size());
    out.paged_kv_indices = indices.view();
    out.max_pages = 50;
    for (index_t const page_size : {index_t{1}, std::numeric_limits<index_t>::max()}) {
      ddtree::kv_table table;
      table.page_size = page_size;
      REQUIRE(flashinfer::write_plan_buffers(ctx, h.shape, {cache_len.view(), d.request.data()},
                                             d.tree.view(), table, out));
      CHECK((mask.intact() && indices.intact()));
    }
  }
}

TEST_CASE("flashinfer: an argument at fault is named", "[formats][flashinfer][small]") {
  auto const ctx = ddtree::context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  std::vector<std::uint8_t> bytes(64);
  flashinfer::plan_buffers out;
  out.custom_mask = bytes.data();
  out.custom_mask_bytes = 64;
  ddtree::kv_table table;
  auto const message = [&](ddtree::batch_view const& batch, ddtree::draft_tree const& tree,
                           flashinfer::plan_options options = {}) {
    return std::string(
        flashinfer::write_plan_buffers(ctx, h.shape, batch, tree, table, out, options).message);
  };
  std::string const call = "flashinfer::write_plan_buffers: ";
  CHECK(message({}, d.tree.view()) == call + "batch.cache_len is null");
  CHECK(message(d.view(), {}) == call + "tree.ancestors is null");
  CHECK(message(d.view(), d.tree.view(), {static_cast<query_rows>(2), 0}) ==
        call + "options.rows is none");
  table.page_size = 0;
  CHECK(message(d.view(), d.tree.view()) == call + "table.page_size < 1");
  table.page_size = 1;
  out.form = static_cast<mask_form>(2);
  CHECK(message(d.view(), d.tree.view()) == call + "out.form is none");
}
