// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/vllm.hpp"

#include "ddtree/compact.hpp"
#include "ddtree/mask.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

#include <limits>

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::padding_slot;
using ddtree::formats::kv_extents;
using ddtree::formats::kv_order;
using ddtree::formats::query_rows;
namespace vllm = ddtree::formats::vllm;
using vllm::kv_cache_layout;

constexpr std::int64_t dummy_slot = 77;

struct packed_rows {
  id_list start, seq_lens, ids, positions, slots, request, node;
};

/// One request after the other, each row by the rules of the documentation.
packed_rows expected_rows(host_batch const& h, block_table const& t, query_rows rows,
                          padding_slot padding, std::size_t max_rows) {
  packed_rows p;
  p.start = {0};
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    host_tree const& tree = h.tree[b];
    int const count = rows == query_rows::width ? h.width() : h.nodes(b);
    for (int i = 0; i < count && p.ids.size() < max_rows; ++i) {
      bool const is_node = i < h.nodes(b);
      bool const has_slot = is_node || (h.is_active(b) && padding == padding_slot::in_sequence);
      p.ids.push_back(tree.token[sized(i)]);
      p.positions.push_back(
          h.is_active(b) ? h.length(b) + static_cast<std::int64_t>(tree.path_to(i).size()) - 1 : 0);
      p.slots.push_back(has_slot                         ? t.slot(h.request[b], h.length(b) + i)
                        : padding == padding_slot::dummy ? dummy_slot
                                                         : -1);
      p.request.push_back(static_cast<std::int64_t>(b));
      p.node.push_back(i);
    }
    p.start.push_back(static_cast<std::int64_t>(p.ids.size()));
    p.seq_lens.push_back(h.is_active(b) ? h.length(b) + count : 0);
  }
  for (id_list* const list : {&p.ids, &p.positions}) list->resize(max_rows, 0);
  for (id_list* const list : {&p.slots, &p.request, &p.node}) list->resize(max_rows, -1);
  return p;
}

void check_rows(ddtree::context const& ctx, host_batch const& h, query_rows rows,
                padding_slot padding, std::size_t max_rows) {
  CAPTURE(static_cast<int>(rows), static_cast<int>(padding), max_rows);
  device_batch d(ctx, h);
  block_table const t(h, 16);
  optional_ids entries(ctx, dtype::i32, t.entries);
  id_array start(ctx, dtype::i32, h.tree.size() + 1), lens(ctx, dtype::i32, h.tree.size());
  id_array ids(ctx, dtype::i32, max_rows), positions(ctx, dtype::i64, max_rows);
  id_array slots(ctx, dtype::i64, max_rows), request(ctx, dtype::i32, max_rows);
  id_array node(ctx, dtype::i32, max_rows);
  vllm::verify_buffers const out{
      start.view(), lens.view(),    ids.view(),  positions.view(),
      slots.view(), request.view(), node.view(), static_cast<index_t>(max_rows)};
  vllm::verify_options options;
  options.rows = rows;
  options.slots.padding = padding;
  options.slots.dummy_slot = dummy_slot;
  options.slots.table = t.view(entries);
  auto const s = vllm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out, options);
  REQUIRE(s.message == std::string());
  packed_rows const p = expected_rows(h, t, rows, padding, max_rows);
  CHECK(start.values() == p.start);
  CHECK(lens.values() == p.seq_lens);
  CHECK(ids.values() == p.ids);
  CHECK(positions.values() == p.positions);
  CHECK(slots.values() == p.slots);
  CHECK(request.values() == p.request);
  CHECK(node.values() == p.node);
  CHECK((start.intact() && lens.intact() && ids.intact() && positions.intact() && slots.intact() &&
         request.intact() && node.intact()));
}

}  // namespace

TEST_CASE("vllm: the packed rows of a verify step", "[formats][vllm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    auto const all = sized(h.shape.batch * h.shape.width());
    check_rows(ctx, h, query_rows::nodes, padding_slot::minus_one, all);
    check_rows(ctx, h, query_rows::nodes, padding_slot::in_sequence, all + 9);
    check_rows(ctx, h, query_rows::nodes, padding_slot::minus_one, all / 3 + 1);
    check_rows(ctx, h, query_rows::width, padding_slot::minus_one, all);
    check_rows(ctx, h, query_rows::width, padding_slot::dummy, all);
    check_rows(ctx, h, query_rows::width, padding_slot::in_sequence, all);
  });
}

TEST_CASE("vllm: row offsets are sums of the node counts before", "[formats][vllm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    device_batch d(ctx, h);
    id_array offset(ctx, dtype::i64, h.tree.size());
    REQUIRE(vllm::write_row_offsets(ctx, h.shape, d.view(), d.tree.view(), offset.view()));
    id_list expected;
    std::int64_t total = 0;
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      expected.push_back(total);
      total += h.nodes(b);
    }
    CHECK(offset.values() == expected);
    CHECK(offset.intact());
  });
}

