// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/tensorrt_llm.hpp"

#include "ddtree/compact.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::dtype;
using ddtree::index_t;
using ddtree::formats::query_rows;
namespace tensorrt_llm = ddtree::formats::tensorrt_llm;

/// Whether the attention kernel lets row i see node j, by its packed words.
bool is_visible(std::vector<std::uint32_t> const& mask, std::size_t row, std::size_t words,
                std::size_t j) {
  return (mask[row * words + j / 32] >> (j % 32) & 1) != 0;
}

void check_mask(ddtree::context const& ctx, host_batch const& h, query_rows rows) {
  CAPTURE(static_cast<int>(rows));
  device_batch d(ctx, h);
  auto const width = sized(h.shape.width()), words = (width + 31) / 32;
  buffer<std::uint32_t> padded(ctx, h.tree.size() * width * words);
  buffer<std::uint32_t> dense(ctx, padded.size());
  id_array lengths(ctx, dtype::i32, h.tree.size()), sums(ctx, dtype::i64, h.tree.size() + 1);
  id_array first_kv(ctx, dtype::i32, h.tree.size());
  tensorrt_llm::verify_buffers out;
  out.generation_lengths = lengths.view();
  out.cu_generation_lengths = sums.view();
  out.first_sparse_mask_offset_kv = first_kv.view();
  out.packed_mask = padded.data();
  out.dense_packed_mask = dense.data();
  REQUIRE(tensorrt_llm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out, {rows}));

  auto const got = padded.values(), got_dense = dense.values();
  std::size_t wrong = 0, row = 0;
  id_list want_sums = {0}, want_lengths, want_first;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    std::size_t const count = rows == query_rows::width ? width : sized(h.nodes(b));
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t j = 0; j < words * 32; ++j) {
        bool const sees = j < width && h.tree[b].sees(static_cast<int>(i), static_cast<int>(j));
        wrong += is_visible(got, b * width + i, words, j) != sees;
        if (i < count) wrong += is_visible(got_dense, row + i, words, j) != sees;
      }
    }
    row += count;
    want_lengths.push_back(static_cast<std::int64_t>(count));
    want_sums.push_back(static_cast<std::int64_t>(row));
    want_first.push_back(h.length(b));
  }
  for (std::size_t i = row * words; i < got_dense.size(); ++i) {
    wrong += got_dense[i] != poisoned<std::uint32_t>();
  }
  CHECK(wrong == 0);
  CHECK(lengths.values() == want_lengths);
  CHECK(sums.values() == want_sums);
  CHECK(first_kv.values() == want_first);
  CHECK((padded.intact() && dense.intact() && lengths.intact() && sums.intact() &&
         first_kv.intact()));
}

void check_nodes(ddtree::context const& ctx, host_batch const& h, dtype type) {
  device_batch d(ctx, h);
  auto const width = sized(h.shape.width()), n = h.tree.size() * width;
  id_array depth(ctx, type, n), token(ctx, type, n), drafts(ctx, type, n - h.tree.size());
  id_array index(ctx, type, n), child(ctx, type, n), sibling(ctx, type, n);
  tensorrt_llm::verify_buffers out;
  out.position_offsets = depth.view();
  out.candidates = token.view();
  out.draft_ids = drafts.view();
  out.retrieve_index = index.view();
  out.retrieve_next_token = child.view();
  out.retrieve_next_sibling = sibling.view();
  REQUIRE(tensorrt_llm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out));
  id_list want[6];
  for (auto const& t : h.tree) {
    for (int i = 0; i < h.width(); ++i) {
      want[0].push_back(static_cast<std::int64_t>(t.path_to(i).size()) - 1);
      want[1].push_back(t.token[sized(i < t.num_nodes ? i : 0)]);
      if (i > 0) want[2].push_back(want[1].back());
      want[3].push_back(i);
      want[4].push_back(t.first_child[sized(i)]);
      want[5].push_back(t.next_sibling[sized(i)]);
    }
  }
  id_array const* const got[] = {&depth, &token, &drafts, &index, &child, &sibling};
  for (std::size_t k = 0; k < 6; ++k) {
    CAPTURE(k);
    CHECK(got[k]->values() == want[k]);
    CHECK(got[k]->intact());
  }
}

id_list expected_paths(host_batch const& h, std::size_t stride) {
  id_list paths;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    std::size_t const end = paths.size() + sized(h.shape.width()) * stride;
    for (int i = 0; i < h.nodes(b); ++i) {
      if (!h.tree[b].is_leaf(i)) continue;
      std::size_t const row = paths.size();
      for (int const node : h.tree[b].path_to(i)) paths.push_back(node);
      paths.resize(row + sized(h.shape.depth) + 1, -1);
      paths.resize(row + stride, untouched);
    }
    while (paths.size() < end) {
      paths.resize(paths.size() + sized(h.shape.depth) + 1, -1);
      paths.resize(paths.size() + stride - sized(h.shape.depth) - 1, untouched);
    }
  }
  return paths;
}

}  // namespace

