// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/sglang.hpp"

#include "ddtree/accept.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::dtype;
using ddtree::errc;
using ddtree::index_t;
namespace sglang = ddtree::formats::sglang;
using sglang::tree_mask;

constexpr index_t inactive_len = 3;

/// The flat mask as SGLang's build kernel leaves it over a buffer of 1, one element at a time; -1
/// where a call that writes the tree's part only writes nothing.
std::vector<int> flat_mask(host_batch const& h, bool has_context, bool tree_part_only) {
  std::vector<int> mask;
  int const width = h.width();
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    std::int64_t const context = has_context ? h.length(b, inactive_len) : 0;
    for (int i = 0; i < width; ++i) {
      std::vector<char> seen(sized(width), 0);
      for (int const j : h.tree[b].path_to(i)) seen[sized(j)] = 1;
      mask.insert(mask.end(), sized(context), tree_part_only ? -1 : 1);
      mask.insert(mask.end(), seen.begin(), seen.end());
    }
  }
  return mask;
}

void check_flat_mask(ddtree::context const& ctx, host_batch const& h, tree_mask mode,
                     bool tree_part_only, std::size_t offset) {
  CAPTURE(static_cast<int>(mode), tree_part_only, offset);
  std::vector<int> const expected = flat_mask(h, mode == tree_mask::full, tree_part_only);
  device_batch d(ctx, h);
  buffer<std::uint8_t> mask(ctx, expected.size() + offset + 5);
  id_array indptr(ctx, dtype::i64, h.tree.size() + 1);
  sglang::verify_buffers out;
  out.custom_mask = mask.data() + offset;
  out.custom_mask_bytes = static_cast<index_t>(expected.size());
  out.mode = mode;
  out.tree_part_only = tree_part_only;
  out.mask_indptr = indptr.view();
  auto const s =
      sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), {}, out, {inactive_len});
  REQUIRE(s.message == std::string());

  std::vector<std::uint8_t> whole(mask.size(), poisoned<std::uint8_t>());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] >= 0) whole[offset + i] = static_cast<std::uint8_t>(expected[i]);
  }
  CHECK((mask.values() == whole));
  CHECK(mask.intact());

  id_list ends = {0};
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    std::int64_t const context = mode == tree_mask::full ? h.length(b, inactive_len) : 0;
    ends.push_back(ends.back() + h.shape.width() * (context + h.shape.width()));
  }
  CHECK(indptr.values() == ends);
}

/// The rows of the bit-packed mask, as words of the engine's size.
template <class Word>
void check_packed_mask(ddtree::context const& ctx, host_batch const& h) {
  device_batch d(ctx, h);
  buffer<Word> mask(ctx, sized(h.shape.batch * h.shape.width()));
  sglang::verify_buffers out;
  out.custom_mask = mask.data();
  out.custom_mask_bytes = static_cast<index_t>(mask.bytes());
  out.mode = tree_mask::qlen_only_bitpacking;
  REQUIRE(sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), {}, out));
  std::vector<Word> expected;
  for (auto const& tree : h.tree) {
    for (int i = 0; i < h.width(); ++i) {
      std::uint32_t word = 0;
      for (int const j : tree.path_to(i)) word |= 1u << j;
      expected.push_back(static_cast<Word>(word));
    }
  }
  CHECK(mask.values() == expected);
  CHECK(mask.intact());
}

/// The node arrays, [batch, width] with rows `stride` apart.
struct node_arrays {
  node_arrays(ddtree::context const& ctx, dtype type, host_batch const& h, index_t row_stride)
      : stride(row_stride) {
    for (int k = 0; k < 6; ++k) {
      arrays.emplace_back(ctx, type, sized(h.shape.batch * stride), stride);
    }
  }
  sglang::verify_buffers view() {
    sglang::verify_buffers out;
    out.draft_token = arrays[0].view();
    out.positions = arrays[1].view();
    out.retrieve_index = arrays[2].view();
    out.retrieve_next_token = arrays[3].view();
    out.retrieve_next_sibling = arrays[4].view();
    out.retrieve_parent_token = arrays[5].view();
    return out;
  }
  std::vector<id_list> values() const {
    std::vector<id_list> all;
    for (auto const& a : arrays) all.push_back(a.values());
    return all;
  }
  bool intact() const {
    return std::all_of(arrays.begin(), arrays.end(), [](auto const& a) { return a.intact(); });
  }

