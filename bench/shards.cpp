// SPDX-License-Identifier: Apache-2.0
// What one rank of a tensor-parallel group does: expand or accept over its shard, an exchange of
// contributions and the merge, against an exchange of logits and the call over whole rows. On one
// GPU a copy stands for the exchange: it moves the bytes at the speed of the memory, which no link
// between GPUs has, so that what exchanges more looks better here than it is.
#include "ddtree/accept.hpp"
#include "ddtree/expand.hpp"

#include "cases.hpp"
#include "support/gpu.hpp"
#include "support/names.hpp"
#include "support/series.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

namespace {

using ddtree::dtype;
using ddtree::index_t;
using ddtree::operation;

constexpr dtype type = dtype::bf16;

void check(ddtree::status const& s) {
  if (!s) throw std::runtime_error(s.message);
}

struct shard_case {
  ddtree::round_shape shape;
  index_t ranks;

  index_t columns() const { return shape.vocab / ranks; }
  index_t row_bytes() const { return columns() * bytes_of(type); }
  std::string name() const {
    return labels({{"vocab", shape.vocab}, {"batch", shape.batch}, {"ranks", ranks}});
  }
};

ddtree::vocab_ranges columns_of(shard_case const& c, index_t rank) {
  return {{{0, c.columns(), rank * c.columns()}, {}}};
}

/// The bytes that a rank receives for `sent` bytes from each.
void note_exchange(scene& s, shard_case const& c, double sent) {
  s.note("exchanged_bytes", static_cast<double>(c.ranks - 1) * sent);
}

/// The two calls of an operation over shards, and the one over whole rows.
struct expand_side {
  static constexpr operation shard_op = operation::expand_shard;
  static constexpr operation merge_op = operation::expand_merge;
  static constexpr char const* name = "expand_sharded";
  static constexpr char const* filters = "";

  expand_side(scene& s, shard_case const& of) : ctx(s.ctx), c(of) {
    index_t const slots = c.shape.batch * c.shape.depth * c.shape.top_k;
    out = {s.array<ddtree::token_t>(slots), s.array<float>(slots),
           s.array<std::uint32_t>(c.shape.batch)};
    scratch = s.scratch(std::max({ddtree::expand_workspace_bytes(ctx, c.shape),
                                  ddtree::expand_shard_workspace_bytes(ctx, c.shape),
                                  ddtree::expand_merge_workspace_bytes(ctx, c.shape, c.ranks)}));
  }

  static index_t rows(ddtree::round_shape const& shape) { return shape.batch * shape.depth; }
  index_t rows_read() const { return rows(c.shape); }
  std::size_t contribution_bytes() const { return ddtree::expand_shard_bytes(c.shape); }
  std::vector<index_t> winners() const { return {}; }

  ddtree::status shard(void const* logits, index_t rank, ddtree::shard_out to) const {
    ddtree::logits_view view{logits, type};
    view.vocab = c.columns();
    return ddtree::expand_shard(ctx, c.shape, {}, view, columns_of(c, rank), to, scratch);
  }
  ddtree::status merge(void const* all) const {
    return ddtree::expand_merge(ctx, c.shape, {}, {all, c.ranks, 0}, out, scratch);
  }
  ddtree::status whole(void const* logits) const {
    return ddtree::expand(ctx, c.shape, {}, {logits, type}, out, scratch);
  }

  ddtree::context ctx;
  shard_case c;
  ddtree::candidates out;
  ddtree::workspace scratch;
};

/// Greedy, or sampled with filters; the target follows each tree for six nodes.
template <bool Sampled>
struct accept_side {
  static constexpr operation shard_op = operation::accept_shard;
  static constexpr operation merge_op = operation::accept_merge;
  static constexpr char const* name = "accept_sharded";
  static constexpr char const* filters = Sampled ? "/k:50/p:0.9" : "";

