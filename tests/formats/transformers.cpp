// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/transformers.hpp"

#include "ddtree/compact.hpp"
#include "ddtree/mask.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::dtype;
using ddtree::index_t;
namespace transformers = ddtree::formats::transformers;

/// A mask of a type whose elements are `Element`s; `masked` is finfo(type).min, or False.
template <class Element>
void check_mask(ddtree::context const& ctx, host_batch const& h, dtype type, Element shown,
                Element masked, std::int64_t kv_length) {
  CAPTURE(static_cast<int>(type), kv_length);
  device_batch d(ctx, h);
  auto const width = sized(h.shape.width()), columns = sized(kv_length);
  buffer<Element> mask(ctx, h.tree.size() * width * columns);
  REQUIRE(ddtree::write_mask(ctx, h.shape, d.view(), d.tree.view(),
                             transformers::make_attention_mask(mask.data(), type, kv_length)));
  auto const got = mask.values();
  std::size_t wrong = 0;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    for (std::size_t i = 0; i < width; ++i) {
      std::vector<Element> row(columns, masked);
      auto const context = sized(h.length(b));
      std::fill_n(row.begin(), context, shown);
      for (int const j : h.tree[b].path_to(static_cast<int>(i))) {
        if (context + sized(j) < columns) row[context + sized(j)] = shown;
      }
      auto const first = got.begin() + static_cast<std::ptrdiff_t>((b * width + i) * columns);
      wrong += !std::equal(row.begin(), row.end(), first);
    }
  }
  CHECK(wrong == 0);
  CHECK(mask.intact());
}

void check_masks(ddtree::context const& ctx, host_batch const& h, std::int64_t kv_length) {
  check_mask<std::uint8_t>(ctx, h, dtype::u8, 1, 0, kv_length);
  check_mask<std::uint32_t>(ctx, h, dtype::f32, 0, 0xff7fffffu, kv_length);
  check_mask<std::uint16_t>(ctx, h, dtype::f16, 0, 0xfbff, kv_length);
  check_mask<std::uint16_t>(ctx, h, dtype::bf16, 0, 0xff7f, kv_length);
}

}  // namespace

TEST_CASE("transformers: 4-D masks of a static cache", "[formats][transformers][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    std::int64_t const longest = *std::max_element(h.cache_len.begin(), h.cache_len.end());
    if (longest > 1000) {
      check_mask<std::uint8_t>(ctx, h, dtype::u8, 1, 0, longest + h.width() + 7);
    } else {
      check_masks(ctx, h, longest + h.width() + 7);
    }
  });
}

TEST_CASE("transformers: 4-D masks of a dynamic cache", "[formats][transformers][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (std::int64_t const length : {0, 1, 37}) {
      random_numbers rng(static_cast<unsigned>(length));
      for (int const width : {1, 32, 33, 65}) {
        host_batch const h = make_batch(rng, {1, width, 7, {length}, false});
        check_masks(ctx, h, length + width);
      }
    }
  }
}

TEST_CASE("transformers: position_ids and cache_position", "[formats][transformers][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(2);
    host_batch const h = make_batch(rng, {1, 33, 7, {70000}, false});
    device_batch d(ctx, h);
    id_array position_ids(ctx, dtype::i64, 33), cache_position(ctx, dtype::i64, 33);
    ddtree::verify_options options;
    options.padding = ddtree::padding_slot::in_sequence;
    REQUIRE(ddtree::write_verify_inputs(ctx, h.shape, d.view(), d.tree.view(),
                                        {{}, position_ids.view(), cache_position.view()}, options));
    for (int i = 0; i < 33; ++i) {
      CHECK(position_ids.values()[sized(i)] == 70000 + h.tree[0].depth[sized(i)]);
      CHECK(cache_position.values()[sized(i)] == 70000 + i);
    }
  }
}

TEST_CASE("transformers: compaction of static, dynamic and cropped caches",
          "[formats][transformers][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (std::size_t const spare : {std::size_t{0}, std::size_t{9}}) {
      CAPTURE(spare);
      random_numbers rng(12);
      host_batch h = make_batch(rng, {4, 33, 7, {20}, spare != 0});
      h.shape.requests = h.shape.batch;
      for (std::size_t b = 0; b < h.request.size(); ++b) {
        if (h.request[b] >= 0) h.request[b] = static_cast<std::int64_t>(b);
      }
      h.cache_len.assign(h.request.size(), 20);
      for (std::size_t b = 0; b < h.path.size(); ++b) {
        if (h.path[b].node.empty()) h.request[b] = -1;
      }
      // keys[b, head, t, e]; a cropped cache's heads stand `spare` rows further apart than it is
      // long.
      std::size_t const heads = 3, length = 20 + 33 + spare, dim = 5;
      std::vector<std::uint16_t> before(h.tree.size() * heads * length * dim);
      std::iota(before.begin(), before.end(), std::uint16_t{0});
      auto after = before;
      for (std::size_t b = 0; b < h.tree.size(); ++b) {
        for (std::size_t u = 1; u < h.path[b].node.size(); ++u) {
          for (std::size_t k = 0; k < heads * dim; ++k) {
            std::size_t const head = (b * heads + k / dim) * length;
            after[(head + 20 + u) * dim + k % dim] =
                before[(head + 20 + sized(h.path[b].node[u])) * dim + k % dim];
          }
        }
      }
      buffer<std::uint16_t> keys(ctx, before);
      auto const rows = static_cast<index_t>(length);
      buffer<ddtree::kv_tensor> tensors(
          ctx, std::vector<ddtree::kv_tensor>{transformers::make_kv_tensor(
                   keys.data(), h.shape.batch, rows, 3, static_cast<std::int32_t>(dim * 2))});
      device_batch d(ctx, h);
      ddtree::kv_cache cache;
      cache.tensors = tensors.data();
      cache.num_tensors = 1;
      cache.table[0] = transformers::make_kv_table(rows);
      REQUIRE(ddtree::compact_kv(ctx, h.shape, d.view(), d.path.view(), cache));
      CHECK((keys.values() == after));
      CHECK(keys.intact());
    }
  }
}