  index_t stride;
  std::vector<id_array> arrays;
};

std::vector<id_list> expected_nodes(host_batch const& h, index_t stride) {
  std::vector<id_list> all(6, id_list(sized(h.shape.batch * stride), untouched));
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    host_tree const& t = h.tree[b];
    for (int i = 0; i < h.width(); ++i) {
      std::size_t const at = b * sized(stride) + sized(i);
      int links[3] = {-1, -1, 0};  // child, sibling, parent, found by looking at every node
      for (int j = t.num_nodes - 1; j > 0; --j) {
        if (t.parent[sized(j)] == i) links[0] = j;
        if (i > 0 && j > i && t.parent[sized(j)] == t.parent[sized(i)] && i < t.num_nodes)
          links[1] = j;
      }
      if (i > 0 && i < t.num_nodes) links[2] = t.parent[sized(i)];
      auto const depth = static_cast<std::int64_t>(t.path_to(i).size()) - 1;
      all[0][at] = t.token[sized(i < t.num_nodes ? i : 0)];
      all[1][at] = h.is_active(b) ? h.length(b) + depth : 0;
      all[2][at] = static_cast<std::int64_t>(b) * h.width() + i;
      for (int k = 0; k < 3; ++k) all[sized(3 + k)][at] = links[k];
    }
  }
  return all;
}

void check_slots(ddtree::context const& ctx, host_batch const& h, index_t columns) {
  CAPTURE(columns);
  device_batch d(ctx, h);
  id_list const slots = make_slots(h);
  optional_ids out_cache_loc(ctx, dtype::i64, slots);
  auto const rows = sized(h.shape.batch * h.shape.width());
  id_array kv_slots(ctx, dtype::i32, rows * sized(columns)), kv_lens(ctx, dtype::i32, rows);
  sglang::verify_buffers out;
  out.kv_slots = kv_slots.view();
  out.kv_columns = columns;
  out.kv_lens = kv_lens.view();
  REQUIRE(sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), out_cache_loc.view(),
                                       out));
  id_list expected, lens;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    for (int i = 0; i < h.width(); ++i) {
      id_list row;
      for (int j = 0; j < h.nodes(b) && i < h.nodes(b); ++j) {
        if (h.tree[b].sees(i, j)) row.push_back(slots[b * sized(h.width()) + sized(j)]);
      }
      lens.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(row.size()), 1));
      row.resize(sized(columns), 0);
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  CHECK(kv_slots.values() == expected);
  CHECK(kv_lens.values() == lens);
  CHECK((kv_slots.intact() && kv_lens.intact()));
}

/// SGLang's greedy verification, over its own arrays: from the root, go to the first sibling whose
/// token the target predicts, as long as there is one.
struct greedy_result {
  id_list accept_index;  // global rows
  id_list predicts;      // [batch * width]
};

greedy_result verify_tree_greedy(std::size_t b, std::size_t width, id_list const& candidates,
                                 id_list const& index, id_list const& next_token,
                                 id_list const& next_sibling, std::vector<int> const& target,
                                 std::size_t steps) {
  greedy_result r;
  r.predicts.assign(width, 0);
  std::int64_t last = 0;
  r.accept_index.push_back(index[b * width]);
  while (r.accept_index.size() <= steps) {
    std::int64_t child = next_token[b * width + sized(last)];
    int const wanted = target[b * width + sized(last)];
    while (child != -1 && candidates[b * width + sized(child)] != wanted) {
      child = next_sibling[b * width + sized(child)];
    }
    if (child == -1) break;
    r.predicts[sized(last)] = wanted;
    r.accept_index.push_back(index[b * width + sized(child)]);
    last = child;
  }
  r.predicts[sized(last)] = target[b * width + sized(last)];
  return r;
}

}  // namespace

TEST_CASE("sglang: the flat mask in its three forms", "[formats][sglang][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    check_flat_mask(ctx, h, tree_mask::full, false, 3);
    check_flat_mask(ctx, h, tree_mask::full, true, 16);
    check_flat_mask(ctx, h, tree_mask::qlen_only, false, 1);
  });
}

