// SPDX-License-Identifier: Apache-2.0
// The accept calls over trees of peaked candidates. The target follows each tree for six nodes, so
// that a walk visits seven rows; the least that an operation reads are those.
#include "ddtree/accept.hpp"

#include "cases.hpp"
#include "support/names.hpp"
#include "support/series.hpp"
#include "support/trees.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::dtype;
using ddtree::index_t;
using ddtree::operation;

struct filters {
  float temperature = 0.0f;
  std::int32_t top_k = 0;
  float top_p = 1.0f, min_p = 0.0f;

  /// Those that are on, each with a slash before it.
  std::string name() const {
    char text[64] = "";
    int n = 0;
    if (top_k != 0) n += std::snprintf(text + n, 20, "/k:%d", top_k);
    if (top_p != 1.0f) n += std::snprintf(text + n, 20, "/p:%g", double(top_p));
    if (min_p != 0.0f) n += std::snprintf(text + n, 20, "/min_p:%g", double(min_p));
    return text;
  }
};

struct accept_case {
  ddtree::round_shape shape;
  filters how;
  logit_kind kind = logit_kind::normal;
  bool log_prob = false;
  dtype type = dtype::bf16;

  index_t rows() const { return shape.batch * shape.width(); }
  double row_bytes() const { return static_cast<double>(shape.vocab * bytes_of(type)); }
  double visited_bytes() const {
    return static_cast<double>(shape.batch * (accepted_nodes + 1)) * row_bytes();
  }
  std::string name() const {
    return labels({{"batch", shape.batch}, {"budget", shape.budget}}) + how.name() + suffix(kind) +
           (log_prob ? "/log_prob:1" : "");
  }
};

ddtree::accepted accepted_arrays(scene& s, ddtree::round_shape const& shape, bool log_prob) {
  auto const block = s.scratch(ddtree::accepted_bytes(shape));
  ddtree::accepted out;
  (void)ddtree::bind_accepted(shape, block, &out);
  if (!log_prob) out.log_prob = nullptr;
  return out;
}

ddtree::sampling sampling_of(scene& s, accept_case const& c) {
  ddtree::sampling how;
  if (c.how.temperature == 0.0f) return how;
  index_t const n = c.shape.batch;
  how.temperature = s.filled(n, c.how.temperature);
  if (c.how.top_k != 0) how.top_k = s.filled(n, c.how.top_k);
  if (c.how.top_p != 1.0f) how.top_p = s.filled(n, c.how.top_p);
  if (c.how.min_p != 0.0f) how.min_p = s.filled(n, c.how.min_p);
  how.seed = s.filled<std::int64_t>(n, 1);
  return how;
}

work make_logits(scene& s, accept_case const& c) {
  auto const tree = draw_trees(s, c.shape);
  auto const winners = draw_walks(s, c.shape, tree);
  std::vector<ddtree::logits_view> targets;
  for (int i = 0; i < s.copies; ++i) {
    void* const logits =
        s.logits({c.kind, c.type, c.rows(), c.shape.vocab, static_cast<std::uint32_t>(i)});
    s.set_logits(logits, c.type, winners, winning_logit);
    targets.push_back({logits, c.type});
  }
  auto const how = sampling_of(s, c);
  auto* const cache_len = s.filled<std::int32_t>(c.shape.batch, 100);
  auto const out = accepted_arrays(s, c.shape, c.log_prob);
  bool const sampled = how.temperature != nullptr;
  auto const scratch = s.scratch(sampled ? ddtree::accept_sampled_workspace_bytes(s.ctx, c.shape)
                                         : ddtree::accept_greedy_workspace_bytes(s.ctx, c.shape));
  auto const visited = static_cast<double>(winners.size() + sized(c.shape.batch));
  s.note("rows_visited", visited);
  traffic const bytes{visited * c.row_bytes(),
                      static_cast<double>(ddtree::accepted_bytes(c.shape))};
  return {bytes, [=, ctx = s.ctx](int copy) {
            auto const& target = targets[sized(copy)];
            return sampled ? ddtree::accept_sampled(ctx, c.shape, {cache_len}, tree, target, how,
                                                    out, scratch)
                           : ddtree::accept_greedy(ctx, c.shape, {cache_len}, tree, target, out,
                                                   scratch);
          }};
}

work make_tokens(scene& s, accept_case const& c) {
  auto const tree = draw_trees(s, c.shape);
  std::vector<ddtree::token_t> token(sized(c.rows()), 0);
  for (index_t const at : draw_walks(s, c.shape, tree)) {
    token[sized(at / c.shape.vocab)] = static_cast<ddtree::token_t>(at % c.shape.vocab);
  }
  auto* const target = s.array(token);
  auto const out = accepted_arrays(s, c.shape, false);
  traffic const bytes{static_cast<double>(c.shape.batch * (accepted_nodes + 1) * 4),
                      static_cast<double>(ddtree::accepted_bytes(c.shape))};
  return {bytes, [=, ctx = s.ctx](int) {
            return ddtree::accept_tokens(ctx, c.shape, {}, tree, target, out);
          }};
}

void series(place where, accept_case const& c) {
  auto const op = c.how.temperature == 0.0f ? operation::accept_greedy : operation::accept_sampled;
  add(op, {where, c.name(), c.shape, c.visited_bytes(), [c](scene& s) { return make_logits(s, c); },
           static_cast<double>(c.rows()) * c.row_bytes()});
}

ddtree::round_shape shape_of(index_t batch, std::int32_t budget) {
  return {.batch = batch, .vocab = 151936, .depth = 15, .top_k = 64, .budget = budget};
}

constexpr filters temperature_only{1.0f}, top_k_top_p{1.0f, 50, 0.9f};

void on_cpu() {
  auto const shape = shape_of(1, 64);
  series(place::cpu, {shape, {}});
  series(place::cpu, {shape, {}, logit_kind::normal, true});
  series(place::cpu, {shape, temperature_only});
  series(place::cpu, {shape, top_k_top_p});
  series(place::cpu, {shape, {1.0f, 1000}});
  series(place::cpu, {shape, {1.0f, 0, 0.9f}});
  series(place::cpu, {shape, {1.0f, 0, 1.0f, 0.05f}});
}

void on_gpu() {
  for (index_t const batch : {1, 64}) {
    auto const shape = shape_of(batch, 64);
    series(place::gpu, {shape, {}});
    for (logit_kind const kind : {logit_kind::normal, logit_kind::peaked}) {
      series(place::gpu, {shape, top_k_top_p, kind});
      series(place::gpu, {shape, temperature_only, kind});
    }
    series(place::gpu, {shape, {1.0f, 0, 0.9f}});
  }
  series(place::gpu, {shape_of(1, 64), {}, logit_kind::normal, true});
  series(place::gpu, {shape_of(1, 1024), {}});
  series(place::gpu, {shape_of(64, 256), {}});
  series(place::gpu, {shape_of(256, 256), {}});
}

}  // namespace

void add_accept_cases() {
  for (index_t const batch : {1, 64}) {
    for (std::int32_t const budget : {64, 1024}) {
      accept_case const c{shape_of(batch, budget), {}};
      add(operation::accept_tokens,
          {place::gpu, c.name(), c.shape, 0, [c](scene& s) { return make_tokens(s, c); }});
    }
  }
  on_cpu();
  on_gpu();
}

}  // namespace bench
