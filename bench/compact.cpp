// SPDX-License-Identifier: Apache-2.0
// compact_kv over 36 layers of K and V, 8 heads of 128 bf16 numbers: the root and seven rows that
// all move.
#include "ddtree/compact.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr ddtree::index_t layers = 36, heads = 8, row_bytes = 256, page_size = 16;
constexpr ddtree::index_t cache_len = 40, columns = 8;  // pages hold 128 slots, the tree 65
constexpr ddtree::node_t path[] = {0, 2, 5, 9, 14, 20, 27, 35};
constexpr std::int32_t moved = 7;

enum class layout { nhd, hnd };

std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

/// A cache with pages for `batch` requests, and the path that all of them accepted.
struct cache {
  cache(layout how, ddtree::index_t batch)
      : pages(sized(batch * columns)),
        lengths(sized(batch), cache_len),
        nodes(sized(batch) * 16, -1),
        accepted(sized(batch), moved),
        flags(sized(batch), 0) {
    std::iota(pages.begin(), pages.end(), 0);
    for (ddtree::index_t b = 0; b < batch; ++b) {
      std::memcpy(&nodes[sized(b) * 16], path, sizeof path);
    }
    ddtree::index_t const page = page_size * heads * row_bytes;
    memory.resize(sized(2 * layers * batch * columns * page));
    for (ddtree::index_t t = 0; t < 2 * layers; ++t) {
      ddtree::kv_tensor tensor;
      tensor.base = memory.data() + t * batch * columns * page;
      tensor.page_stride = page;
      tensor.token_stride = how == layout::nhd ? heads * row_bytes : row_bytes;
      tensor.head_stride = how == layout::nhd ? row_bytes : page_size * row_bytes;
      tensor.pages = batch * columns;
      tensor.heads = heads;
      tensor.row_bytes = row_bytes;
      tensors.push_back(tensor);
    }
  }

  ddtree::kv_cache view() {
    ddtree::kv_cache view;
    view.tensors = tensors.data();
    view.num_tensors = 2 * layers;
    view.table[0].entries = pages.data();
    view.table[0].columns = columns;
    view.table[0].page_size = page_size;
    return view;
  }
  ddtree::accepted path_view() {
    ddtree::accepted view;
    view.path = nodes.data();
    view.num_accepted = accepted.data();
    view.flags = flags.data();
    return view;
  }

  std::vector<std::int32_t> pages, lengths;
  std::vector<ddtree::node_t> nodes;
  std::vector<std::int32_t> accepted;
  std::vector<std::uint32_t> flags;
  std::vector<unsigned char> memory;
  std::vector<ddtree::kv_tensor> tensors;
};

void compact_kv(benchmark::State& state, layout how, ddtree::index_t batch) {
  ddtree::round_shape const shape{.batch = batch, .vocab = 1};
  cache c(how, batch);
  for (auto _ : state) {
    auto const s = ddtree::compact_kv(ddtree::context::cpu(), shape, {c.lengths.data()},
                                      c.path_view(), c.view());
    if (!s) return state.SkipWithError(s.message);
    benchmark::ClobberMemory();
  }
  // Read and written.
  state.SetBytesProcessed(state.iterations() * 2 * 2 * layers * batch * moved * heads * row_bytes);
}

void series(char const* name, layout how, ddtree::index_t batch) {
  std::string const full = std::string("compact_kv/cpu/layout:") + name +
                           "/layers:36/batch:" + std::to_string(batch) + "/rows:8";
  benchmark::RegisterBenchmark(full.c_str(), compact_kv, how, batch)->Unit(benchmark::kMicrosecond);
}

bool const registered = [] {
  for (ddtree::index_t batch : {1, 4}) {
    series("nhd", layout::nhd, batch);
    series("hnd", layout::hnd, batch);
  }
  return true;
}();

}  // namespace
