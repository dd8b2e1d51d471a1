// SPDX-License-Identifier: Apache-2.0
// The library's part of a whole round, greedy, with a bit mask. The target follows the tree for six
// nodes, or as far as it reaches.
#include "ddtree/round.hpp"

#include "cases.hpp"
#include "support/cache.hpp"
#include "support/names.hpp"
#include "support/series.hpp"
#include "support/trees.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::dtype;
using ddtree::index_t;

constexpr std::int32_t cache_length = 40;

void check(ddtree::status const& s) {
  if (!s) throw std::runtime_error(s.message);
}

struct round_case {
  ddtree::round_shape shape;
  dtype type = dtype::bf16;
  bool with_cache = true;

  double logit_bytes() const { return static_cast<double>(shape.vocab * bytes_of(type)); }
  /// Draft rows, seven visited rows of the target, six moved rows of the cache.
  traffic bytes() const {
    double const moved =
        with_cache ? static_cast<double>(accepted_nodes * qwen3_8b.token_bytes()) : 0.0;
    auto const b = static_cast<double>(shape.batch);
    return {b * ((shape.depth + accepted_nodes + 1) * logit_bytes() + moved), b * moved};
  }
  std::string name() const {
    return label(type) + "/" +
           labels({{"batch", shape.batch},
                   {"vocab", shape.vocab},
                   {"k", shape.top_k},
                   {"budget", shape.budget}});
  }
};

/// What an engine has. The requests of a batch are those of its copy.
class engine {
 public:
  engine(scene& s, round_case const& c)
      : shape_(pool_shape(c.shape, s.copies)),
        cache_len_(s.filled(shape_.requests, cache_length)),
        committed_(s.filled(shape_.requests, cache_length)),
        root_(s.filled<ddtree::token_t>(shape_.batch, 1)) {
    auto const memory = s.scratch(ddtree::decoding_round::bytes(s.ctx, shape_));
    check(ddtree::decoding_round::create(s.ctx, shape_, memory, &round_));
    if (c.with_cache) {
      cache_ = kv_pool(s, qwen3_8b, shape_.requests, cache_length + shape_.width()).view();
    }
    index_t const rows = shape_.batch * shape_.width();
    inputs_ = {s.array<std::int32_t>(rows), s.array<std::int32_t>(rows),
               s.array<std::int32_t>(rows)};
    mask_.data = s.array<std::uint32_t>(rows * shape_.words());
    for (int copy = 0; copy < s.copies; ++copy) add_copy(s, c, copy);
  }

  ddtree::status play(int copy) const {
    auto s = draft(copy);
    if (s) s = round_.accept(batches_[sized(copy)], targets_[sized(copy)]);
    // Lengths of its own to advance, so that every replay starts with the same.
    if (s) s = round_.commit(batches_[sized(copy)], cache_, committed_);
    return s;
  }

 private:
  static ddtree::round_shape pool_shape(ddtree::round_shape s, int copies) {
    s.requests = s.batch * copies;
    return s;
  }

  ddtree::status draft(int copy) const {
    return round_.draft(batches_[sized(copy)], drafts_[sized(copy)], root_, inputs_, mask_);
  }

  void add_copy(scene& s, round_case const& c, int copy) {
    std::vector<std::int32_t> request;
    for (index_t b = 0; b < shape_.batch; ++b) {
      request.push_back(static_cast<std::int32_t>(copy * shape_.batch + b));
    }
    batches_.push_back({cache_len_, s.array(request)});
    auto const seed = static_cast<std::uint32_t>(2 * copy);
    drafts_.push_back(
        {s.logits({logit_kind::peaked, c.type, shape_.batch * shape_.depth, shape_.vocab, seed}),
         c.type});
    void* const target = s.logits(
        {logit_kind::normal, c.type, shape_.batch * shape_.width(), shape_.vocab, seed + 1});
    targets_.push_back({target, c.type});
    check(draft(copy));
    s.set_logits(target, c.type, draw_walks(s, shape_, round_.tree), winning_logit);
  }

  ddtree::round_shape shape_;
  std::int32_t *cache_len_, *committed_;
  ddtree::token_t* root_;
  ddtree::decoding_round round_;
  ddtree::kv_cache cache_;
  ddtree::verify_inputs inputs_;
  ddtree::mask_view mask_;
  std::vector<ddtree::batch_view> batches_;
  std::vector<ddtree::logits_view> drafts_, targets_;
};

work make(scene& s, round_case const& c) {
  engine const e(s, c);
  return {c.bytes(), [e](int copy) { return e.play(copy); }};
}

void series(place where, round_case const& c) {
  auto const bytes = c.bytes();
  add_composite(
      "round",
      {where, c.name(), c.shape, bytes.read + bytes.written, [c](scene& s) { return make(s, c); },
       static_cast<double>(c.shape.batch * (c.shape.depth + c.shape.width())) * c.logit_bytes()});
}

ddtree::round_shape shape_of(index_t batch, std::int32_t budget) {
  return {.batch = batch, .vocab = 151936, .depth = 15, .top_k = 64, .budget = budget};
}

}  // namespace

void add_round_cases() {
  for (std::int32_t const budget : {0, 64, 256}) {
    series(place::cpu, {shape_of(1, budget), dtype::f32, false});
  }
  for (index_t const batch : {1, 64}) series(place::gpu, {shape_of(batch, 64)});
}

}  // namespace bench
