// SPDX-License-Identifier: Apache-2.0
// KV caches in every layout, with tables and a batch of accepted paths over them: made on the host,
// run in a context, compared whole.
#pragma once

#include "ddtree/compact.hpp"

#include "oracle/compact.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace ddtree_test {

using ddtree::dtype;
using ddtree::index_t;
using ddtree::round_shape;
using oracle::number;

/// A flag that the calls under test never set: it has to survive.
inline constexpr std::uint32_t earlier = ddtree::flag::target_nan;

struct random_numbers {
  explicit random_numbers(unsigned seed) : engine(seed) {}
  number below(number n) { return static_cast<number>(engine() % static_cast<unsigned long>(n)); }
  std::mt19937 engine;
};

/// Ids in a context's memory, int32 or int64.
class id_buffer {
 public:
  id_buffer(ddtree::context const& ctx, dtype type, std::vector<number> const& values)
      : type_(type), narrow_(ctx, values.size()), wide_(ctx, values.size()) {
    narrow_.assign({values.begin(), values.end()});
    wide_.assign({values.begin(), values.end()});
  }
  ddtree::ids_out view(index_t stride = 0) {
    if (type_ == dtype::i64) return {wide_.data(), type_, stride};
    return {narrow_.data(), type_, stride};
  }
  std::vector<number> values() const {
    if (type_ == dtype::i64) {
      auto const v = wide_.values();
      return {v.begin(), v.end()};
    }
    auto const v = narrow_.values();
    return {v.begin(), v.end()};
  }
  bool intact() const { return narrow_.intact() && wide_.intact(); }

 private:
  dtype type_;
  buffer<std::int32_t> narrow_;
  buffer<std::int64_t> wide_;
};

/// What one row of the batch says. `path` holds node rows, the root included; empty = num_accepted
/// is -1.
struct batch_entry {
  number request = 0;
  std::vector<number> path;
};

/// The arrays that every call of the floor takes.
struct accepted_batch {
  accepted_batch(ddtree::context const& ctx, dtype type, round_shape const& shape,
                 std::vector<batch_entry> const& entries, std::vector<number> const& lengths)
      : requests(ctx, type, requests_of(entries)), cache_len(ctx, type, lengths), path(ctx, shape) {
    std::vector<ddtree::node_t> nodes(path.path.size(), -1);
    std::vector<std::int32_t> accepted(entries.size());
    for (std::size_t b = 0; b < entries.size(); ++b) {
      auto const& from = entries[b].path;
      accepted[b] = static_cast<std::int32_t>(from.size()) - 1;
      for (std::size_t r = 0; r < from.size(); ++r) {
        std::size_t const at = b * sized(shape.depth + 1) + r;
        if (r <= sized(shape.depth)) nodes[at] = static_cast<ddtree::node_t>(from[r]);
      }
    }
    path.path.assign(nodes);
    path.num_accepted.assign(accepted);
    path.flags.assign(std::vector<std::uint32_t>(entries.size(), earlier));
  }

  static std::vector<number> requests_of(std::vector<batch_entry> const& entries) {
    std::vector<number> out;
    for (auto const& e : entries) out.push_back(e.request);
    return out;
  }

  ddtree::batch_view view() { return {cache_len.view(), requests.view()}; }
  ddtree::accepted accepted() { return path.view(); }
  std::vector<std::uint32_t> flags() const { return path.flags.values(); }
  bool intact() const { return requests.intact() && cache_len.intact() && path.intact(); }

  id_buffer requests;
  id_buffer cache_len;
  accepted_buffers path;
};

/// A cache, its tables and a batch over it, on the host.
struct scene {
  round_shape shape;
  std::vector<batch_entry> entries;
  std::vector<number> lengths;  // by request
  std::vector<oracle::cache_tensor> tensors;
  std::vector<oracle::page_table> tables;
  std::vector<bool> index_only;  // by table; missing = false
  oracle::bytes memory;

  std::vector<oracle::walk> walks() const {
    std::vector<oracle::walk> out;
    for (auto const& e : entries) {
      bool const live = e.request >= 0 && e.request < number(lengths.size());
      if (!live) {
        out.push_back({});
      } else {
        out.push_back({e.request, lengths[sized(e.request)], e.path});
      }
    }
    return out;
  }
};

struct outcome {
  ddtree::status status;
  oracle::bytes memory;
  std::vector<std::vector<std::vector<number>>> tables;
  std::vector<std::uint32_t> flags;
};

inline index_t columns_of(oracle::page_table const& table) {
  std::size_t columns = 0;
  for (auto const& row : table.rows) columns = std::max(columns, row.size());
  return static_cast<index_t>(columns);
}

