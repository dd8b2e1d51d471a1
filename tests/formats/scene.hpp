// SPDX-License-Identifier: Apache-2.0
// Random batches for the formats: trees with padding rows, a pool of requests of which some rows
// hold none, cache lengths, accepted paths. Made here by plain means, nothing of the library is
// asked for them.
#pragma once

#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace ddtree_test::formats {

using id_list = std::vector<std::int64_t>;

class random_numbers {
 public:
  explicit random_numbers(unsigned seed) : engine_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

enum class tree_kind { random, chain, root_alone, bushy, full };

/// One request's tree; the arrays have `width` entries, padding included.
struct host_tree {
  int num_nodes = 1;
  std::vector<int> token, parent, depth, first_child, next_sibling;

  /// Whether row j is row i or an ancestor of it. A padding row has no ancestors.
  bool sees(int i, int j) const {
    for (; i >= 0; i = parent[sized(i)]) {
      if (i == j) return true;
    }
    return false;
  }
  /// From the root to row i.
  std::vector<int> path_to(int i) const {
    std::vector<int> path;
    for (; i >= 0; i = parent[sized(i)]) path.insert(path.begin(), i);
    return path;
  }
  bool is_leaf(int i) const { return i < num_nodes && first_child[sized(i)] < 0; }
};

inline int count_nodes(random_numbers& rng, int width, tree_kind kind) {
  if (kind == tree_kind::root_alone) return 1;
  return kind == tree_kind::full ? width : rng.between(1, width);
}

inline int pick_parent(random_numbers& rng, host_tree const& t, int i, tree_kind kind,
                       int max_depth) {
  auto const fits = [&](int p) { return t.depth[sized(p)] < max_depth; };
  int parent = kind == tree_kind::chain ? i - 1
               : kind == tree_kind::bushy
                   ? rng.between(0, std::min(i - 1, 3))
                   : rng.between(std::max(0, i - 1 - rng.between(0, 40)), i - 1);
  while (!fits(parent)) parent = rng.between(0, parent == 0 ? 0 : parent - 1);
  return parent;
}

inline host_tree make_tree(random_numbers& rng, int width, int max_depth, int vocab,
                           tree_kind kind) {
  host_tree t;
  t.num_nodes = max_depth == 0 ? 1 : count_nodes(rng, width, kind);
  if (kind == tree_kind::chain) t.num_nodes = std::min(t.num_nodes, max_depth + 1);
  auto const n = sized(width);
  t.token.assign(n, rng.between(0, vocab - 1));
  t.parent.assign(n, -1);
  t.depth.assign(n, 0);
  t.first_child.assign(n, -1);
  t.next_sibling.assign(n, -1);
  std::vector<int> last_child(n, -1);
  for (int i = 1; i < t.num_nodes; ++i) {
    int const p = pick_parent(rng, t, i, kind, max_depth);
    t.parent[sized(i)] = p;
    t.depth[sized(i)] = t.depth[sized(p)] + 1;
    int const before = last_child[sized(p)];
    (before < 0 ? t.first_child[sized(p)] : t.next_sibling[sized(before)]) = i;
    last_child[sized(p)] = i;
    // Siblings differ, as the tokens of one position do.
    t.token[sized(i)] =
        before < 0 ? rng.between(0, vocab - 1) : (t.token[sized(before)] + 1) % vocab;
  }
  return t;
}

/// A walk that was accepted: nodes, the tokens after each.
struct host_path {
  std::vector<int> node;  // node[0] = 0; empty = inactive
  std::vector<int> token;
  int num_accepted() const { return static_cast<int>(node.size()) - 1; }
};

inline host_path make_path(random_numbers& rng, host_tree const& t, int vocab) {
  host_path p;
  int node = 0;
  while (true) {
    p.node.push_back(node);
    std::vector<int> children;
    for (int c = t.first_child[sized(node)]; c >= 0; c = t.next_sibling[sized(c)]) {
      children.push_back(c);
    }
    if (children.empty() || rng.one_in(6)) break;
    node = children[sized(rng.between(0, static_cast<int>(children.size()) - 1))];
    p.token.push_back(t.token[sized(node)]);
  }
  p.token.push_back(rng.between(0, vocab - 1));
  return p;
}

/// A batch on the host.
struct host_batch {
  ddtree::round_shape shape;
  id_list request;    // [batch], -1 = none
  id_list cache_len;  // [requests]
  std::vector<host_tree> tree;
  std::vector<host_path> path;