TEST_CASE("sglang: a mask of 70,000 context columns over 1,025 rows", "[formats][sglang]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(99);
    host_batch const h = make_batch(rng, {1, 1025, 31, {70000}, false});
    check_flat_mask(ctx, h, tree_mask::full, false, 7);
  }
}

TEST_CASE("sglang: the mask ends with its buffer", "[formats][sglang][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(5);
    host_batch const h = make_batch(rng, {4, 9, 3, {5, 0, 40}, false});
    for (bool const tree_part_only : {false, true}) {
      auto const whole = flat_mask(h, true, tree_part_only);
      for (std::size_t bytes = 0; bytes <= whole.size(); bytes += 37) {
        device_batch d(ctx, h);
        buffer<std::uint8_t> mask(ctx, bytes);
        sglang::verify_buffers out;
        out.custom_mask = mask.data();
        out.custom_mask_bytes = static_cast<index_t>(bytes);
        out.tree_part_only = tree_part_only;
        REQUIRE(sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), {}, out));
        auto const got = mask.values();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bytes; ++i) {
          wrong += got[i] != (whole[i] < 0 ? poisoned<std::uint8_t>() : whole[i]);
        }
        CHECK(wrong == 0);
        CHECK(mask.intact());
      }
    }
  }
}

TEST_CASE("sglang: the bit-packed mask has 1, 2 or 4 bytes a row", "[formats][sglang][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    if (h.width() <= 8) {
      check_packed_mask<std::uint8_t>(ctx, h);
    } else if (h.width() <= 16) {
      check_packed_mask<std::uint16_t>(ctx, h);
    } else if (h.width() <= 32) {
      check_packed_mask<std::uint32_t>(ctx, h);
    }
  });
}

TEST_CASE("sglang: the arrays of a verify batch", "[formats][sglang][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (dtype const type : {dtype::i32, dtype::i64}) {
      index_t const stride = h.shape.width() + (type == dtype::i32 ? 5 : 0);
      device_batch d(ctx, h);
      node_arrays arrays(ctx, type, h, stride);
      REQUIRE(
          sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), {}, arrays.view()));
      CHECK(arrays.values() == expected_nodes(h, stride));
      CHECK(arrays.intact());
    }
  });
}

TEST_CASE("sglang: slots that make a decode kernel a tree kernel", "[formats][sglang][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    check_slots(ctx, h, h.shape.width());
    check_slots(ctx, h, std::min<index_t>(h.shape.depth + 1, h.shape.width()));
  });
}