TEST_CASE("tensorrt_llm: packed words say what each row sees, padded and dense",
          "[formats][tensorrt_llm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    check_mask(ctx, h, query_rows::nodes);
    check_mask(ctx, h, query_rows::width);
  });
}

TEST_CASE("tensorrt_llm: the arrays of its nodes", "[formats][tensorrt_llm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    check_nodes(ctx, h, dtype::i32);
    check_nodes(ctx, h, dtype::i64);
  });
}

TEST_CASE("tensorrt_llm: a path for every leaf", "[formats][tensorrt_llm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (int const more : {0, 3}) {
      index_t const stride = h.shape.depth + 1 + more;
      device_batch d(ctx, h);
      id_array paths(ctx, dtype::i32, sized(h.shape.batch * h.shape.width() * stride), stride);
      tensorrt_llm::verify_buffers out;
      out.paths = paths.view();
      REQUIRE(tensorrt_llm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out));
      CHECK(paths.values() == expected_paths(h, sized(stride)));
      CHECK(paths.intact());
    }
  });
}

TEST_CASE("tensorrt_llm: an acceptance in both conventions, and back",
          "[formats][tensorrt_llm][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (dtype const type : {dtype::i32, dtype::i64}) {
      std::size_t const more = type == dtype::i64 ? 3 : 0;
      std::size_t const batch = h.tree.size(), drafts = sized(h.shape.depth) + more;
      std::size_t const columns = sized(h.shape.depth) + 1 + more;
      device_batch d(ctx, h);
      id_array index(ctx, type, batch * columns), token(ctx, type, batch * columns);
      id_array num(ctx, type, batch), lengths(ctx, type, batch), sums(ctx, type, batch + 1);
      id_array packed(ctx, type, batch * sized(h.shape.depth)), indices(ctx, type, batch * drafts);
      tensorrt_llm::accept_buffers const out{
          index.view(),  token.view(),   static_cast<index_t>(columns),
          num.view(),    lengths.view(), sums.view(),
          packed.view(), indices.view(), static_cast<index_t>(drafts)};
      REQUIRE(tensorrt_llm::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(), out));

      id_list want_index, want_token, want_num, want_lengths, want_sums = {0}, want_packed,
                                                              want_indices;
      for (std::size_t b = 0; b < batch; ++b) {
        host_path const& p = h.path[b];
        want_index.insert(want_index.end(), p.node.begin(), p.node.end());
        want_index.resize((b + 1) * columns, -1);
        want_token.insert(want_token.end(), p.token.begin(), p.token.end());
        want_token.resize((b + 1) * columns, -1);
        want_num.push_back(h.num_accepted(b));
        want_lengths.push_back(static_cast<std::int64_t>(p.token.size()));
        for (std::size_t u = 1; u < p.node.size(); ++u) {
          want_packed.push_back(p.node[u] - 1);
          want_indices.push_back(p.node[u] - 1);
        }
        want_sums.push_back(static_cast<std::int64_t>(want_packed.size()));
        want_indices.resize((b + 1) * drafts, -1);
      }
      want_packed.resize(batch * sized(h.shape.depth), -1);
      CHECK(index.values() == want_index);
      CHECK(token.values() == want_token);
      CHECK(num.values() == want_num);
      CHECK(lengths.values() == want_lengths);
      CHECK(sums.values() == want_sums);
      CHECK(packed.values() == want_packed);
      CHECK(indices.values() == want_indices);
      CHECK((index.intact() && token.intact() && num.intact() && lengths.intact() &&
             sums.intact() && packed.intact() && indices.intact()));

      accepted_buffers again(ctx, h.shape);
      REQUIRE(tensorrt_llm::read_accept_results(
          ctx, h.shape, d.view(),
          {index.view(), token.view(), static_cast<index_t>(columns), num.view()}, again.view()));
      CHECK(again.path.values() == d.path.path.values());
      CHECK(again.token.values() == d.path.token.values());
      CHECK(again.bonus.values() == d.path.bonus.values());
      CHECK(again.num_accepted.values() == d.path.num_accepted.values());
    }
  });
}

