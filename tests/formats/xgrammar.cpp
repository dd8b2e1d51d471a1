// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/xgrammar.hpp"

#include "formats/scene.hpp"
#include "support/catch.hpp"

namespace {

using namespace ddtree_test;
using namespace ddtree_test::formats;
namespace xgrammar = ddtree::formats::xgrammar;

/// The matcher's traversal of one request: depth first, children before siblings. Notes the tokens
/// from the root to each node where it fills that node's bitmask.
struct traversal {
  std::int64_t const* next_token;
  std::int64_t const* next_sibling;
  std::int64_t const* token;
  std::vector<id_list> seen;  // by node; empty = never reached

  void visit(std::int64_t node, id_list path) {
    id_list const above = path;
    path.push_back(token[node]);
    seen[sized(node)] = path;
    if (next_token[node] != -1) visit(next_token[node], path);
    if (next_sibling[node] != -1) visit(next_sibling[node], above);
  }
};

}  // namespace

TEST_CASE("xgrammar: its traversal meets every node under its own path",
          "[formats][xgrammar][small]") {
  for_each_batch([](ddtree::context const& ctx, host_batch const& h) {
    device_batch d(ctx, h);
    auto const width = sized(h.shape.width()), nodes = h.tree.size() * width;
    buffer<std::int64_t> arrays(ctx, 3 * nodes);
    CHECK(xgrammar::traversal_bytes(h.shape) == static_cast<ddtree::index_t>(arrays.bytes()));
    REQUIRE(xgrammar::write_traversal(ctx, h.shape, d.view(), d.tree.view(), arrays.data()));
    auto const all = arrays.values();
    CHECK(arrays.intact());
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      host_tree const& t = h.tree[b];
      traversal walk{&all[b * width], &all[nodes + b * width], &all[2 * nodes + b * width],
                     std::vector<id_list>(width)};
      walk.visit(0, {});
      std::size_t wrong = 0;
      for (int i = 0; i < h.width(); ++i) {
        id_list path;
        for (int const j : t.path_to(i)) path.push_back(t.token[sized(j)]);
        wrong += walk.seen[sized(i)] != (i < t.num_nodes ? path : id_list{});
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("xgrammar: an argument at fault is named", "[formats][xgrammar][small]") {
  auto const ctx = ddtree::context::cpu();
  random_numbers rng(1);
  host_batch const h = make_batch(rng, {2, 33, 3, {4}, false});
  device_batch d(ctx, h);
  auto s = xgrammar::write_traversal(ctx, h.shape, d.view(), d.tree.view(), nullptr);
  CHECK(s.message == std::string("xgrammar::write_traversal: out is null"));
  std::int64_t one = 0;
  s = xgrammar::write_traversal(ctx, h.shape, d.view(), {}, &one);
  CHECK(s.message == std::string("xgrammar::write_traversal: tree.token is null"));
}