TEST_CASE("sglang: its greedy walk over the arrays gives accept_tokens' path",
          "[formats][sglang]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(2026);
    for (int trial = 0; trial < 40; ++trial) {
      host_batch h = make_batch(rng, {250, rng.between(1, 70), rng.between(0, 9), {11}, false});
      device_batch d(ctx, h);
      node_arrays arrays(ctx, dtype::i64, h, h.shape.width());
      REQUIRE(
          sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(), {}, arrays.view()));
      // The target follows a child more often than not.
      std::vector<int> target;
      for (auto const& t : h.tree) {
        for (int i = 0; i < h.width(); ++i) {
          int child = t.first_child[sized(i)];
          while (child >= 0 && t.next_sibling[sized(child)] >= 0 && rng.one_in(2)) {
            child = t.next_sibling[sized(child)];
          }
          target.push_back(child >= 0 && !rng.one_in(5) ? t.token[sized(child)]
                                                        : rng.between(0, 999));
        }
      }
      buffer<std::int32_t> target_token(ctx, target);
      REQUIRE(ddtree::accept_tokens(ctx, h.shape, d.view(), d.tree.view(), target_token.data(),
                                    d.path.view()));
      auto const width = sized(h.shape.width());
      auto const rows = sized(h.shape.depth + 1);
      id_array predicts(ctx, dtype::i32, h.tree.size() * width);
      id_array accept_index(ctx, dtype::i32, h.tree.size() * rows);
      id_array count(ctx, dtype::i32, h.tree.size());
      sglang::accept_buffers out;
      out.predicts = predicts.view();
      out.accept_index = accept_index.view();
      out.accept_token_num = count.view();
      REQUIRE(sglang::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(), {}, out));
      auto const nodes = arrays.values();
      id_list expected_index, expected_count, expected_predicts;
      for (std::size_t b = 0; b < h.tree.size(); ++b) {
        auto r = verify_tree_greedy(b, width, nodes[0], nodes[2], nodes[3], nodes[4], target,
                                    sized(h.shape.depth));
        expected_count.push_back(static_cast<std::int64_t>(r.accept_index.size()) - 1);
        r.accept_index.resize(rows, -1);
        expected_index.insert(expected_index.end(), r.accept_index.begin(), r.accept_index.end());
        expected_predicts.insert(expected_predicts.end(), r.predicts.begin(), r.predicts.end());
      }
      CHECK(accept_index.values() == expected_index);
      CHECK(count.values() == expected_count);
      CHECK(predicts.values() == expected_predicts);

      // And back: SGLang's results read as a path.
      accepted_buffers again(ctx, h.shape);
      REQUIRE(sglang::read_accept_results(ctx, h.shape, d.view(),
                                          {predicts.view(), accept_index.view(), 0, count.view()},
                                          again.view()));
      CHECK(again.path.values() == d.path.path.values());
      CHECK(again.token.values() == d.path.token.values());
      CHECK(again.bonus.values() == d.path.bonus.values());
      CHECK(again.num_accepted.values() == d.path.num_accepted.values());
      CHECK(again.flags.values() == std::vector<std::uint32_t>(h.tree.size(), 0));
    }
  }
}

TEST_CASE("sglang: an acceptance, its slot moves and the slots that it frees",
          "[formats][sglang][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    for (index_t const page_size : {1, 4, 16}) {
      CAPTURE(page_size);
      device_batch d(ctx, h);
      auto const width = sized(h.shape.width());
      auto const rows = sized(h.shape.depth + 1);
      std::size_t const columns = rows + 3;
      id_list const slots = make_slots(h);
      optional_ids out_cache_loc(ctx, dtype::i64, slots);
      id_array predicts(ctx, dtype::i32, h.tree.size() * width);
      id_array accept_index(ctx, dtype::i32, h.tree.size() * columns);
      id_array count(ctx, dtype::i32, h.tree.size());
      id_array tgt(ctx, dtype::i64, h.tree.size() * rows),
          src(ctx, dtype::i64, h.tree.size() * rows);
      buffer<std::uint8_t> evict(ctx, h.tree.size() * width);
      sglang::accept_buffers out;
      out.predicts = predicts.view();
      out.accept_index = accept_index.view();
      out.accept_columns = static_cast<index_t>(columns);
      out.accept_token_num = count.view();
      out.tgt_cache_loc = tgt.view();
      out.src_cache_loc = src.view();
      out.evict_mask = evict.data();
      out.page_size = page_size;
      REQUIRE(sglang::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(),
                                           out_cache_loc.view(), out));

      id_list want_predicts(h.tree.size() * width, 0), want_index, want_count, want_tgt, want_src;
      std::vector<std::uint8_t> want_evict(h.tree.size() * width, 0);
      for (std::size_t b = 0; b < h.tree.size(); ++b) {
        host_path const& p = h.path[b];
        want_count.push_back(h.num_accepted(b));
        id_list row;
        std::vector<bool> kept(width, !h.is_active(b));
        for (std::size_t u = 0; u < p.node.size(); ++u) {
          std::size_t const at = b * width + sized(p.node[u]);
          row.push_back(static_cast<std::int64_t>(at));
          want_predicts[at] = p.token[u];
          want_src.push_back(slots[at]);
          want_tgt.push_back(slots[b * width + u]);
          if (page_size == 1) kept[sized(p.node[u])] = true;
        }
        row.resize(columns, -1);
        want_index.insert(want_index.end(), row.begin(), row.end());
        for (std::size_t i = 0; i < width; ++i) {
          // The first slot of a page that no committed token stands in, and all behind it.
          std::int64_t const committed = h.length(b) + static_cast<std::int64_t>(p.node.size());
          std::int64_t const page = (h.length(b) + static_cast<std::int64_t>(i)) / page_size;
          bool const on_page = page_size > 1 && page <= (committed - 1) / page_size;
          want_evict[b * width + i] = !kept[i] && !on_page;
        }
      }
      want_tgt.resize(h.tree.size() * rows, 0);
      want_src.resize(h.tree.size() * rows, 0);
      CHECK(predicts.values() == want_predicts);
      CHECK(accept_index.values() == want_index);
      CHECK(count.values() == want_count);
      CHECK(tgt.values() == want_tgt);
      CHECK(src.values() == want_src);
      CHECK(evict.values() == want_evict);
      CHECK((predicts.intact() && accept_index.intact() && count.intact() && tgt.intact() &&
             src.intact() && evict.intact()));
    }
  });
}