TEST_CASE("tensorrt_llm: its KV update and compact_kv move the same rows",
          "[formats][tensorrt_llm][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(31);
    host_batch h = make_batch(rng, {5, 33, 7, {0, 5, 60}, true});
    std::size_t const heads = 2, dim = 3, page = 4, columns = 24;
    auto const requests = sized(h.shape.requests);
    // Offsets count blocks of K or V of any layer; layer 1 of 2 here, so that a request's block k
    // is four apart from the next.
    id_list offsets(requests * 2 * columns);
    for (std::size_t i = 0; i < requests * columns; ++i) {
      std::size_t const request = i / columns, column = i % columns;
      offsets[(request * 2) * columns + column] = static_cast<std::int64_t>(i * 4);
      offsets[(request * 2 + 1) * columns + column] = static_cast<std::int64_t>(i * 4 + 1);
    }
    std::size_t const blocks = requests * columns * 4;
    std::vector<std::uint32_t> before(blocks * heads * page * dim);
    std::iota(before.begin(), before.end(), 0u);
    auto const at = [&](std::size_t request, std::size_t kv, std::size_t token, std::size_t head,
                        std::size_t e) {
      auto const block = sized(offsets[(request * 2 + kv) * columns + token / page]) + 2;
      return ((block * heads + head) * page + token % page) * dim + e;
    };
    // updateKVBlockArrayDraftTokenLocation over the packed list: start = past - rewind.
    auto after = before;
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      if (!h.is_active(b)) continue;
      std::int64_t const past = h.length(b) + h.width(), rewind = h.width() - 1;
      auto const start = sized(past - rewind);
      for (std::size_t t = 0; t + 1 < h.path[b].node.size(); ++t) {
        std::size_t const draft = sized(h.path[b].node[t + 1] - 1);
        for (std::size_t k = 0; k < 2 * heads * dim; ++k) {
          std::size_t const kv = k / heads / dim, head = k / dim % heads, e = k % dim;
          auto const request = sized(h.request[b]);
          after[at(request, kv, start + t, head, e)] =
              before[at(request, kv, start + draft, head, e)];
        }
      }
    }
    buffer<std::uint32_t> pool(ctx, before);
    std::size_t const page_elements = heads * page * dim;
    ddtree::formats::kv_extents const extents{static_cast<index_t>(blocks - 2), 4, 2, 12};
    ddtree::kv_tensor layer[2];
    tensorrt_llm::make_kv_tensors(pool.data() + 2 * page_elements, extents, layer);
    buffer<ddtree::kv_tensor> tensors(ctx, std::vector<ddtree::kv_tensor>(layer, layer + 2));
    buffer<std::int32_t> entries(ctx, std::vector<std::int32_t>(offsets.begin(), offsets.end()));
    device_batch d(ctx, h);
    ddtree::kv_cache cache;
    cache.tensors = tensors.data();
    cache.num_tensors = 2;
    tensorrt_llm::make_kv_tables(entries.data(), static_cast<index_t>(columns), 4, cache.table);
    REQUIRE(ddtree::compact_kv(ctx, h.shape, d.view(), d.path.view(), cache));
    CHECK((pool.values() == after));
    CHECK(d.path.flags.values() == std::vector<std::uint32_t>(h.tree.size(), 0));
    CHECK(pool.intact());
  }
}

TEST_CASE("tensorrt_llm: trees and paths that are none stay within the arrays",
          "[formats][tensorrt_llm][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      random_numbers rng(seed);
      host_batch const h = make_batch(rng, {5, 33, 7, {3}, false});
      device_batch d(ctx, h);
      d.spoil(rng);
      id_array paths(ctx, dtype::i32, 5 * 33 * 8), packed(ctx, dtype::i32, 5 * 7);
      id_array index(ctx, dtype::i32, 5 * 8), indices(ctx, dtype::i32, 5 * 7);
      buffer<std::uint32_t> mask(ctx, 5 * 33 * 2);
      tensorrt_llm::verify_buffers verify;
      verify.paths = paths.view();
      verify.dense_packed_mask = mask.data();
      REQUIRE(tensorrt_llm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), verify));
      tensorrt_llm::accept_buffers accept;
      accept.accept_index = index.view();
      accept.paths_offsets = packed.view();
      accept.accepted_indices = indices.view();
      REQUIRE(tensorrt_llm::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(), accept));
      for (std::int64_t const node : paths.values()) CHECK((node >= -1 && node < 33));
      for (std::int64_t const node : index.values()) CHECK((node >= -1 && node < 33));
      for (std::int64_t const draft : packed.values()) CHECK((draft >= -1 && draft < 32));
      CHECK((paths.intact() && packed.intact() && index.intact() && indices.intact() &&
             mask.intact()));
    }
  }
}

TEST_CASE("tensorrt_llm: an argument at fault is named", "[formats][tensorrt_llm][small]") {
  auto const ctx = ddtree::context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  std::vector<std::int32_t> ids(400);
  tensorrt_llm::verify_buffers out;
  out.first_sparse_mask_offset_kv = ids.data();
  auto s = tensorrt_llm::write_verify_buffers(ctx, h.shape, {}, d.tree.view(), out);
  CHECK(s.message == std::string("tensorrt_llm::write_verify_buffers: batch.cache_len is null"));
  out.paths = {ids.data(), dtype::i32, 3};
  s = tensorrt_llm::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out);
  CHECK(s.message ==
        std::string("tensorrt_llm::write_verify_buffers: out.paths.stride shorter than a row"));
  tensorrt_llm::accept_buffers accept;
  accept.indices_columns = 2;
  s = tensorrt_llm::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(), accept);
  CHECK(s.message ==
        std::string("tensorrt_llm::write_accept_buffers: out.indices_columns < depth"));
  s = tensorrt_llm::read_accept_results(ctx, h.shape, d.view(), {ids.data()}, d.path.view());
  CHECK(s.message == std::string("tensorrt_llm::read_accept_results: in.accept_token is null"));
}
