// SPDX-License-Identifier: Apache-2.0
// expand, and what it is measured against on the CPU: a log-softmax of every row, then
// std::partial_sort.
#include "ddtree/expand.hpp"

#include "cases.hpp"
#include "support/expand_case.hpp"
#include "support/series.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::dtype;
using ddtree::index_t;
using ddtree::operation;

/// One row the plain way: maximum, sum of exponentials, log-probs, and the best k ids.
void log_softmax_top_k(float const* x, std::int64_t k, std::vector<float>& log_prob,
                       std::vector<std::int32_t>& ids) {
  std::size_t const n = ids.size();
  float const max = *std::max_element(x, x + n);
  float sum = 0.0f;
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  float const lse = max + std::log(sum);
  for (std::size_t i = 0; i < n; ++i) log_prob[i] = x[i] - lse;
  std::iota(ids.begin(), ids.end(), 0);
  auto const value = [&](std::int32_t id) { return log_prob[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), [&](std::int32_t a, std::int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
}

work baseline(scene& s, expand_case const& c) {
  auto const* const logits = static_cast<float const*>(c.draft_logits(s, 0));
  std::vector<float> log_prob(sized(c.shape.vocab));
  std::vector<std::int32_t> ids(log_prob.size());
  return {c.bytes(), [=](int) mutable {
            for (index_t row = 0; row < c.rows(); ++row) {
              log_softmax_top_k(logits + row * c.shape.vocab, c.shape.top_k, log_prob, ids);
            }
            return ddtree::status();
          }};
}

work make(scene& s, expand_case const& c) {
  std::vector<void const*> drafts;
  for (int i = 0; i < s.copies; ++i) drafts.push_back(c.draft_logits(s, i));
  auto const out = c.outputs(s);
  auto const scratch = s.scratch(ddtree::expand_workspace_bytes(s.ctx, c.shape));
  return {c.bytes(), [=, ctx = s.ctx](int copy) {
            return ddtree::expand(ctx, c.shape, {}, {drafts[sized(copy)], c.type}, out, scratch);
          }};
}

void series(place where, expand_case const& c) {
  add(operation::expand, c.with(where, [c](scene& s) { return make(s, c); }));
#if defined(DDTREE_BENCH_PEERS)
  // A sort of more rows takes seconds.
  if (where == place::gpu && c.kind == logit_kind::normal && c.rows() <= 960) {
    add_peer(operation::expand, "cub", ddtree::backend_kind::cuda,
             c.with(where, [c](scene& s) { return cub_expand(s, c); }));
  }
#endif
}

void on_cpu() {
  for (std::int32_t const k : {64, 1, 1024}) {
    expand_case const c(15, k, dtype::f32);
    series(place::cpu, c);
    add_peer(operation::expand, "baseline_log_softmax_partial_sort", ddtree::backend_kind::cpu,
             c.with(place::cpu, [c](scene& s) { return baseline(s, c); }));
  }
  for (std::int32_t const k : {64, 1, 1024}) series(place::cpu, expand_case(15, k));
}

void on_gpu() {
  for (index_t const rows : {15, 65, 240, 960, 3840}) series(place::gpu, expand_case(rows, 64));
  series(place::gpu, expand_case(240, 64, dtype::f32, 262144));
  for (index_t const rows : {15, 240, 960}) {
    for (std::int32_t const k : {16, 256, 1024}) series(place::gpu, expand_case(rows, k));
  }
  for (index_t const rows : {15, 960}) {
    for (logit_kind const kind :
         {logit_kind::peaked, logit_kind::integers, logit_kind::equal, logit_kind::ascending,
          logit_kind::descending, logit_kind::one_hot, logit_kind::stripe}) {
      expand_case c(rows, 64);
      c.kind = kind;
      series(place::gpu, c);
    }
  }
}

}  // namespace

void add_expand_cases() {
  on_cpu();
  on_gpu();
}

}  // namespace bench