TEST_CASE("sglang: results that make no path are held to one", "[formats][sglang][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    ddtree::round_shape shape;
    shape.batch = 5;
    shape.vocab = 100;
    shape.depth = 3;
    shape.budget = 7;
    optional_ids request(ctx, dtype::i32, id_list{0, 1, 2, -1, 4});
    id_list tokens(40, 6);
    tokens[8 + 2] = 100;
    optional_ids predicts(ctx, dtype::i32, tokens);
    optional_ids index(ctx, dtype::i32, id_list{0,  2,  2,  5,   // does not rise
                                                8,  10, 15, -1,  // a token outside the vocabulary
                                                16, 17, 24, -1,  // a row of another request
                                                24, 25, 26, 27,  // inactive
                                                32, -1, -1, -1});
    optional_ids count(ctx, dtype::i32, id_list{3, 2, 9, 3, -1});
    accepted_buffers out(ctx, shape);
    REQUIRE(sglang::read_accept_results(ctx, shape, {{}, request.view()},
                                        {predicts.view(), index.view(), 0, count.view()},
                                        out.view()));
    CHECK(out.path.values() == std::vector<int>{0,  2,  -1, -1, 0,  2,  7,  -1, 0,  1,
                                                -1, -1, -1, -1, -1, -1, -1, -1, -1, -1});
    CHECK(out.token.values() == std::vector<int>{6,  6,  -1, -1, 6,  0,  6,  -1, 6,  6,
                                                 -1, -1, -1, -1, -1, -1, -1, -1, -1, -1});
    CHECK(out.num_accepted.values() == std::vector<int>{1, 2, 1, -1, -1});
    CHECK(out.bonus.values() == std::vector<int>{6, 6, 6, -1, -1});
    auto const bad = ddtree::flag::id_out_of_range;
    CHECK(out.flags.values() == std::vector<std::uint32_t>{bad, bad, bad, 0, 0});
    CHECK(out.intact());
  }
}

TEST_CASE("sglang: lengths that no cache has stay within the buffers", "[formats][sglang][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    random_numbers rng(3);
    host_batch const h = make_batch(rng, {40, 65, 7, {5}, false});
    device_batch d(ctx, h);
    id_list lengths(sized(h.shape.requests), std::int64_t{1} << 40);
    lengths[sized(h.request[0])] = 9;
    optional_ids cache_len(ctx, dtype::i64, lengths);
    buffer<std::uint8_t> mask(ctx, 20000);
    sglang::verify_buffers out;
    out.custom_mask = mask.data();
    out.custom_mask_bytes = static_cast<index_t>(mask.size());
    for (bool const tree_part_only : {false, true}) {
      out.tree_part_only = tree_part_only;
      REQUIRE(sglang::write_verify_buffers(ctx, h.shape, {cache_len.view(), d.request.data()},
                                           d.tree.view(), {}, out));
      CHECK(mask.intact());
    }
  }
}

