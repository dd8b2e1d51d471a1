// SPDX-License-Identifier: Apache-2.0
// The calls take host memory alone: with CUDA there is only the attention mask to test.
#include "ddtree/formats/llama_cpp.hpp"

#include "ddtree/accept.hpp"
#include "ddtree/round.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

#include <set>

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
using ddtree::context;
using ddtree::dtype;
using ddtree::errc;
using ddtree::index_t;
namespace llama_cpp = ddtree::formats::llama_cpp;

struct host_arrays {
  explicit host_arrays(host_batch const& h, int per_request)
      : rows(sized(h.shape.batch * h.shape.width())),
        row_offset(h.tree.size() + 1, -7),
        token(rows, -7),
        pos(rows, -7),
        n_seq_id(rows, -7),
        num_nodes(h.tree.size(), -7),
        num_sequences(h.tree.size(), -7),
        seq_id(rows, nullptr),
        logits(rows, 0),
        list(sized(llama_cpp::seq_id_capacity(h.shape, {per_request})) + 1, -7) {}

  llama_cpp::batch_arrays view() {
    return {row_offset.data(), token.data(), pos.data(),       n_seq_id.data(),     seq_id.data(),
            logits.data(),     list.data(),  num_nodes.data(), num_sequences.data()};
  }
  std::set<int> sequences(std::size_t row) const {
    return {seq_id[row], seq_id[row] + n_seq_id[row]};
  }

  std::size_t rows;
  std::vector<std::int32_t> row_offset, token, pos, n_seq_id, num_nodes, num_sequences;
  std::vector<std::int32_t*> seq_id;
  std::vector<std::int8_t> logits;
  std::vector<std::int32_t> list;
};

/// Leaves of the first n nodes of a tree.
int count_leaves(host_tree const& t, int n) {
  int leaves = 0;
  for (int i = 0; i < n; ++i) {
    bool has_child = false;
    for (int j = i + 1; j < n; ++j) has_child = has_child || t.parent[sized(j)] == i;
    leaves += !has_child;
  }
  return leaves;
}

/// The rows of a batch as the cache reads them: a query sees the cells that have its first
/// sequence, at positions up to its own. Any other of its sequences must do as well.
void check_visibility(host_batch const& h, host_arrays const& a) {
  auto const rows = sized(a.row_offset.back());
  std::vector<std::size_t> owner(rows);
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    for (int r = a.row_offset[b]; r < a.row_offset[b + 1]; ++r) owner[sized(r)] = b;
  }
  std::size_t wrong = 0;
  for (std::size_t q = 0; q < rows; ++q) {
    for (std::size_t cell = 0; cell < rows; ++cell) {
      int const i = static_cast<int>(q) - a.row_offset[owner[q]];
      int const j = static_cast<int>(cell) - a.row_offset[owner[cell]];
      bool const wanted = owner[q] == owner[cell] && h.tree[owner[q]].sees(i, j);
      for (int const s : a.sequences(q)) {
        bool const visible = a.sequences(cell).count(s) != 0 && a.pos[cell] <= a.pos[q];
        wrong += visible != wanted;
      }
    }
  }
  CHECK(wrong == 0);
}

