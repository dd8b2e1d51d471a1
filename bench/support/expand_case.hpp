// SPDX-License-Identifier: Apache-2.0
// One shape of expand: its inputs, its outputs and its bytes, for the library and for its peers.
#pragma once

#include "ddtree/tree.hpp"

#include "support/logit.hpp"
#include "support/names.hpp"
#include "support/series.hpp"

#include <functional>
#include <string>

namespace bench {

struct expand_case {
  expand_case(ddtree::index_t rows, std::int32_t top_k, ddtree::dtype dtype = ddtree::dtype::bf16,
              ddtree::index_t vocab = 151936)
      : type(dtype) {
    shape.depth = rows % 15 == 0 ? 15 : 13;
    shape.batch = rows / shape.depth;
    shape.vocab = vocab;
    shape.top_k = top_k;
  }

  ddtree::index_t rows() const { return shape.batch * shape.depth; }
  double logit_bytes() const { return static_cast<double>(rows() * shape.vocab * bytes_of(type)); }
  traffic bytes() const {
    return {logit_bytes(), static_cast<double>(rows() * shape.top_k * 8 + shape.batch * 4)};
  }

  void* draft_logits(scene& s, int copy) const {
    return s.logits({kind, type, rows(), shape.vocab, static_cast<std::uint32_t>(copy)});
  }
  ddtree::candidates outputs(scene& s) const {
    return {s.array<ddtree::token_t>(rows() * shape.top_k), s.array<float>(rows() * shape.top_k),
            s.array<std::uint32_t>(shape.batch)};
  }

  benchmark_case with(place where, std::function<work(scene&)> make) const {
    return {where, name(), shape, logit_bytes(), std::move(make)};
  }

  std::string name() const {
    return label(type) + "/" +
           labels({{"rows", rows()}, {"vocab", shape.vocab}, {"k", shape.top_k}}) + suffix(kind);
  }

  ddtree::round_shape shape;
  ddtree::dtype type;
  logit_kind kind = logit_kind::normal;
};

/// The toolkit's own parts put together; with DDTREE_BENCH_PEERS.
work cub_expand(scene& s, expand_case const& c);

}  // namespace bench