TEST_CASE("vllm: qq_bias is the additive mask of the tree", "[formats][vllm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    device_batch d(ctx, h);
    auto const n = sized(h.shape.width());
    buffer<float> bias(ctx, h.tree.size() * n * n);
    ddtree::mask_view mask;
    mask.data = bias.data();
    mask.kind = ddtree::mask_kind::additive;
    mask.type = dtype::f32;
    REQUIRE(ddtree::write_mask(ctx, h.shape, d.view(), d.tree.view(), mask));
    // unified_attention adds qq_bias[request, query, key - context_len], and masks keys behind the
    // query itself.
    auto const got = bias.values();
    std::size_t wrong = 0;
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      for (int q = 0; q < h.width(); ++q) {
        for (int k = 0; k < h.width(); ++k) {
          float const x = got[(b * n + sized(q)) * n + sized(k)];
          bool const is_seen = h.tree[b].sees(q, k);
          wrong += is_seen ? x != 0.0f : x != -std::numeric_limits<float>::infinity();
          wrong += is_seen && k > q;
        }
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("vllm: what its sampler would have put out", "[formats][vllm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (std::size_t const more : {std::size_t{0}, std::size_t{4}}) {
      std::size_t const columns = sized(h.shape.depth) + 1 + more;
      auto const requests = sized(h.shape.requests);
      device_batch d(ctx, h);
      id_list const states = make_slots(h);
      optional_ids spec_state_indices(ctx, dtype::i32, states);
      id_array ids(ctx, dtype::i32, h.tree.size() * columns),
          sampled(ctx, dtype::i32, h.tree.size());
      id_array rejected(ctx, dtype::i32, h.tree.size()), count(ctx, dtype::i32, h.tree.size());
      id_array from(ctx, dtype::i32, requests), to(ctx, dtype::i32, requests);
      vllm::output_buffers const out{ids.view(),     static_cast<index_t>(columns),
                                     sampled.view(), rejected.view(),
                                     count.view(),   from.view(),
                                     to.view()};
      REQUIRE(vllm::write_output_buffers(ctx, h.shape, d.view(), d.tree.view(), d.path.view(),
                                         spec_state_indices.view(), out));
      id_list want_ids, want_sampled, want_rejected, want_count;
      id_list want_from(requests, untouched), want_to(requests, untouched);
      for (std::size_t b = 0; b < h.tree.size(); ++b) {
        host_path const& p = h.path[b];
        id_list row(p.token.begin(), p.token.end());
        want_sampled.push_back(static_cast<std::int64_t>(row.size()));
        want_count.push_back(std::max<std::int64_t>(want_sampled.back(), 1));
        want_rejected.push_back(row.empty() ? 0
                                            : h.nodes(b) - static_cast<std::int64_t>(row.size()));
        row.resize(columns, -1);
        want_ids.insert(want_ids.end(), row.begin(), row.end());
        if (!h.is_active(b)) continue;
        // The state that the next step reads must be that of the last accepted node.
        std::size_t const first = b * sized(h.width());
        auto const request = sized(h.request[b]);
        std::int64_t const holds = states[first + sized(p.node.back())];
        std::int64_t const read = states[first + p.node.size() - 1];
        want_from[request] = holds;
        want_to[request] = holds == read ? -1 : read;
      }
      CHECK(ids.values() == want_ids);
      CHECK(sampled.values() == want_sampled);
      CHECK(rejected.values() == want_rejected);
      CHECK(count.values() == want_count);
      CHECK(from.values() == want_from);
      CHECK(to.values() == want_to);
      CHECK((ids.intact() && sampled.intact() && rejected.intact() && count.intact() &&
             from.intact() && to.intact()));
    }
  });
}