  int width() const { return static_cast<int>(shape.width()); }
  bool is_active(std::size_t b) const {
    return request[b] >= 0 && cache_len[sized(request[b])] >= 0;
  }
  /// S, or `otherwise` for an inactive row.
  std::int64_t length(std::size_t b, std::int64_t otherwise = 0) const {
    return is_active(b) ? cache_len[sized(request[b])] : otherwise;
  }
  int nodes(std::size_t b) const { return is_active(b) ? tree[b].num_nodes : 0; }
  int num_accepted(std::size_t b) const { return is_active(b) ? path[b].num_accepted() : -1; }
};

struct batch_recipe {
  int batch = 1;
  int width = 33;
  int depth = 7;
  std::vector<std::int64_t> lengths = {0, 1, 17, 300};
  bool has_inactive = false;
};

inline host_batch make_batch(random_numbers& rng, batch_recipe const& recipe) {
  host_batch h;
  h.shape.batch = recipe.batch;
  h.shape.vocab = 1000;
  h.shape.depth = recipe.depth;
  h.shape.budget = recipe.width - 1;
  h.shape.requests = recipe.batch + 3;
  id_list pool(sized(h.shape.requests));
  std::iota(pool.begin(), pool.end(), 0);
  for (auto& length : pool)
    std::swap(length, pool[sized(rng.between(0, static_cast<int>(pool.size()) - 1))]);
  for (std::size_t r = 0; r < pool.size(); ++r) {
    h.cache_len.push_back(recipe.lengths[r % recipe.lengths.size()]);
  }
  static tree_kind const kinds[] = {tree_kind::random, tree_kind::full, tree_kind::chain,
                                    tree_kind::bushy, tree_kind::root_alone};
  for (int b = 0; b < recipe.batch; ++b) {
    bool const inactive = recipe.has_inactive && b % 3 == 1;
    h.request.push_back(inactive && b % 2 == 1 ? -1 : pool[sized(b)]);
    if (inactive && b % 2 == 0) h.cache_len[sized(pool[sized(b)])] = -5;
    tree_kind const kind = inactive ? tree_kind::root_alone : kinds[b % 5];
    h.tree.push_back(make_tree(rng, recipe.width, recipe.depth, 1000, kind));
    if (inactive) h.tree.back().token.assign(sized(recipe.width), 0);
    h.path.push_back(inactive ? host_path{} : make_path(rng, h.tree.back(), 1000));
  }
  return h;
}

/// Batches of one and several rows, inactive ones, and every width that crosses a word.
inline std::vector<batch_recipe> recipes() {
  std::vector<batch_recipe> all;
  for (int const width : {1, 8, 9, 16, 17, 32, 33, 65}) {
    all.push_back({1, width, 7, {0, 1, 17, 300}, false});
    all.push_back({7, width, 7, {0, 1, 17, 300}, true});
  }
  all.push_back({2, 1025, 31, {70, 0}, false});
  all.push_back({3, 65, 15, {70000, 1, 0}, false});
  all.push_back({5, 33, 0, {4, 5}, true});
  return all;
}

inline std::string describe(batch_recipe const& r) {
  return "batch " + std::to_string(r.batch) + ", width " + std::to_string(r.width) + ", depth " +
         std::to_string(r.depth) + (r.has_inactive ? ", inactive" : "");
}

/// A batch in a context's memory.
struct device_batch {
  device_batch(ddtree::context const& ctx, host_batch const& h)
      : cache_len(ctx, h.cache_len.size()),
        request(ctx, h.request),
        tree(ctx, h.shape),
        path(ctx, h.shape) {
    assign(h);
  }

  /// Takes another batch of the same shape, in place.
  void assign(host_batch const& h) {
    cache_len.assign(std::vector<std::int32_t>(h.cache_len.begin(), h.cache_len.end()));
    request.assign(h.request);
    fill_tree(h);
    fill_path(h);
  }