void check_batch(host_batch const& h, int per_request) {
  CAPTURE(per_request);
  auto const ctx = context::cpu();
  device_batch d(ctx, h);
  host_arrays a(h, per_request);
  auto const s =
      llama_cpp::write_batch(ctx, h.shape, d.view(), d.tree.view(), {per_request}, a.view());
  REQUIRE(s.message == std::string());
  int row = 0;
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    host_tree const& t = h.tree[b];
    CHECK(a.row_offset[b] == row);
    int const n = a.num_nodes[b];
    if (!h.is_active(b)) {
      CHECK((n == 0 && a.num_sequences[b] == 0));
      continue;
    }
    // The longest prefix that fits.
    CHECK(count_leaves(t, n) <= per_request);
    CHECK((n == t.num_nodes || count_leaves(t, n + 1) > per_request));
    CHECK(a.num_sequences[b] == count_leaves(t, n));
    for (int i = 0; i < n; ++i, ++row) {
      auto const at = sized(row);
      CHECK(a.token[at] == t.token[sized(i)]);
      CHECK(a.pos[at] == h.length(b) + t.depth[sized(i)]);
      CHECK(a.logits[at] == 1);
      for (int const id : a.sequences(at)) {
        CHECK(id / per_request == h.request[b]);
        CHECK(id % per_request < a.num_sequences[b]);
      }
    }
  }
  CHECK(a.row_offset.back() == row);
  CHECK(a.list.back() == -7);
  check_visibility(h, a);
}

/// Cells of a unified cache: position and sequences.
struct cell {
  int pos;
  std::set<int> seq;
};

void seq_cp(std::vector<cell>& cells, int from, int to) {
  for (cell& c : cells) {
    if (c.seq.count(from) != 0) c.seq.insert(to);
  }
}

void seq_rm(std::vector<cell>& cells, int seq, int begin) {
  for (cell& c : cells) {
    if (c.pos >= begin) c.seq.erase(seq);
  }
}

/// A round on a cache, by the header's words; what the main sequence holds must be the context and
/// the path.
void check_commit(host_batch const& h, int per_request, host_arrays const& a,
                  std::vector<int> const& winner, std::vector<int> const& end,
                  std::vector<host_path> const& path) {
  for (std::size_t b = 0; b < h.tree.size(); ++b) {
    if (!h.is_active(b)) {
      CHECK((winner[b] == -1 && end[b] == -1));
      continue;
    }
    int const main = static_cast<int>(h.request[b]) * per_request;
    std::vector<cell> cells;
    for (int p = 0; p < h.length(b); ++p) cells.push_back({p, {main}});
    for (int s = 1; s < a.num_sequences[b]; ++s) seq_cp(cells, main, main + s);
    std::size_t const context = cells.size();
    for (int i = 0; i < a.num_nodes[b]; ++i) {
      auto const row = sized(a.row_offset[b] + i);
      cells.push_back({a.pos[row], a.sequences(row)});
    }
    for (int s = main; s < main + a.num_sequences[b]; ++s) {
      if (s != winner[b]) seq_rm(cells, s, 0);
    }
    seq_rm(cells, winner[b], end[b]);
    if (winner[b] != main) {
      seq_cp(cells, winner[b], main);
      seq_rm(cells, winner[b], 0);
    }
    std::set<std::size_t> kept, wanted;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c < context) wanted.insert(c);
      if (!cells[c].seq.empty()) kept.insert(c);
      if (!cells[c].seq.empty()) CHECK(cells[c].seq == std::set<int>{main});
    }
    for (int const node : path[b].node) wanted.insert(context + sized(node));
    CHECK(kept == wanted);
  }
}

}  // namespace

TEST_CASE("llama_cpp: sequences and positions make the ancestor mask",
          "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  unsigned seed = 0;
  for (batch_recipe recipe : recipes()) {
    recipe.width = std::min(recipe.width, 65);
    for (auto& length : recipe.lengths) length = std::min<std::int64_t>(length, 300);
    random_numbers rng(++seed);
    CAPTURE(describe(recipe));
    host_batch const h = make_batch(rng, recipe);
    for (int const per_request : {1, 2, 7, 64, 256}) check_batch(h, per_request);
  }
}

TEST_CASE("llama_cpp: a tree of 1,025 nodes is cut to 256 leaves", "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  random_numbers rng(3);
  host_batch h = make_batch(rng, {1, 1025, 31, {70000}, false});
  h.tree[0] = make_tree(rng, 1025, 31, 1000, tree_kind::full);
  REQUIRE(count_leaves(h.tree[0], 1025) > 256);
  check_batch(h, 256);
}