  accept_side(scene& s, shard_case const& of)
      : ctx(s.ctx), c(of), tree(draw_trees(s, c.shape)), elements(draw_walks(s, c.shape, tree)) {
    check(ddtree::bind_accepted(c.shape, s.scratch(ddtree::accepted_bytes(c.shape)), &out));
    out.log_prob = nullptr;
    batch = {s.filled<std::int32_t>(c.shape.batch, 100)};
    if (Sampled) {
      how.temperature = s.filled(c.shape.batch, 1.0f);
      how.top_k = s.filled(c.shape.batch, 50);
      how.top_p = s.filled(c.shape.batch, 0.9f);
      how.seed = s.filled<std::int64_t>(c.shape.batch, 1);
      how.max_top_k = 64;
    }
    scratch = s.scratch(std::max({ddtree::accept_greedy_workspace_bytes(ctx, c.shape),
                                  ddtree::accept_sampled_workspace_bytes(ctx, c.shape),
                                  ddtree::accept_shard_workspace_bytes(ctx, c.shape),
                                  ddtree::accept_merge_workspace_bytes(ctx, c.shape, c.ranks)}));
  }

  static index_t rows(ddtree::round_shape const& shape) { return shape.batch * shape.width(); }
  index_t rows_read() const { return static_cast<index_t>(elements.size()) + c.shape.batch; }
  std::size_t contribution_bytes() const { return ddtree::accept_shard_bytes(c.shape, how); }
  std::vector<index_t> const& winners() const { return elements; }

  ddtree::status shard(void const* logits, index_t rank, ddtree::shard_out to) const {
    ddtree::logits_view view{logits, type};
    view.vocab = c.columns();
    return ddtree::accept_shard(ctx, c.shape, batch, tree, view, columns_of(c, rank), how, to,
                                scratch);
  }
  ddtree::status merge(void const* all) const {
    return ddtree::accept_merge(ctx, c.shape, batch, tree, {all, c.ranks, 0}, how, out, scratch);
  }
  ddtree::status whole(void const* logits) const {
    ddtree::logits_view const target{logits, type};
    return Sampled ? ddtree::accept_sampled(ctx, c.shape, batch, tree, target, how, out, scratch)
                   : ddtree::accept_greedy(ctx, c.shape, batch, tree, target, out, scratch);
  }