/// A table in a context's memory. Its rows stand three entries apart; those between would be pages.
class table_buffer {
 public:
  table_buffer(ddtree::context const& ctx, dtype type, oracle::page_table const& table)
      : columns_(columns_of(table)), rows_(table.rows.size()), ids_(ctx, type, flat(table)) {
    view_.page_size = table.page_size;
    view_.entry_mask = table.mask;
    view_.entry_scale = table.scale;
    view_.columns = columns_;
    if (rows_ != 0) view_.entries = ids_.view(columns_ + 3);
  }
  ddtree::kv_table view(bool index_only) {
    view_.index_only = index_only;
    return view_;
  }
  std::vector<std::vector<number>> rows() const {
    std::vector<number> const all = ids_.values();
    std::vector<std::vector<number>> out;
    for (std::size_t r = 0; r < rows_; ++r) {
      auto const begin = all.begin() + static_cast<index_t>(r) * (columns_ + 3);
      out.emplace_back(begin, begin + columns_);
      REQUIRE(std::all_of(begin + columns_, begin + columns_ + 3, [](number n) { return n == 0; }));
    }
    return out;
  }
  bool intact() const { return ids_.intact(); }

 private:
  std::vector<number> flat(oracle::page_table const& table) const {
    std::vector<number> out;
    for (auto row : table.rows) {
      row.resize(sized(columns_) + 3, 0);
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }

  index_t columns_;
  std::size_t rows_;
  id_buffer ids_;
  ddtree::kv_table view_;
};

inline ddtree::kv_tensor tensor_of(oracle::cache_tensor const& t, unsigned char* memory) {
  ddtree::kv_tensor out;
  out.base = memory + t.begin;
  out.page_stride = t.page_stride;
  out.token_stride = t.token_stride;
  out.head_stride = t.head_stride;
  out.pages = t.pages;
  out.heads = static_cast<std::int32_t>(t.heads);
  out.row_bytes = static_cast<std::int32_t>(t.row_bytes);
  out.table = static_cast<std::int32_t>(t.table);
  return out;
}

/// Runs compact_kv over a scene; canaries and read-only arrays are checked here.
inline outcome run(ddtree::context const& ctx, dtype type, scene const& s) {
  buffer<unsigned char> memory(ctx, s.memory);
  std::vector<ddtree::kv_tensor> tensors;
  for (auto const& t : s.tensors) tensors.push_back(tensor_of(t, memory.data()));
  buffer<ddtree::kv_tensor> tensor_list(ctx, tensors);
  std::vector<table_buffer> tables;
  for (auto const& t : s.tables) tables.emplace_back(ctx, type, t);
  accepted_batch batch(ctx, type, s.shape, s.entries, s.lengths);

  ddtree::kv_cache cache;
  cache.tensors = tensor_list.data();
  cache.num_tensors = static_cast<index_t>(tensors.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    cache.table[t] = tables[t].view(t < s.index_only.size() && s.index_only[t]);
  }
  auto const path_before = batch.path.path.values();
  outcome out;
  out.status = ddtree::compact_kv(ctx, s.shape, batch.view(), batch.accepted(), cache);
  out.memory = memory.values();
  out.flags = batch.flags();
  REQUIRE(memory.intact());
  REQUIRE(tensor_list.intact());
  REQUIRE(batch.intact());
  REQUIRE(batch.path.path.values() == path_before);
  REQUIRE(batch.cache_len.values() == s.lengths);
  for (auto const& t : tables) {
    REQUIRE(t.intact());
    out.tables.push_back(t.rows());
  }
  return out;
}

inline oracle::bytes random_bytes(random_numbers& random, number count) {
  oracle::bytes out(sized(count));
  for (auto& byte : out) byte = static_cast<unsigned char>(random.below(256));
  return out;
}

/// A rising path of up to `accepted` nodes below `width`.
inline std::vector<number> random_path(random_numbers& random, number accepted, number width) {
  std::vector<number> nodes(sized(width - 1));
  std::iota(nodes.begin(), nodes.end(), 1);
  std::shuffle(nodes.begin(), nodes.end(), random.engine);
  nodes.resize(sized(std::min(accepted, width - 1)));
  std::sort(nodes.begin(), nodes.end());
  nodes.insert(nodes.begin(), 0);
  return nodes;
}

/// How the bytes of a cache are arranged; adds its tensors and returns the bytes they take.
using layout = number (*)(std::vector<oracle::cache_tensor>& out, number pages, number page_size);

template <number Heads, number Row>
number separate_nhd(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  number const token = Heads * Row;
  number const tensor = pages * page_size * token;
  for (number kv : {0, 1}) {
    out.push_back({kv * tensor, page_size * token, token, Row, pages, Heads, Row, 0});
  }
  return 2 * tensor;
}

inline number separate_hnd(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  number const heads = 3, row = 10;
  number const tensor = pages * page_size * heads * row;
  for (number kv : {0, 1}) {
    out.push_back(
        {kv * tensor, heads * page_size * row, row, page_size * row, pages, heads, row, 0});
  }
  return 2 * tensor;
}

inline number interleaved_by_page(std::vector<oracle::cache_tensor>& out, number pages,
                                  number page_size) {
  number const heads = 2, row = 8;
  number const half = page_size * heads * row;
  for (number kv : {0, 1}) {
    out.push_back({kv * half, 2 * half, heads * row, row, pages, heads, row, 0});
  }
  return pages * 2 * half;
}

inline number interleaved_by_token(std::vector<oracle::cache_tensor>& out, number pages,
                                   number page_size) {
  number const heads = 2, row = 6;
  number const token = 2 * heads * row;
  for (number kv : {0, 1}) {
    out.push_back({kv * heads * row, page_size * token, token, row, pages, heads, row, 0});
  }
  return pages * page_size * token;
}

/// MLA: one latent row per token, of 576 two-byte numbers.
inline number latent(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  out.push_back({0, page_size * 1152, 1152, 0, pages, 1, 1152, 0});
  return pages * page_size * 1152;
}

/// Rows of 1, 3 and 18 bytes with bytes between them that belong to nobody.
inline number odd_rows(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  number begin = 0;
  for (number row : {1, 3, 18}) {
    number const head = row + 2, token = 2 * head + 5, page = page_size * token + 7;
    out.push_back({begin, page, token, head, pages, 2, row, 0});
    begin += pages * page;
  }
  return begin;
}

/// fp8 rows, and a float scale per token and head in a pool of its own.
inline number with_scales(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  number const heads = 2, row = 64;
  number const rows = pages * page_size * heads * row;
  out.push_back({0, page_size * heads * row, heads * row, row, pages, heads, row, 0});
  out.push_back({rows, page_size * heads * 4, heads * 4, 4, pages, heads, 4, 1});
  return rows + pages * page_size * heads * 4;
}

/// The last page first, the last token first.
inline number descending(std::vector<oracle::cache_tensor>& out, number pages, number page_size) {
  number const token = 12;
  number const bytes = pages * page_size * token;
  out.push_back({bytes - token, -page_size * token, -token, 0, pages, 1, token, 0});
  return bytes;
}

struct named_layout {
  char const* name;
  layout make;
};

inline constexpr named_layout layouts[] = {
    {"K and V apart, NHD", separate_nhd<3, 16>},
    {"K and V apart, HND", separate_hnd},
    {"[pages, 2, ...]", interleaved_by_page},
    {"[pages, page_size, 2, ...]", interleaved_by_token},
    {"MLA", latent},
    {"odd rows", odd_rows},
    {"fp8 with scales", with_scales},
    {"descending", descending},
};

/// A table over `pages` for requests of these lengths; the pages that lie wholly below the shortest
/// of requests 0 and 1 are shared by them.
inline oracle::page_table paged(random_numbers& random, std::vector<number> const& lengths,
                                number width, number pages, number page_size) {
  std::vector<number> free(sized(pages));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random.engine);
  oracle::page_table table;
  table.page_size = page_size;
  number const longest = *std::max_element(lengths.begin(), lengths.end());
  number const columns = (longest + width + page_size - 1) / page_size;
  number const shared =
      lengths.size() > 1 ? std::min(lengths[0], lengths[1]) / page_size : number{0};
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    std::vector<number> row;
    for (number c = 0; c < columns; ++c) {
      if (r == 1 && c < shared) {
        row.push_back(table.rows[0][sized(c)]);
      } else {
        row.push_back(free.back());
        free.pop_back();
      }
    }
    table.rows.push_back(row);
  }
  return table;
}