  /// Fills the tree and the path with numbers that are none: what a call does with them must stay
  /// within its arrays.
  void spoil(random_numbers& rng) {
    buffer<std::int32_t>* const arrays[] = {
        &tree.parent,    &tree.depth, &tree.first_child,  &tree.next_sibling,
        &tree.num_nodes, &path.path,  &path.num_accepted,
    };
    for (auto* const array : arrays) {
      std::vector<std::int32_t> values(array->size());
      for (auto& value : values) {
        value = rng.one_in(2)
                    ? rng.between(-2, 70)
                    : rng.between(std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
      }
      array->assign(values);
    }
  }

  ddtree::batch_view view() { return {cache_len.data(), request.data()}; }

  buffer<std::int32_t> cache_len;
  buffer<std::int64_t> request;
  tree_buffers tree;
  accepted_buffers path;

 private:
  void fill_tree(host_batch const& h) {
    auto const width = sized(h.shape.width());
    auto const words = sized(h.shape.words());
    std::vector<std::uint32_t> bits(tree.ancestors.size());
    for (std::size_t b = 0; b < h.tree.size(); ++b) {
      for (std::size_t i = 0; i < width; ++i) {
        for (int j = static_cast<int>(i); j >= 0; j = h.tree[b].parent[sized(j)]) {
          bits[(b * width + i) * words + sized(j) / 32] |= 1u << (j % 32);
        }
      }
    }
    tree.ancestors.assign(bits);
    tree.token.assign(gather(h, &host_tree::token));
    tree.parent.assign(gather(h, &host_tree::parent));
    tree.depth.assign(gather(h, &host_tree::depth));
    tree.first_child.assign(gather(h, &host_tree::first_child));
    tree.next_sibling.assign(gather(h, &host_tree::next_sibling));
    std::vector<int> nodes;
    for (auto const& t : h.tree) nodes.push_back(t.num_nodes);
    tree.num_nodes.assign(nodes);
    tree.flags.assign(std::vector<std::uint32_t>(h.tree.size(), 0));
  }

  void fill_path(host_batch const& h) {
    std::vector<int> nodes, tokens, bonus, counts;
    for (auto const& p : h.path) {
      for (int u = 0; u <= h.shape.depth; ++u) {
        bool const is_there = u <= p.num_accepted();
        nodes.push_back(is_there ? p.node[sized(u)] : -1);
        tokens.push_back(is_there ? p.token[sized(u)] : -1);
      }
      bonus.push_back(p.node.empty() ? -1 : p.token.back());
      counts.push_back(p.num_accepted());
    }
    path.path.assign(nodes);
    path.token.assign(tokens);
    path.bonus.assign(bonus);
    path.num_accepted.assign(counts);
    path.flags.assign(std::vector<std::uint32_t>(h.path.size(), 0));
  }

  static std::vector<int> gather(host_batch const& h, std::vector<int> host_tree::*array) {
    std::vector<int> all;
    for (auto const& t : h.tree) all.insert(all.end(), (t.*array).begin(), (t.*array).end());
    return all;
  }
};

/// An output array of ids in a context's memory.
class id_array {
 public:
  id_array(ddtree::context const& ctx, ddtree::dtype type, std::size_t n,
           ddtree::index_t stride = 0)
      : ids_(ctx, type, id_list(n, 0x5a5a5a5a), stride) {}
  ddtree::ids_out view() { return ids_.view(); }
  id_list values() const { return ids_.values(); }
  bool intact() const { return ids_.intact(); }

 private:
  optional_ids ids_;
};

inline constexpr std::int64_t untouched = 0x5a5a5a5a;

/// A slot for every row of the batch, each another.
inline id_list make_slots(host_batch const& h) {
  id_list slots(sized(h.shape.batch * h.shape.width()));
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i] = 1 + static_cast<std::int64_t>(i * 7919 % 1000003);
  return slots;
}

/// A block table by request, [requests, columns]: pages in no order, each once.
struct block_table {
  block_table(host_batch const& h, ddtree::index_t size) : page_size(size) {
    std::int64_t const longest = *std::max_element(h.cache_len.begin(), h.cache_len.end());
    columns = (longest + h.shape.width()) / page_size + 1;
    entries.resize(h.cache_len.size() * sized(columns));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i] = 1 + static_cast<std::int64_t>(i ^ 1u);
    }
  }
  std::int64_t slot(std::int64_t request, std::int64_t number) const {
    std::int64_t const page = entries[sized(request * columns + number / page_size)];
    return page * page_size + number % page_size;
  }
  ddtree::kv_table view(optional_ids& on_device) const {
    ddtree::kv_table table;
    table.entries = on_device.view();
    table.columns = columns;
    table.page_size = page_size;
    return table;
  }

  ddtree::index_t page_size, columns = 0;
  id_list entries;
};

/// Runs `body(ctx, batch)` over every context and recipe.
template <class Body>
void for_each_batch(Body const& body) {
  for (ddtree::context const& ctx : round_contexts()) {
    unsigned seed = 0;
    for (batch_recipe const& recipe : recipes()) {
      random_numbers rng(++seed);
      CAPTURE(describe(recipe), ctx.threads);
      host_batch const h = make_batch(rng, recipe);
      body(ctx, h);
    }
  }
}

}  // namespace ddtree_test::formats