  ddtree::context ctx;
  shard_case c;
  ddtree::draft_tree tree;
  std::vector<index_t> elements;
  ddtree::batch_view batch;
  ddtree::sampling how;
  ddtree::accepted out;
  ddtree::workspace scratch;
};

/// A rank's logits, with the winners among its columns raised.
template <class Side>
void* shard_logits(scene& s, Side const& side, index_t rank, std::uint32_t seed) {
  shard_case const& c = side.c;
  void* const logits = s.logits({logit_kind::normal, type, Side::rows(c.shape), c.columns(), seed});
  std::vector<index_t> mine;
  for (index_t const at : side.winners()) {
    index_t const row = at / c.shape.vocab, column = at % c.shape.vocab - rank * c.columns();
    if (column >= 0 && column < c.columns()) mine.push_back(row * c.columns() + column);
  }
  s.set_logits(logits, type, mine, winning_logit);
  return logits;
}

/// What the ranks send, rank after rank.
template <class Side>
unsigned char* contributions(scene& s, Side const& side) {
  std::size_t const bytes = side.contribution_bytes();
  auto* const sent = static_cast<unsigned char*>(s.bytes(bytes * sized(side.c.ranks)));
  for (index_t rank = 0; rank < side.c.ranks; ++rank) {
    void* const logits = shard_logits(s, side, rank, static_cast<std::uint32_t>(rank));
    check(side.shard(logits, rank, {sent + sized(rank) * bytes, bytes}));
  }
  return sent;
}

/// The first rank's logits, for calls to take turns.
template <class Side>
std::vector<void*> own_logits(scene& s, Side const& side) {
  std::vector<void*> own;
  for (int i = 0; i < s.copies; ++i) {
    own.push_back(shard_logits(s, side, 0, static_cast<std::uint32_t>(100 + i)));
  }
  return own;
}

template <class Side>
double shard_bytes(shard_case const& c) {
  return static_cast<double>(Side::rows(c.shape) * c.row_bytes());
}

template <class Side>
work make_shard(scene& s, shard_case const& c) {
  Side const side(s, c);
  auto const own = own_logits(s, side);
  auto const sent = s.scratch(side.contribution_bytes());
  return {{shard_bytes<Side>(c), static_cast<double>(sent.bytes)}, [=](int copy) {
            return side.shard(own[sized(copy)], 0, {sent.data, sent.bytes});
          }};
}

template <class Side>
work make_merge(scene& s, shard_case const& c) {
  Side const side(s, c);
  auto* const sent = contributions(s, side);
  auto const bytes = static_cast<double>(side.contribution_bytes()) * static_cast<double>(c.ranks);
  return {{bytes, 0}, [=](int) { return side.merge(sent); }};
}

template <class Side>
work make_exchange_of_contributions(scene& s, shard_case const& c) {
  Side const side(s, c);
  std::size_t const bytes = side.contribution_bytes();
  auto* const sent = contributions(s, side);
  void* const all = s.bytes(bytes * sized(c.ranks));
  auto const own = own_logits(s, side);
  note_exchange(s, c, static_cast<double>(bytes));
  double const exchanged = static_cast<double>(bytes) * static_cast<double>(c.ranks);
  return {{shard_bytes<Side>(c) + exchanged, exchanged}, [=](int copy) {
            auto status = side.shard(own[sized(copy)], 0, {sent, bytes});
            if (!status) return status;
            gpu::gather(all, sent, c.ranks, 1, static_cast<index_t>(bytes));
            return side.merge(all);
          }};
}

template <class Side>
work make_exchange_of_logits(scene& s, shard_case const& c) {
  Side const side(s, c);
  index_t const rows = Side::rows(c.shape);
  std::vector<void*> sent;
  for (int i = 0; i < s.copies; ++i) {
    void* const logits = s.logits({logit_kind::normal, type, rows * c.ranks, c.columns(),
                                   static_cast<std::uint32_t>(100 + i)});
    std::vector<index_t> raised;
    for (index_t const at : side.winners()) {
      index_t const row = at / c.shape.vocab, id = at % c.shape.vocab;
      raised.push_back((id / c.columns() * rows + row) * c.columns() + id % c.columns());
    }
    s.set_logits(logits, type, raised, winning_logit);
    sent.push_back(logits);
  }
  void* const all = s.bytes(sized(rows * c.ranks * c.row_bytes()));
  note_exchange(s, c, shard_bytes<Side>(c));
  double const whole = static_cast<double>(c.ranks) * shard_bytes<Side>(c);
  double const read = static_cast<double>(side.rows_read() * c.ranks * c.row_bytes());
  return {{whole + read, whole}, [=](int copy) {
            gpu::gather(all, sent[sized(copy)], c.ranks, rows, c.row_bytes());
            return side.whole(all);
          }};
}

template <class Side>
void exchange_series(shard_case const& c) {
  add_composite(Side::name, {place::gpu, "exchange:contributions/" + c.name() + Side::filters,
                             c.shape, shard_bytes<Side>(c),
                             [c](scene& s) { return make_exchange_of_contributions<Side>(s, c); }});
  add_composite(Side::name, {place::gpu, "exchange:logits/" + c.name() + Side::filters, c.shape,
                             shard_bytes<Side>(c) * static_cast<double>(c.ranks),
                             [c](scene& s) { return make_exchange_of_logits<Side>(s, c); }});
}

template <class Side>
void call_series(shard_case const& c) {
  add(Side::shard_op, {place::gpu, c.name() + Side::filters, c.shape, shard_bytes<Side>(c),
                       [c](scene& s) { return make_shard<Side>(s, c); }});
  add(Side::merge_op, {place::gpu, c.name() + Side::filters, c.shape, 0,
                       [c](scene& s) { return make_merge<Side>(s, c); }});
}

template <class Side>
void add_side() {
  for (index_t const vocab : {151936, 163840}) {
    for (index_t const batch : {1, 8, 64}) {
      for (index_t const ranks : {2, 4, 8}) {
        shard_case const c{{.batch = batch, .vocab = vocab, .depth = 15, .top_k = 64, .budget = 64},
                           ranks};
        if (ranks == 8 && vocab == 151936) call_series<Side>(c);
        exchange_series<Side>(c);
      }
    }
  }
}

}  // namespace

void add_shard_cases() {
  add_side<expand_side>();
  add_side<accept_side<false>>();
  add_side<accept_side<true>>();
}

}  // namespace bench