/// Three requests at batch rows in another order, with random paths, in a paged cache.
inline scene paged_scene(unsigned seed, named_layout const& how, number page_size) {
  random_numbers random(seed);
  scene s;
  s.shape.batch = 3;
  s.shape.vocab = 100;
  s.shape.depth = 7;
  s.shape.budget = 20;
  s.lengths = {17 + random.below(5), 19, 2};
  for (number request : {2, 0, 1}) {
    s.entries.push_back({request, random_path(random, random.below(8), s.shape.width())});
  }
  number const columns = (22 + s.shape.width() + page_size - 1) / page_size;
  number const pages = 3 * columns + 4;
  for (int t = 0; t < 2; ++t) {
    s.tables.push_back(paged(random, s.lengths, s.shape.width(), pages, page_size));
  }
  number const bytes = how.make(s.tensors, pages, page_size);
  s.memory = random_bytes(random, bytes);
  return s;
}

inline oracle::bytes expected_memory(scene const& s, std::vector<bool>* skipped = nullptr) {
  return oracle::compact_cache(s.memory, s.tensors, s.tables, s.walks(), skipped);
}

inline std::vector<std::vector<std::vector<number>>> rows_of(
    std::vector<oracle::page_table> const& all) {
  std::vector<std::vector<std::vector<number>>> out;
  for (auto const& t : all) out.push_back(t.rows);
  return out;
}

/// The whole cache, tables and flags are what the oracle says, and no row met a flag.
inline void check_moves(ddtree::context const& ctx, dtype type, scene const& s) {
  outcome const got = run(ctx, type, s);
  REQUIRE(got.status);
  CHECK(got.memory == expected_memory(s));
  CHECK(got.tables == rows_of(s.tables));
  CHECK(got.flags == std::vector<std::uint32_t>(s.entries.size(), earlier));
}

}  // namespace ddtree_test