TEST_CASE("sglang: trees and paths that are none stay within the arrays",
          "[formats][sglang][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      random_numbers rng(seed);
      host_batch const h = make_batch(rng, {5, 33, 7, {3}, false});
      device_batch d(ctx, h);
      d.spoil(rng);
      auto const rows = sized(h.shape.batch * h.shape.width());
      optional_ids out_cache_loc(ctx, dtype::i64, make_slots(h));
      id_array slots(ctx, dtype::i32, rows * 33), lens(ctx, dtype::i32, rows);
      sglang::verify_buffers verify;
      verify.kv_slots = slots.view();
      verify.kv_lens = lens.view();
      REQUIRE(sglang::write_verify_buffers(ctx, h.shape, d.view(), d.tree.view(),
                                           out_cache_loc.view(), verify));
      id_array predicts(ctx, dtype::i32, rows), index(ctx, dtype::i32, 40);
      id_array tgt(ctx, dtype::i64, 40), src(ctx, dtype::i64, 40);
      sglang::accept_buffers accept;
      accept.predicts = predicts.view();
      accept.accept_index = index.view();
      accept.tgt_cache_loc = tgt.view();
      accept.src_cache_loc = src.view();
      REQUIRE(sglang::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(),
                                           out_cache_loc.view(), accept));
      for (std::int64_t const i : index.values()) CHECK((i >= -1 && i < 5 * 33));
      for (std::int64_t const n : lens.values()) CHECK((n >= 1 && n <= 8));
      CHECK((slots.intact() && lens.intact() && predicts.intact() && index.intact() &&
             tgt.intact() && src.intact()));
    }
  }
}

TEST_CASE("sglang: an argument at fault is named", "[formats][sglang][small]") {
  auto const ctx = ddtree::context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  buffer<std::uint8_t> bytes(ctx, 64);
  std::vector<std::int64_t> ids(200);
  auto const verify = [&](sglang::verify_buffers const& out, ddtree::batch_view batch,
                          sglang::verify_options options = {}) {
    return std::string(
        sglang::write_verify_buffers(ctx, h.shape, batch, d.tree.view(), {}, out, options).message);
  };
  sglang::verify_buffers mask;
  mask.custom_mask = bytes.data();
  mask.custom_mask_bytes = 64;
  std::string const call = "sglang::write_verify_buffers: ";
  CHECK(verify(mask, {}) == call + "batch.cache_len is null");
  mask.mode = tree_mask::qlen_only_bitpacking;
  CHECK(verify(mask, d.view()) == call + "out.mode: more than 32 rows do not fit a word");
  mask.mode = static_cast<tree_mask>(3);
  CHECK(verify(mask, d.view()) == call + "out.mode is none");
  CHECK(verify({}, d.view(), {-1}) == call + "options.inactive_len outside [0, 2^40]");
  sglang::verify_buffers slots;
  slots.kv_slots = ids.data();
  CHECK(verify(slots, d.view()) == call + "out_cache_loc is null");
  slots.kv_columns = 3;
  CHECK(verify(slots, d.view()) == call + "out.kv_columns < min(depth + 1, width)");
  sglang::verify_buffers narrow;
  narrow.positions = {ids.data(), dtype::i64, 32};
  CHECK(verify(narrow, d.view()) == call + "out.positions.stride shorter than a row");

  sglang::accept_buffers accept;
  accept.accept_index = ids.data();
  accept.accept_columns = 3;
  auto s = sglang::write_accept_buffers(ctx, h.shape, d.view(), d.path.view(), {}, accept);
  CHECK(s.message == std::string("sglang::write_accept_buffers: out.accept_columns < depth + 1"));
  s = sglang::read_accept_results(ctx, h.shape, d.view(), {}, d.path.view());
  CHECK(s.message == std::string("sglang::read_accept_results: in.predicts is null"));
  s = sglang::read_accept_results(ctx.with_variant("accept"), h.shape, d.view(), {}, d.path.view());
  CHECK(s.code == errc::invalid_argument);
}

TEST_CASE("sglang: an empty batch writes the totals alone", "[formats][sglang][small]") {
  for (ddtree::context const& ctx : round_contexts()) {
    ddtree::round_shape shape;
    shape.batch = 0;
    shape.vocab = 10;
    id_array indptr(ctx, dtype::i64, 1);
    optional_ids lengths(ctx, dtype::i32, id_list{});
    sglang::verify_buffers out;
    out.mask_indptr = indptr.view();
    REQUIRE(sglang::write_verify_buffers(ctx, shape, {indptr.view(), {}}, {}, {}, out));
    CHECK(indptr.values() == id_list{0});
  }
}