TEST_CASE("vllm: compaction of its block tables in three layouts", "[formats][vllm][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (kv_order const order : {kv_order::nhd, kv_order::hnd}) {
      for (auto const layout :
           {kv_cache_layout::kv_first, kv_cache_layout::block_first, kv_cache_layout::packed}) {
        CAPTURE(static_cast<int>(order), static_cast<int>(layout));
        random_numbers rng(17);
        host_batch const h = make_batch(rng, {4, 33, 7, {0, 5, 60}, true});
        block_table const t(h, 4);
        bool const is_packed = layout == kv_cache_layout::packed;
        std::size_t const pages = sized(*std::max_element(t.entries.begin(), t.entries.end())) + 1;
        std::size_t const heads = 2, dim = 3;
        // An element names where it stands before: [pages][kv][token][head][element] counted.
        std::vector<std::uint32_t> before(pages * 2 * 4 * heads * dim);
        std::iota(before.begin(), before.end(), 0u);
        auto const at = [&](std::size_t kv, std::int64_t slot, std::size_t head, std::size_t e) {
          std::size_t const page = sized(slot) / 4, token = sized(slot) % 4;
          bool const nhd = order == kv_order::nhd;
          std::size_t const row = nhd ? token * heads + head : head * 4 + token;
          if (is_packed) return (page * 4 * heads + row) * 2 * dim + kv * dim + e;
          std::size_t const block =
              layout == kv_cache_layout::kv_first ? kv * pages + page : page * 2 + kv;
          return (block * 4 * heads + row) * dim + e;
        };
        auto after = before;
        for (std::size_t b = 0; b < h.tree.size(); ++b) {
          for (std::size_t u = 1; u < h.path[b].node.size(); ++u) {
            for (std::size_t kv = 0; kv < 2; ++kv) {
              for (std::size_t head = 0; head < heads; ++head) {
                for (std::size_t e = 0; e < dim; ++e) {
                  std::int64_t const s = h.length(b);
                  after[at(kv, t.slot(h.request[b], s + static_cast<std::int64_t>(u)), head, e)] =
                      before[at(kv, t.slot(h.request[b], s + h.path[b].node[u]), head, e)];
                }
              }
            }
          }
        }
        buffer<std::uint32_t> cache(ctx, before);
        kv_extents const extents{static_cast<index_t>(pages), 4, 2,
                                 static_cast<std::int32_t>(dim * 4 * (is_packed ? 2 : 1))};
        ddtree::kv_tensor layer[2];
        int const count = vllm::make_kv_tensors(layout, order, cache.data(), extents, layer);
        CHECK(count == (is_packed ? 1 : 2));
        buffer<ddtree::kv_tensor> tensors(ctx,
                                          std::vector<ddtree::kv_tensor>(layer, layer + count));
        optional_ids entries(ctx, dtype::i32, t.entries);
        device_batch d(ctx, h);
        ddtree::kv_cache view;
        view.tensors = tensors.data();
        view.num_tensors = count;
        view.table[0] = t.view(entries);
        REQUIRE(ddtree::compact_kv(ctx, h.shape, d.view(), d.path.view(), view));
        CHECK((cache.values() == after));
        CHECK(cache.intact());
      }
    }
  }
}

TEST_CASE("vllm: trees and paths that are none stay within the arrays", "[formats][vllm][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      random_numbers rng(seed);
      host_batch const h = make_batch(rng, {5, 5, 7, {3}, false});
      device_batch d(ctx, h);
      d.spoil(rng);
      optional_ids states(ctx, dtype::i32, make_slots(h));
      id_array ids(ctx, dtype::i32, 25), start(ctx, dtype::i32, 6), output(ctx, dtype::i32, 40);
      id_array from(ctx, dtype::i32, sized(h.shape.requests)),
          to(ctx, dtype::i32, from.values().size());
      vllm::verify_buffers rows;
      rows.query_start_loc = start.view();
      rows.input_ids = ids.view();
      REQUIRE(vllm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), rows));
      vllm::output_buffers out;
      out.output_token_ids = output.view();
      out.state_from = from.view();
      out.state_to = to.view();
      REQUIRE(vllm::write_output_buffers(ctx, h.shape, d.view(), d.tree.view(), d.path.view(),
                                         states.view(), out));
      CHECK(start.values().back() <= 25);
      CHECK((ids.intact() && start.intact() && output.intact() && from.intact() && to.intact()));
    }
  }
}

TEST_CASE("vllm: an argument at fault is named", "[formats][vllm][small]") {
  auto const ctx = ddtree::context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  std::vector<std::int64_t> ids(200);
  vllm::verify_buffers out;
  out.positions = ids.data();
  auto s = vllm::write_verify_buffers(ctx, h.shape, {}, d.tree.view(), out);
  CHECK(s.message == std::string("vllm::write_verify_buffers: batch.cache_len is null"));
  s = vllm::write_verify_buffers(ctx, h.shape, d.view(), {}, out);
  CHECK(s.message == std::string("vllm::write_verify_buffers: tree.depth is null"));
  out.max_rows = -1;
  s = vllm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out);
  CHECK(s.message == std::string("vllm::write_verify_buffers: out.max_rows < 0"));
  s = vllm::write_row_offsets(ctx, h.shape, d.view(), d.tree.view(), {});
  CHECK(s.message == std::string("vllm::write_row_offsets: row_offset is null"));
  vllm::output_buffers output;
  output.state_to = ids.data();
  s = vllm::write_output_buffers(ctx, h.shape, d.view(), d.tree.view(), d.path.view(), {}, output);
  CHECK(s.message == std::string("vllm::write_output_buffers: spec_state_indices is null"));
  output.output_columns = 2;
  s = vllm::write_output_buffers(ctx, h.shape, d.view(), d.tree.view(), d.path.view(), {}, output);
  CHECK(s.message == std::string("vllm::write_output_buffers: out.output_columns < depth + 1"));
}
