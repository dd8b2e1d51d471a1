// SPDX-License-Identifier: Apache-2.0
#include "support/series.hpp"

#include "support/gpu.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <exception>
#include <stdexcept>
#include <vector>

namespace bench {

namespace {

using ddtree::backend_kind;

constexpr double cold_bytes = 300e6;
/// More copies than that would be a graph of more launches than it takes to time one.
constexpr int most_copies = 160;
/// Small inputs take turns also where all of them stay in the cache: trees differ.
constexpr int turns = 8;
constexpr double small_bytes = 1e6;

struct series {
  std::string name;
  ddtree::context ctx;  // without device and stream for a GPU
  benchmark_case c;
  bool chosen = false;
};

ddtree::context context_of(series const& s) {
  if (s.ctx.backend == backend_kind::cpu) return s.ctx;
  return gpu::context().with_variant(s.ctx.variant);
}

void check(ddtree::status const& s) {
  if (!s) throw std::runtime_error(s.message);
}

double bytes_of(traffic const& t) { return t.read + t.written; }

/// Microseconds at the roof: what is read and written alike at the speed of a copy, the rest at
/// that of a read or a write.
double floor_us(traffic const& t) {
  gpu::roof const& roof = gpu::roofs();
  double const both = std::min(t.read, t.written);
  return 1e6 *
         (2 * both / roof.copy + (t.read - both) / roof.read + (t.written - both) / roof.write);
}

void count(benchmark::State& state, series const& s, scene const& made, traffic const& bytes) {
  state.counters["bytes"] = bytes_of(bytes);
  state.counters["chosen"] = s.chosen;
  for (auto const& [name, value] : made.notes) state.counters[name] = value;
}

void run_on_cpu(benchmark::State& state, series const& s) {
  scene made(context_of(s), s.c.copy_bytes < small_bytes ? turns : 1);
  work const w = s.c.make(made);
  int turn = 0;
  for (auto _ : state) {
    check(w.call(turn));
    turn = (turn + 1) % made.copies;
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * std::llround(bytes_of(w.bytes)));
  count(state, s, made, w.bytes);
}

void run_on_gpu(benchmark::State& state, series const& s, int copies, bool cold) {
  scene made(context_of(s), copies);
  work const w = s.c.make(made);
  auto const t = gpu::time_launches([&](int i) { check(w.call(i % copies)); }, copies);
  for (auto _ : state) state.SetIterationTime(t.median * 1e-6);
  count(state, s, made, w.bytes);
  state.counters["us"] = t.median;
  state.counters["us_p10"] = t.p10;
  state.counters["us_p90"] = t.p90;
  state.counters["launches"] = t.launches;
  state.counters["replays"] = t.replays;
  state.counters["floor_us"] = floor_us(w.bytes);
  // The roofs are those of memory: what stays in a cache may be faster.
  if (cold) state.counters["roof_share"] = floor_us(w.bytes) / t.median;
}

template <class Run>
benchmark::internal::Benchmark* enter(series const& s, std::string const& name, Run const& run) {
  return benchmark::RegisterBenchmark(name.c_str(),
                                      [s, run](benchmark::State& state) {
                                        try {
                                          run(state, s);
                                        } catch (std::exception const& e) {
                                          state.SkipWithError(e.what());
                                        }
                                      })
      ->Unit(benchmark::kMicrosecond);
}

void enter_on_gpu(series const& s, int copies, bool cold) {
  enter(s, s.name + (cold ? "/cold" : "/hot"),
        [copies, cold](benchmark::State& state, series const& of) {
          run_on_gpu(state, of, copies, cold);
        })
      ->UseManualTime()
      ->Iterations(1);
}

void enter(series const& s) {
  bool const on_cpu = s.ctx.backend == backend_kind::cpu;
  if (s.c.where == (on_cpu ? place::gpu : place::cpu)) return;
  if (on_cpu) {
    enter(s, s.name, run_on_cpu)->UseRealTime();
    return;
  }
  if (!gpu::available()) return;
  double const bytes = std::max(s.c.copy_bytes, 1.0);
  double const copies = std::ceil(cold_bytes / bytes);
  if (copies <= most_copies) enter_on_gpu(s, static_cast<int>(copies), true);
  if (bytes < small_bytes) {
    enter_on_gpu(s, turns, false);
  } else if (std::max(bytes, s.c.held_bytes) < static_cast<double>(gpu::l2_bytes()) / 2) {
    enter_on_gpu(s, 1, false);
  }
}

ddtree::context context_for(backend_kind backend, char const* variant) {
  ddtree::context ctx = ddtree::context::cpu().with_variant(variant);
  ctx.backend = backend;
  return ctx;
}

/// The variant that would run, "" where none would.
std::string runs(ddtree::context const& ctx, ddtree::operation op,
                 ddtree::round_shape const& shape) {
  char const* const name = ddtree::selected(ctx, op, shape);
  return name == nullptr ? "" : name;
}

std::vector<ddtree::variant_info> variants_of(ddtree::operation op) {
  std::vector<ddtree::variant_info> found;
  for (backend_kind const backend : {backend_kind::cpu, backend_kind::cuda}) {
    std::vector<ddtree::variant_info> all(ddtree::variants(backend, nullptr, 0));
    (void)ddtree::variants(backend, all.data(), all.size());
    for (auto const& v : all) {
      if (v.op == op) found.push_back(v);
    }
  }
  return found;
}

}  // namespace

void add(ddtree::operation op, benchmark_case const& c) {
  static std::deque<std::string> texts;  // with_variant keeps the pointer
  std::string const name = ddtree::name(op);
  for (ddtree::variant_info const& v : variants_of(op)) {
    if (v.backend == backend_kind::cuda && !gpu::available()) continue;
    texts.push_back(name + "=" + v.name);
    series s{name + "/" + v.name + "/" + c.name, context_for(v.backend, texts.back().c_str()), c};
    if (runs(context_of(s), op, c.shape) != v.name) continue;  // it cannot run this shape
    s.chosen = runs(context_of(s).with_variant(nullptr), op, c.shape) == v.name;
    enter(s);
  }
}

void add_composite(std::string const& op, benchmark_case const& c) {
  char const* const variant = std::getenv("DDTREE_VARIANT");
  enter({op + "/cpu/" + c.name, context_for(backend_kind::cpu, nullptr), c, true});
  enter({op + "/cuda/" + c.name, context_for(backend_kind::cuda, variant), c, true});
}

void add_peer(ddtree::operation op, std::string const& variant, backend_kind backend,
              benchmark_case const& c) {
  enter({std::string(ddtree::name(op)) + "/" + variant + "/" + c.name,
         context_for(backend, nullptr), c});
}

}  // namespace bench