TEST_CASE("llama_cpp: the winner holds the context and the accepted path",
          "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  auto const ctx = context::cpu();
  for (unsigned seed = 0; seed < 60; ++seed) {
    random_numbers rng(seed);
    host_batch h = make_batch(rng, {5, rng.between(1, 40), rng.between(1, 9), {0, 3, 20}, true});
    int const per_request = rng.between(1, 12);
    CAPTURE(seed, per_request);
    device_batch d(ctx, h);
    host_arrays a(h, per_request);
    REQUIRE(llama_cpp::write_batch(ctx, h.shape, d.view(), d.tree.view(), {per_request}, a.view()));
    // The target follows the tree wherever it is, so that cuts are met.
    std::vector<std::int32_t> target;
    for (auto const& t : h.tree) {
      for (int i = 0; i < h.width(); ++i) {
        int child = t.first_child[sized(i)];
        while (child >= 0 && t.next_sibling[sized(child)] >= 0 && rng.one_in(2)) {
          child = t.next_sibling[sized(child)];
        }
        target.push_back(child >= 0 ? t.token[sized(child)] : rng.between(0, 999));
      }
    }
    ddtree::draft_tree cut = d.tree.view();
    cut.num_nodes = a.num_nodes.data();
    REQUIRE(ddtree::accept_tokens(ctx, h.shape, d.view(), cut, target.data(), d.path.view()));
    std::vector<host_path> path(h.tree.size());
    auto const nodes = d.path.path.values();
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      for (int u = 0; u <= d.path.num_accepted.values()[b]; ++u) {
        int const node = nodes[b * sized(h.shape.depth + 1) + sized(u)];
        REQUIRE(node < a.num_nodes[b]);
        path[b].node.push_back(node);
      }
    }
    std::vector<int> winner(h.tree.size()), end(h.tree.size());
    REQUIRE(llama_cpp::write_commit(ctx, h.shape, d.view(), d.path.view(), {per_request}, a.view(),
                                    {winner.data(), end.data()}));
    check_commit(h, per_request, a, winner, end, path);
  }
}

TEST_CASE("llama_cpp: ggml's attention mask", "[formats][llama_cpp][small]") {
  CHECK(llama_cpp::padded_cells(1, false) == 32);
  CHECK(llama_cpp::padded_cells(257, true) == 512);
  for (context const& ctx : round_contexts()) {
    random_numbers rng(8);
    host_batch const h = make_batch(rng, {1, 33, 7, {150}, false});
    device_batch d(ctx, h);
    for (bool const flash : {false, true}) {
      auto const cells = sized(llama_cpp::padded_cells(150 + 33, flash));
      std::size_t const rows = 64;  // as a version that pads the rows has them
      buffer<std::uint16_t> f16(ctx, flash ? rows * cells : 0);
      buffer<std::uint32_t> f32(ctx, flash ? 0 : rows * cells);
      void* const data = flash ? static_cast<void*>(f16.data()) : f32.data();
      REQUIRE(
          ddtree::write_mask(ctx, h.shape, d.view(), d.tree.view(),
                             llama_cpp::make_kq_mask(data, flash, static_cast<index_t>(cells))));
      auto const half = f16.values();
      auto const full = f32.values();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t c = 0; c < cells; ++c) {
          bool const seen =
              c < 150 ||
              (c < 183 && i < 33 && h.tree[0].sees(static_cast<int>(i), static_cast<int>(c) - 150));
          std::uint32_t const masked = flash ? 0xfc00u : 0xff800000u;
          std::uint32_t const poison =
              flash ? poisoned<std::uint16_t>() : poisoned<std::uint32_t>();
          std::uint32_t const got = flash ? half[i * cells + c] : full[i * cells + c];
          wrong += got != (i >= 33 ? poison : seen ? 0u : masked);
        }
      }
      CHECK(wrong == 0);
      CHECK((f16.intact() && f32.intact()));
    }
  }
}

TEST_CASE("llama_cpp: a round's tree is one piece that can be copied",
          "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  auto const ctx = context::cpu();
  random_numbers rng(4);
  host_batch const h = make_batch(rng, {3, 33, 7, {5}, false});
  std::size_t const bytes = ddtree::decoding_round::bytes(ctx, h.shape);
  std::vector<char> one(bytes), other(bytes + 100);
  ddtree::decoding_round a, b;
  REQUIRE(ddtree::decoding_round::create(ctx, h.shape, {one.data(), bytes}, &a));
  REQUIRE(ddtree::decoding_round::create(ctx, h.shape, {other.data() + 100, bytes}, &b));
  auto const distances = [](ddtree::draft_tree const& t) {
    auto const* const first = reinterpret_cast<char const*>(t.token);
    void const* const arrays[] = {t.parent,     t.depth,       t.rank,
                                  t.log_weight, t.first_child, t.next_sibling,
                                  t.ancestors,  t.num_nodes,   t.flags};
    std::vector<std::ptrdiff_t> all;
    for (void const* const array : arrays) all.push_back(static_cast<char const*>(array) - first);
    return all;
  };
  CHECK(distances(a.tree) == distances(b.tree));
  auto const ordered = distances(a.tree);
  CHECK(std::is_sorted(ordered.begin(), ordered.end()));
}

TEST_CASE("llama_cpp: trees and paths that are none stay within the arrays",
          "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  auto const ctx = context::cpu();
  for (unsigned seed = 0; seed < 50; ++seed) {
    random_numbers rng(seed);
    host_batch const h = make_batch(rng, {5, 33, 7, {3}, false});
    device_batch d(ctx, h);
    host_arrays a(h, 6);
    std::vector<int> winner(5), end(5);
    if (seed % 2 == 0) d.spoil(rng);
    REQUIRE(llama_cpp::write_batch(ctx, h.shape, d.view(), d.tree.view(), {6}, a.view()));
    d.spoil(rng);
    REQUIRE(llama_cpp::write_commit(ctx, h.shape, d.view(), d.path.view(), {6}, a.view(),
                                    {winner.data(), end.data()}));
    for (std::size_t b = 0; b < 5; ++b) {
      CHECK((winner[b] == -1 || winner[b] / 6 == h.request[b]));
      CHECK(end[b] <= h.length(b) + 8);
    }
    CHECK(a.list.back() == -7);
  }
}

TEST_CASE("llama_cpp: an argument at fault is named", "[formats][llama_cpp][small]") {
  if (tested_backend() == ddtree::backend_kind::cuda) DDTREE_SKIP("of host memory alone");
  auto const ctx = context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  host_arrays a(h, 4);
  auto s = llama_cpp::write_batch(ctx, h.shape, d.view(), d.tree.view(), {0}, a.view());
  CHECK(s.message == std::string("llama_cpp::write_batch: ids.per_request outside [1, 256]"));
  s = llama_cpp::write_batch(ctx, h.shape, {}, d.tree.view(), {4}, a.view());
  CHECK(s.message == std::string("llama_cpp::write_batch: batch.cache_len is null"));
  s = llama_cpp::write_batch(ctx, h.shape, d.view(), d.tree.view(), {4}, {});
  CHECK(s.message == std::string("llama_cpp::write_batch: out has a null array"));
  context on_gpu = ctx;
  on_gpu.backend = ddtree::backend_kind::cuda;
  s = llama_cpp::write_batch(on_gpu, h.shape, d.view(), d.tree.view(), {4}, a.view());
  CHECK(s.code == errc::unsupported);
  s = llama_cpp::write_commit(ctx, h.shape, d.view(), d.path.view(), {4}, a.view(), {});
  CHECK(s.message == std::string("llama_cpp::write_commit: out.winner is null"));
}
