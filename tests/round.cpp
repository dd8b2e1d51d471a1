// SPDX-License-Identifier: Apache-2.0
#include "ddtree/round.hpp"

#include "ddtree/ddtree.hpp"

#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/toy_engine.hpp"
#include "support/trees.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace ddtree_test;
using ddtree::context;
using ddtree::decoding_round;
using ddtree::errc;
using ddtree::index_t;
using ddtree::round_options;
using ddtree::round_shape;

round_shape toy_shape(std::int32_t depth = 4, std::int32_t budget = 9) {
  return {.batch = 4, .vocab = 23, .depth = depth, .top_k = 5, .budget = budget, .requests = 5};
}

/// The toy engine with a round over memory of its own.
struct served {
  served(context const& ctx, round_shape const& shape, std::vector<std::int32_t> requests,
         round_options options = {}, std::size_t shift = 0, unsigned char fill = poison_byte)
      : engine(ctx, shape, std::move(requests)),
        memory(ctx, decoding_round::bytes(ctx, shape) + shift),
        options_in_use(options) {
    std::vector<unsigned char> const filled(memory.size(), fill);
    memory.assign(filled);
    options_in_use.verify.table = engine.kv_table();
    REQUIRE(decoding_round::create(ctx, shape, {memory.data() + shift, memory.bytes() - shift},
                                   &round, options_in_use));
    for (std::size_t r = 0; r < engine.sequence.size(); ++r) {
      tokens prompt;
      for (std::size_t i = 0; i < 5 + r; ++i) {
        prompt.push_back(static_cast<ddtree::token_t>((i * i + r) % 23));
      }
      engine.prefill(r, prompt);
    }
    for (std::int32_t r : engine.requests) roots.push_back(r < 0 ? -1 : (r * 3 + 1) % 23);
    std::copy(roots.begin(), roots.end(), round.accepted_.bonus);
  }

  ddtree::status draft() {
    engine.draft(roots);
    return round.draft(engine.batch(), engine.draft_view(), round.accepted_.bonus, engine.inputs(),
                       engine.mask_view());
  }

  /// Reads a block and keeps the books: roots and what the cache holds. Returns the tokens that
  /// each row of the batch emitted.
  std::vector<tokens> read(ddtree::accepted const& block) {
    std::vector<tokens> emitted(roots.size());
    index_t const row = index_t{round.shape.depth} + 1;
    for (std::size_t b = 0; b < roots.size(); ++b) {
      std::int32_t const n = block.num_accepted[b];
      if (n < 0) continue;
      ddtree::token_t const* const token = block.token + index_t(b) * row;
      emitted[b].assign(token, token + n + 1);
      tokens committed{roots[b]};
      committed.insert(committed.end(), token, token + n);
      engine.append(sized(engine.requests[b]), committed);
      roots[b] = block.bonus[b];
    }
    return emitted;
  }

  toy_engine engine;
  buffer<unsigned char> memory;
  round_options options_in_use;
  decoding_round round;
  tokens roots;
};

template <class T>
std::vector<T> copy_of(T const* data, index_t count) {
  return {data, data + count};
}

/// Everything that a round's steps leave in its arrays, without padding, by batch row.
struct round_state {
  std::vector<ddtree::token_t> candidate, tree_token, accepted_token, bonus;
  std::vector<std::uint32_t> log_prob, weight, ancestors, accepted_log_prob, flags;
  std::vector<std::int32_t> parent, depth, rank, first_child, next_sibling, num_nodes, path, count;

  bool operator==(round_state const&) const = default;
};

std::vector<std::uint32_t> bits_of(float const* data, index_t count) {
  std::vector<std::uint32_t> out(sized(count));
  if (count != 0) std::memcpy(out.data(), data, out.size() * 4);
  return out;
}

/// The state of `rows` batch rows from row b on.
round_state state_of(round_shape const& s, ddtree::candidates const& c, ddtree::draft_tree const& t,
                     ddtree::accepted const& a, index_t b, index_t rows) {
  index_t const k = index_t{s.depth} * s.top_k, w = s.width(), p = index_t{s.depth} + 1;
  round_state out;
  out.candidate = copy_of(c.token + b * k, rows * k);
  out.log_prob = bits_of(c.log_prob + b * k, rows * k);
  out.tree_token = copy_of(t.token + b * w, rows * w);
  out.parent = copy_of(t.parent + b * w, rows * w);
  out.depth = copy_of(t.depth + b * w, rows * w);
  out.rank = copy_of(t.rank + b * w, rows * w);
  out.weight = bits_of(t.log_weight + b * w, rows * w);
  out.first_child = copy_of(t.first_child + b * w, rows * w);
  out.next_sibling = copy_of(t.next_sibling + b * w, rows * w);
  out.ancestors = copy_of(t.ancestors + b * w * s.words(), rows * w * s.words());
  out.num_nodes = copy_of(t.num_nodes + b, rows);
  out.path = copy_of(a.path + b * p, rows * p);
  out.count = copy_of(a.num_accepted + b, rows);
  out.accepted_token = copy_of(a.token + b * p, rows * p);
  out.bonus = copy_of(a.bonus + b, rows);
  if (a.log_prob != nullptr) out.accepted_log_prob = bits_of(a.log_prob + b * p, rows * p);
  for (auto const* flags : {c.flags, t.flags, a.flags}) {
    out.flags.insert(out.flags.end(), flags + b, flags + b + rows);
  }
  return out;
}

round_state state_of(decoding_round const& r) {
  return state_of(r.shape, r.candidates_, r.tree, r.accepted_, 0, r.shape.batch);
}

/// Sampling parameters of the toy engine's pool.
struct toy_sampling {
  explicit toy_sampling(context const& ctx)
      : temperature(ctx, {0.8f, 1.3f, 0.0f, 0.6f, 1.0f}),
        top_p(ctx, {0.95f, 1.0f, 0.5f, 0.9f, 0.7f}),
        top_k(ctx, {0, 7, 3, 23, 12}),
        seed(ctx, {11, -5, 7, std::int64_t{1} << 40, 99}) {}
  ddtree::sampling view() {
    ddtree::sampling how;
    how.temperature = temperature.data();
    how.top_p = top_p.data();
    how.top_k = top_k.data();
    how.seed = seed.data();
    return how;
  }
  buffer<float> temperature, top_p;
  buffer<std::int32_t> top_k;
  buffer<std::int64_t> seed;
};

std::vector<std::int32_t> const usual_requests{3, 0, -1, 1};

/// A few rounds; returns the state after each.
std::vector<round_state> play(served& s, ddtree::sampling const& how, int rounds) {
  std::vector<round_state> out;
  for (int i = 0; i < rounds; ++i) {
    REQUIRE(s.draft());
    s.engine.forward();
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view(), how));
    s.read(s.round.accepted_);
    out.push_back(state_of(s.round));
    REQUIRE(s.round.commit(s.engine.batch(), s.engine.kv(), s.engine.lengths.data()));
    REQUIRE(s.engine.intact());
    REQUIRE(s.memory.intact());
  }
  return out;
}

struct decoded {
  std::vector<tokens> text;  // by batch row
  int rounds = 0;
};

/// Decodes until every request has emitted its share: 20 tokens, a few more or less.
decoded decode(context const& ctx, round_shape const& shape, bool sampled) {
  buffer<std::int32_t> remaining(ctx, std::vector<std::int32_t>{20, 23, 0, 17, 0});
  round_options options;
  options.accept.remaining = remaining.data();
  served s(ctx, shape, usual_requests, options);
  toy_sampling how(ctx);
  decoded out;
  out.text.resize(usual_requests.size());
  for (bool any = true; any && out.rounds < 100; ++out.rounds) {
    any = false;
    REQUIRE(s.draft());
    s.engine.forward();
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view(),
                           sampled ? how.view() : ddtree::sampling{}));
    auto const emitted = s.read(s.round.accepted_);
    REQUIRE(s.round.commit(s.engine.batch(), s.engine.kv(), s.engine.lengths.data()));
    auto left = remaining.values();
    for (std::size_t b = 0; b < emitted.size(); ++b) {
      out.text[b].insert(out.text[b].end(), emitted[b].begin(), emitted[b].end());
      if (s.engine.requests[b] < 0) continue;
      auto& mine = left[sized(s.engine.requests[b])];
      mine -= static_cast<std::int32_t>(emitted[b].size());
      any = any || mine > 0;
      // Request 0 leaves the batch when it is done; the others stay and are dead by `remaining`.
      if (mine <= 0 && s.engine.requests[b] == 0) s.engine.requests[b] = -1;
    }
    remaining.assign(left);
    s.engine.request.assign(s.engine.requests);
    for (std::size_t r = 0; r < s.engine.sequence.size(); ++r) {
      REQUIRE(s.engine.lengths.values()[r] == std::int32_t(s.engine.sequence[r].size()));
    }
  }
  CHECK(s.engine.intact());
  CHECK(s.memory.intact());
  return out;
}

}  // namespace

TEST_CASE("tree decoding emits what plain decoding emits", "[round]") {
  for (context const& ctx : round_contexts()) {
    for (bool sampled : {false, true}) {
      decoded const plain = decode(ctx, toy_shape(4, 0), sampled);
      CHECK(plain.text[0].size() == 17);
      CHECK(plain.text[1].size() == 20);
      CHECK(plain.text[2].empty());
      CHECK(plain.text[3].size() == 23);
      CHECK(plain.rounds == 23);
      CHECK(decode(ctx, toy_shape(0, 9), sampled).text == plain.text);
      for (std::int32_t budget : {1, 4, 9, 31, 32, 40}) {
        for (std::int32_t depth : {1, 4, 7}) {
          CAPTURE(ctx.threads, sampled, budget, depth);
          decoded const tree = decode(ctx, toy_shape(depth, budget), sampled);
          CHECK(tree.text == plain.text);
          if (!sampled) CHECK(tree.rounds < plain.rounds);
        }
      }
    }
  }
}

TEST_CASE("a round is its operations one by one", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    for (bool sampled : {false, true}) {
      round_options options;
      options.log_prob = true;
      options.build.seed_depth = 2;
      options.build.min_log_weight = -2.5f;
      options.expand.temperature = 0.7f;
      round_shape const shape = toy_shape();
      served s(ctx, shape, usual_requests, options);
      toy_sampling how(ctx);

      // The same engine once more, with arrays of its own.
      toy_engine engine(s.engine);
      candidate_buffers candidates(ctx, shape);
      tree_buffers tree(ctx, shape);
      accepted_buffers path(ctx, shape);
      path.bonus.assign(s.roots);
      engine.tensor.assign({[&] {
        auto t = engine.tensor.values()[0];
        t.base = engine.cache.data();
        return t;
      }()});
      auto scratch = [&](std::size_t bytes) { return buffer<unsigned char>(ctx, bytes); };
      for (int i = 0; i < 3; ++i) {
        tokens const roots = s.roots;
        auto const state = play(s, sampled ? how.view() : ddtree::sampling{}, 1).front();

        engine.draft(roots);
        auto space = scratch(ddtree::expand_workspace_bytes(ctx, shape));
        REQUIRE(ddtree::expand(ctx, shape, engine.batch(), engine.draft_view(), candidates.view(),
                               space.as_workspace(), options.expand));
        space = scratch(ddtree::build_tree_workspace_bytes(ctx, shape));
        REQUIRE(ddtree::build_tree(ctx, shape, engine.batch(), candidates.view(), path.bonus.data(),
                                   tree.view(), space.as_workspace(), options.build));
        REQUIRE(ddtree::write_mask(ctx, shape, engine.batch(), tree.view(), engine.mask_view()));
        options.verify.table = engine.kv_table();
        REQUIRE(ddtree::write_verify_inputs(ctx, shape, engine.batch(), tree.view(),
                                            engine.inputs(), options.verify));
        engine.forward();
        if (sampled) {
          space = scratch(ddtree::accept_sampled_workspace_bytes(ctx, shape));
          REQUIRE(ddtree::accept_sampled(ctx, shape, engine.batch(), tree.view(),
                                         engine.target_view(), how.view(), path.view(true),
                                         space.as_workspace()));
        } else {
          space = scratch(ddtree::accept_greedy_workspace_bytes(ctx, shape));
          REQUIRE(ddtree::accept_greedy(ctx, shape, engine.batch(), tree.view(),
                                        engine.target_view(), path.view(true),
                                        space.as_workspace()));
        }
        auto const one_by_one =
            state_of(shape, candidates.view(), tree.view(), path.view(true), 0, shape.batch);
        CHECK(state == one_by_one);
        REQUIRE(ddtree::compact_kv(ctx, shape, engine.batch(), path.view(), engine.kv()));
        REQUIRE(ddtree::advance(ctx, shape, engine.batch(), path.view(), engine.lengths.data()));
        for (std::size_t r = 0; r < engine.sequence.size(); ++r) {
          engine.sequence[r] = s.engine.sequence[r];
        }
        CHECK(engine.mask.values() == s.engine.mask.values());
        CHECK(engine.token.values() == s.engine.token.values());
        CHECK(engine.position.values() == s.engine.position.values());
        CHECK(engine.slot.values() == s.engine.slot.values());
        CHECK(engine.cache.values() == s.engine.cache.values());
        CHECK(engine.lengths.values() == s.engine.lengths.values());
      }
    }
  }
}

TEST_CASE("a round gives the same bits whatever its memory held, its alignment and the threads",
          "[round]") {
  for (bool sampled : {false, true}) {
    round_options options;
    options.log_prob = true;
    context const one = round_contexts().front();
    toy_sampling how(one);
    ddtree::sampling const drawn = sampled ? how.view() : ddtree::sampling{};
    served plain(one, toy_shape(), usual_requests, options, 0, 0x00);
    auto const expected = play(plain, drawn, 4);
    auto const cache = plain.engine.cache.values();
    for (context const& ctx : round_contexts()) {
      for (std::size_t shift : {0u, 1u, 3u, 8u, 100u, 255u}) {
        for (unsigned char fill : std::initializer_list<unsigned char>{0x00, 0xff, 0x7f}) {
          CAPTURE(ctx.threads, sampled, shift, int(fill));
          served s(ctx, toy_shape(), usual_requests, options, shift, fill);
          CHECK(play(s, drawn, 4) == expected);
          CHECK(s.engine.cache.values() == cache);
        }
      }
    }
  }
}

TEST_CASE("a request gets the same bits alone and at any place of a batch", "[round][small]") {
  for (bool sampled : {false, true}) {
    context const ctx = context::cpu();
    toy_sampling how(ctx);
    ddtree::sampling const drawn = sampled ? how.view() : ddtree::sampling{};
    round_options options;
    options.log_prob = true;
    auto const rows_of = [&](std::vector<std::int32_t> requests, index_t b) {
      round_shape shape = toy_shape();
      shape.batch = static_cast<index_t>(requests.size());
      served s(ctx, shape, std::move(requests), options);
      std::vector<round_state> out;
      for (int i = 0; i < 4; ++i) {
        play(s, drawn, 1);
        out.push_back(state_of(shape, s.round.candidates_, s.round.tree, s.round.accepted_, b, 1));
      }
      return out;
    };
    for (std::int32_t r : {0, 1, 3}) {
      CAPTURE(sampled, r);
      auto const alone = rows_of({r}, 0);
      CHECK(rows_of({r, -1, 2, 4}, 0) == alone);
      CHECK(rows_of({2, 4, -1, r}, 3) == alone);
      CHECK(rows_of({-1, r}, 1) == alone);
    }
  }
}

TEST_CASE("dead rows of a round are defined and touch nothing", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    round_options options;
    options.log_prob = true;
    served s(ctx, toy_shape(), {-1, 2, -1, -1}, options);
    s.engine.request.assign({-1, 2, 5, -7});
    // Request 4 is nobody's; its table entries are request 2's, as after a reuse of pages.
    auto table = s.engine.table.values();
    std::copy_n(table.begin() + 2 * toy_engine::columns, toy_engine::columns,
                table.begin() + 4 * toy_engine::columns);
    s.engine.table.assign(table);
    REQUIRE(s.draft());
    auto const nodes = copy_of(s.round.tree.num_nodes, 4);
    CHECK(nodes[0] == 1);
    CHECK(nodes[1] > 1);
    CHECK(nodes[2] == 1);
    CHECK(nodes[3] == 1);
    index_t const width = s.round.shape.width();
    auto const slots = s.engine.slot.values();
    for (index_t b : {0, 2, 3}) {
      for (index_t i = 0; i < width; ++i) {
        CHECK(s.round.tree.token[b * width + i] == 0);
        CHECK(slots[sized(b * width + i)] == -1);
      }
    }
    s.engine.forward();
    auto const lengths = s.engine.lengths.values();
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view()));
    for (index_t b : {0, 2, 3}) {
      CHECK(s.round.accepted_.num_accepted[b] == -1);
      CHECK(s.round.accepted_.bonus[b] == -1);
      CHECK(s.round.accepted_.flags[b] == 0);
      for (index_t i = b * 5; i < b * 5 + 5; ++i) {
        CHECK(s.round.accepted_.path[i] == -1);
        CHECK(s.round.accepted_.token[i] == -1);
        CHECK(s.round.accepted_.log_prob[i] == 0.0f);
      }
    }
    CHECK(s.round.accepted_.num_accepted[1] >= 0);
    REQUIRE(s.round.commit(s.engine.batch(), s.engine.kv(), s.engine.lengths.data()));
    auto after = s.engine.lengths.values();
    CHECK(after[2] == lengths[2] + s.round.accepted_.num_accepted[1] + 1);
    after[2] = lengths[2];
    CHECK(after == lengths);
    CHECK(s.engine.intact());
    CHECK(s.memory.intact());
  }
}

TEST_CASE("without depth or budget a round reads no draft logits and samples plainly",
          "[round][small]") {
  for (context const& ctx : round_contexts()) {
    for (round_shape const& shape : {toy_shape(0, 9), toy_shape(4, 0), toy_shape(0, 0)}) {
      CAPTURE(ctx.threads, shape.depth, shape.budget);
      // 0xff in candidates' flags must not reach the tree.
      served s(ctx, shape, usual_requests, {}, 0, 0xff);
      REQUIRE(s.round.draft(s.engine.batch(), {}, s.round.accepted_.bonus, s.engine.inputs(),
                            s.engine.mask_view()));
      for (index_t b = 0; b < 4; ++b) {
        CHECK(s.round.tree.num_nodes[b] == 1);
        CHECK(s.round.tree.flags[b] == 0);
      }
      s.engine.forward();
      REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view()));
      CHECK(copy_of(s.round.accepted_.num_accepted, 4) == std::vector<std::int32_t>{0, 0, -1, 0});
      for (std::size_t b : {0u, 1u, 3u}) {
        auto seen = s.engine.sequence[sized(s.engine.requests[b])];
        seen.push_back(s.roots[b]);
        auto const logits = toy_logits(seen, shape.vocab);
        CHECK(s.round.accepted_.bonus[b] ==
              std::max_element(logits.begin(), logits.end()) - logits.begin());
      }
      REQUIRE(s.round.commit(s.engine.batch(), s.engine.kv(), s.engine.lengths.data()));
      CHECK(s.engine.lengths.values() == std::vector<std::int32_t>{6, 7, 7, 9, 9});
    }
  }
}

TEST_CASE("a round over an empty batch succeeds", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    round_shape shape = toy_shape();
    shape.batch = 0;
    served s(ctx, shape, {});
    REQUIRE(s.draft());
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view()));
    REQUIRE(s.round.commit(s.engine.batch(), s.engine.kv(), s.engine.lengths.data()));
    CHECK(s.engine.intact());
    CHECK(s.memory.intact());
  }
}

TEST_CASE("two accepted blocks let an engine run a round ahead", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    round_shape const shape = toy_shape();
    served usual(ctx, shape, usual_requests), ahead(ctx, shape, usual_requests);
    buffer<unsigned char> memory[] = {{ctx, ddtree::accepted_bytes(shape)},
                                      {ctx, ddtree::accepted_bytes(shape)}};
    ddtree::accepted block[2];
    for (std::size_t i : {0u, 1u}) {
      REQUIRE(ddtree::bind_accepted(shape, memory[i].as_workspace(), &block[i]));
    }
    std::copy(ahead.roots.begin(), ahead.roots.end(), block[1].bonus);
    auto const own_block = state_of(ahead.round);
    for (std::size_t i = 0; i < 6; ++i) {
      auto const expected = play(usual, {}, 1).front();
      auto const& from = block[(i + 1) % 2];
      auto const& to = block[i % 2];
      ahead.engine.draft(ahead.roots);
      auto const batch = ahead.engine.batch();
      REQUIRE(ahead.round.draft(batch, ahead.engine.draft_view(), from.bonus, ahead.engine.inputs(),
                                ahead.engine.mask_view()));
      ahead.engine.forward();
      auto const before = copy_of(from.token, shape.batch * (shape.depth + 1));
      REQUIRE(ahead.round.accept(batch, ahead.engine.target_view(), {}, &to));
      REQUIRE(ahead.round.commit(batch, ahead.engine.kv(), ahead.engine.lengths.data(), &to));
      // The block of the round before is still whole for the host to read.
      CHECK(copy_of(from.token, shape.batch * (shape.depth + 1)) == before);
      auto got = state_of(shape, ahead.round.candidates_, ahead.round.tree, to, 0, shape.batch);
      got.accepted_log_prob.clear();  // bind_accepted binds it; the usual round does not
      CHECK(got == expected);
      ahead.read(to);
      CHECK(ahead.engine.lengths.values() == usual.engine.lengths.values());
      CHECK(ahead.engine.cache.values() == usual.engine.cache.values());
    }
    CHECK(state_of(ahead.round).path == own_block.path);
    CHECK(memory[0].intact());
    CHECK(memory[1].intact());
  }
}

TEST_CASE("a round takes tokens that the engine sampled", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    round_options options;
    options.log_prob = true;
    served s(ctx, toy_shape(), usual_requests, options);
    REQUIRE(s.draft());
    s.engine.forward();
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view()));
    auto const greedy = state_of(s.round);
    auto const logits = s.engine.target_logits.values();
    std::vector<std::int64_t> target(sized(s.round.shape.batch * s.round.shape.width()));
    for (std::size_t i = 0; i < target.size(); ++i) {
      auto const row = logits.begin() + static_cast<std::ptrdiff_t>(i * 23);
      target[i] = std::max_element(row, row + 23) - row;
    }
    buffer<std::int64_t> ids(ctx, target);
    accepted_buffers other(ctx, s.round.shape);
    auto const block = other.view(true);
    REQUIRE(s.round.accept_tokens(s.engine.batch(), ids.data(), &block));
    CHECK(other.path.values() == greedy.path);
    CHECK(other.token.values() == greedy.accepted_token);
    CHECK(other.bonus.values() == greedy.bonus);
    CHECK(other.log_prob.values() == std::vector<float>(other.log_prob.size(), poisoned<float>()));
    std::fill_n(s.round.accepted_.path, other.path.size(), -9);
    REQUIRE(s.round.accept_tokens(s.engine.batch(), ids.data()));
    CHECK(state_of(s.round).path == greedy.path);
    CHECK(state_of(s.round).accepted_log_prob == greedy.accepted_log_prob);  // not written
  }
}

TEST_CASE("log_prob is bound by the option alone", "[round][small]") {
  context const ctx = context::cpu();
  served without(ctx, toy_shape(), usual_requests);
  CHECK(without.round.accepted_.log_prob == nullptr);
  round_options options;
  options.log_prob = true;
  served with(ctx, toy_shape(), usual_requests, options);
  REQUIRE(with.round.accepted_.log_prob != nullptr);
  auto const a = play(without, {}, 1).front();
  auto b = play(with, {}, 1).front();
  for (index_t i = 0; i < 4 * 5; ++i) {
    bool const emitted = with.round.accepted_.token[i] >= 0;
    CHECK((with.round.accepted_.log_prob[i] < 0.0f) == emitted);
  }
  b.accepted_log_prob.clear();
  CHECK(a == b);
}

TEST_CASE("commit does what it is given: rows, slot lists, lengths", "[round][small]") {
  for (context const& ctx : round_contexts()) {
    served s(ctx, toy_shape(), usual_requests);
    REQUIRE(s.draft());
    s.engine.forward();
    REQUIRE(s.round.accept(s.engine.batch(), s.engine.target_view()));
    auto const cache = s.engine.cache.values();
    auto const lengths = s.engine.lengths.values();

    REQUIRE(s.round.commit(s.engine.batch(), {}));
    CHECK(s.engine.cache.values() == cache);
    CHECK(s.engine.lengths.values() == lengths);

    // A path of our own for request 0 (S = 5): nodes 2 and 4 are accepted.
    accepted_buffers path(ctx, s.round.shape);
    path.num_accepted.assign({-1, 2, -1, -1});
    std::vector<ddtree::node_t> nodes(path.path.size(), -1);
    nodes[5] = 0, nodes[6] = 2, nodes[7] = 4;
    path.path.assign(nodes);
    path.flags.assign({0, 0, 0, 0});
    auto const block = path.view();

    std::vector<std::int32_t> list(5 * 30);
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = std::int32_t(i);
    buffer<std::int32_t> slots(ctx, list);
    ddtree::kv_cache permuted;
    permuted.table[2].entries = slots.data();
    permuted.table[2].columns = 30;
    permuted.table[2].index_only = true;
    REQUIRE(s.round.commit(s.engine.batch(), permuted, {}, &block));
    auto expected = list;
    std::int32_t const moved[] = {5, 7, 9, 6, 8};
    std::copy_n(moved, 5, expected.begin() + 5);
    CHECK(slots.values() == expected);
    CHECK(s.engine.lengths.values() == lengths);

    REQUIRE(s.round.commit(s.engine.batch(), {}, s.engine.lengths.data(), &block));
    CHECK(s.engine.cache.values() == cache);
    auto advanced = lengths;
    advanced[0] += 3;
    CHECK(s.engine.lengths.values() == advanced);
  }
}

// ---- creation

TEST_CASE("create lays every array out apart and within its memory", "[round][small]") {
  round_shape const shape = toy_shape(5, 33);
  for (context const& ctx : round_contexts()) {
    std::size_t const bytes = decoding_round::bytes(ctx, shape);
    for (std::size_t shift : {0u, 1u, 77u}) {
      buffer<unsigned char> memory(ctx, bytes + shift);
      round_options options;
      options.log_prob = true;
      decoding_round r;
      REQUIRE(decoding_round::create(ctx, shape, {memory.data() + shift, bytes}, &r, options));
      index_t const nodes = shape.batch * shape.width();
      index_t const rows = shape.batch * (shape.depth + 1);
      struct piece {
        void const* data;
        index_t bytes;
      };
      std::vector<piece> pieces{
          {r.candidates_.token, shape.batch * shape.depth * shape.top_k * 4},
          {r.candidates_.log_prob, shape.batch * shape.depth * shape.top_k * 4},
          {r.candidates_.flags, shape.batch * 4},
          {r.tree.token, nodes * 4},
          {r.tree.parent, nodes * 4},
          {r.tree.depth, nodes * 4},
          {r.tree.rank, nodes * 4},
          {r.tree.log_weight, nodes * 4},
          {r.tree.first_child, nodes * 4},
          {r.tree.next_sibling, nodes * 4},
          {r.tree.ancestors, nodes * shape.words() * 4},
          {r.tree.num_nodes, shape.batch * 4},
          {r.tree.flags, shape.batch * 4},
          {r.accepted_.path, rows * 4},
          {r.accepted_.num_accepted, shape.batch * 4},
          {r.accepted_.token, rows * 4},
          {r.accepted_.bonus, shape.batch * 4},
          {r.accepted_.log_prob, rows * 4},
          {r.accepted_.flags, shape.batch * 4},
          {r.scratch.data, static_cast<index_t>(r.scratch.bytes)}};
      std::sort(pieces.begin(), pieces.end(), [](auto& a, auto& b) { return a.data < b.data; });
      auto const* end = static_cast<unsigned char const*>(memory.data() + shift);
      for (auto const& p : pieces) {
        CHECK(static_cast<unsigned char const*>(p.data) >= end);
        end = static_cast<unsigned char const*>(p.data) + p.bytes;
      }
      CHECK(end <= memory.data() + shift + bytes);
      // Nothing is written.
      CHECK(memory.values() == std::vector<unsigned char>(bytes + shift, poison_byte));
    }
  }
}

TEST_CASE("the accepted block of a round is laid out as bind_accepted does it", "[round][small]") {
  round_shape const shape = toy_shape();
  context const ctx = context::cpu();
  round_options options;
  options.log_prob = true;
  served s(ctx, shape, usual_requests, options, 5);
  buffer<unsigned char> memory(ctx, ddtree::accepted_bytes(shape));
  ddtree::accepted bound;
  REQUIRE(ddtree::bind_accepted(shape, memory.as_workspace(), &bound));
  auto const distance = [](auto const* to, auto const* from) {
    return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  };
  ddtree::accepted const& own = s.round.accepted_;
  CHECK(distance(own.num_accepted, own.path) == distance(bound.num_accepted, bound.path));
  CHECK(distance(own.token, own.path) == distance(bound.token, bound.path));
  CHECK(distance(own.bonus, own.path) == distance(bound.bonus, bound.path));
  CHECK(distance(own.log_prob, own.path) == distance(bound.log_prob, bound.path));
  CHECK(distance(own.flags, own.path) == distance(bound.flags, bound.path));
}

TEST_CASE("create refuses bad arguments by name and leaves the round alone", "[round][small]") {
  context const ctx = context::cpu();
  round_shape const shape = toy_shape();
  std::size_t const bytes = decoding_round::bytes(ctx, shape);
  buffer<unsigned char> memory(ctx, bytes);
  decoding_round round;
  auto const refused = [&](context const& c, round_shape const& s, ddtree::workspace m,
                           decoding_round* out, errc code, char const* message) {
    ddtree::status const got = decoding_round::create(c, s, m, out);
    CHECK(got.code == code);
    CHECK(got.message == std::string(message));
    CHECK(round.tree.token == nullptr);
    CHECK(round.shape.vocab == 0);
  };
  ddtree::workspace const good = memory.as_workspace();
  refused(context::cpu(0), shape, good, &round, errc::invalid_argument,
          "decoding_round::create: context.threads < 1");
  refused(ctx, {}, good, &round, errc::invalid_argument,
          "decoding_round::create: shape.vocab outside [1, 4194304]");
  refused(ctx, shape, good, nullptr, errc::invalid_argument, "decoding_round::create: out is null");
  refused(ctx, shape, {memory.data(), bytes - 1}, &round, errc::workspace_too_small,
          "decoding_round::create: memory.bytes too small");
  refused(ctx, shape, {nullptr, bytes}, &round, errc::workspace_too_small,
          "decoding_round::create: memory.data is null");
  CHECK(decoding_round::create(ctx, shape, good, &round));
}

TEST_CASE("bytes is monotone in every extent", "[round]") {
  for (context const& ctx : round_contexts()) {
    round_shape base{.batch = 2, .vocab = 1000, .depth = 3, .top_k = 8, .budget = 31};
    std::size_t const floor_bytes = decoding_round::bytes(ctx, base);
    auto const grows = [&](auto change, std::vector<index_t> const& steps) {
      std::size_t before = 0;
      for (index_t step : steps) {
        round_shape shape = base;
        change(shape, step);
        std::size_t const bytes = decoding_round::bytes(ctx, shape);
        CAPTURE(ctx.threads, step);
        CHECK(bytes >= before);
        before = bytes;
      }
      CHECK(before >= floor_bytes);
    };
    grows([](round_shape& s, index_t n) { s.batch = n; }, {0, 1, 2, 3, 64, 65535});
    grows([](round_shape& s, index_t n) { s.vocab = n; }, {1, 7, 1000, 1001, 151936, 4194304});
    grows([](round_shape& s, index_t n) { s.depth = std::int32_t(n); }, {0, 1, 2, 3, 15, 31});
    grows([](round_shape& s, index_t n) { s.top_k = std::int32_t(n); }, {1, 2, 8, 9, 64, 1024});
    grows([](round_shape& s, index_t n) { s.budget = std::int32_t(n); },
          {0, 1, 30, 31, 32, 33, 64, 256, 2047});
    grows([](round_shape& s, index_t n) { s.requests = n; }, {2, 64, 100000});
  }
}

TEST_CASE("64 requests with budget 64 need less than 16 MB", "[round]") {
  round_shape const shape{.batch = 64, .vocab = 151936};
  for (int threads : {1, 8}) {
    CHECK(decoding_round::bytes(context::cpu(threads), shape) < std::size_t{16} << 20);
  }
}

TEST_CASE("reset takes a context of the round's device", "[round][small]") {
  served s(context::cpu(), toy_shape(), usual_requests);
  CHECK(s.round.reset(context::cpu()));
  CHECK(s.round.reset(context::cpu(3)));
  CHECK(s.round.reset(context::cpu(0)).message ==
        std::string("decoding_round::reset: context.threads < 1"));
  int place = 0;
  context const cuda = context::cuda(0, reinterpret_cast<CUstream_st*>(&place));
  CHECK(s.round.reset(cuda).code == errc::invalid_argument);
  CHECK(s.round.reset(cuda).message ==
        std::string("decoding_round::reset: on is not of the round's device"));
  play(s, {}, 1);
}

TEST_CASE("a round's errors are those of the operation at fault", "[round][small]") {
  served s(context::cpu(), toy_shape(), usual_requests);
  s.engine.draft(s.roots);
  auto const batch = s.engine.batch();
  auto const root = s.round.accepted_.bonus;
  auto const draft = [&](ddtree::logits_view const& logits, ddtree::ids_in roots,
                         ddtree::verify_inputs const& inputs, ddtree::mask_view const& mask) {
    return std::string(s.round.draft(batch, logits, roots, inputs, mask).message);
  };
  auto const begins = [](std::string const& text, char const* with) {
    return text.rfind(with, 0) == 0;
  };
  auto logits = s.engine.draft_view();
  CHECK(begins(draft({}, root, {}, {}), "expand: "));
  CHECK(begins(draft(logits, {}, {}, {}), "build_tree: root"));
  CHECK(draft(logits, root, {}, {}).empty());  // neither mask nor inputs wanted
  auto mask = s.engine.mask_view();
  mask.columns = -1;
  CHECK(draft(logits, root, {}, mask) == "write_mask: out.columns < 0");
  auto inputs = s.engine.inputs();
  inputs.position.type = ddtree::dtype::f32;
  CHECK(draft(logits, root, inputs, {}) ==
        "write_verify_inputs: out.position is neither i32 nor i64");
  CHECK(begins(s.round.accept(batch, ddtree::logits_view{}).message, "accept_greedy: target"));
  ddtree::sampling how;
  float const temperature = 1;
  how.temperature = &temperature;
  CHECK(begins(s.round.accept(batch, s.engine.target_view(), how).message,
               "accept_sampled: how.seed"));
  CHECK(begins(s.round.accept_tokens(batch, {}).message, "accept_tokens: target_token"));
  ddtree::kv_cache cache = s.engine.kv();
  cache.tensors = nullptr;
  CHECK(s.round.commit(batch, cache).message == std::string("compact_kv: cache.tensors is null"));
  CHECK(s.round.commit(batch, {}, {s.engine.lengths.data(), ddtree::dtype::u8}).message ==
        std::string("advance: cache_len is neither i32 nor i64"));
  auto forced = s.round;
  forced.ctx = forced.ctx.with_variant("accept=nosuch");
  CHECK(forced.accept(batch, s.engine.target_view()).code == errc::invalid_argument);
  CHECK_FALSE(decoding_round{}.draft(batch, logits, root, {}, {}));
}

// ---- the documentation's example

namespace {

/// What the example calls an engine: two requests over a vocabulary of 151,936 in bf16.
struct example_engine {
  static constexpr std::uint16_t bf16_twenty = 0x41a0;

  example_engine(context const& ctx, round_shape const& shape)
      : draft_rows(ctx, sized(shape.batch * shape.depth * shape.vocab)),
        target_rows(ctx, sized(shape.batch * shape.width() * shape.vocab)),
        ids(ctx, sized(shape.batch * shape.width() * 3)),
        lengths(ctx, std::vector<std::int32_t>{10, 20}),
        words(ctx, sized(shape.batch * shape.width() * shape.words())),
        rows(ctx, 2 * 100 * 16),
        tensor(ctx, 1),
        draft_logits(draft_rows.data()),
        target_logits(target_rows.data()),
        cache_len(lengths.data()),
        tokens(ids.data()),
        positions(tokens + shape.batch * shape.width()),
        slots(positions + shape.batch * shape.width()) {
    // The drafter is sure of token 7 at every depth, and so is the target after every row.
    for (auto* logits : {&draft_rows, &target_rows}) {
      std::vector<std::uint16_t> values(logits->size(), 0);
      for (std::size_t i = 7; i < values.size(); i += sized(shape.vocab)) values[i] = bf16_twenty;
      logits->assign(values);
    }
    mask.data = words.data();
    tensor.assign({{rows.data(), 1600, 16, 16, 2, 1, 16, 0, 0}});
    kv.tensors = tensor.data();
    kv.num_tensors = 1;
    kv.table[0].page_size = 100;  // contiguous: 100 rows per request
  }
  void target_forward() {}

  buffer<std::uint16_t> draft_rows, target_rows;
  buffer<std::int32_t> ids, lengths;
  buffer<std::uint32_t> words;
  buffer<unsigned char> rows;
  buffer<ddtree::kv_tensor> tensor;
  std::uint16_t *draft_logits, *target_logits;
  std::int32_t *cache_len, *tokens, *positions, *slots;
  ddtree::mask_view mask;
  ddtree::kv_cache kv;
};

ddtree::status example(context const& ctx, example_engine& engine, void* memory,
                       std::size_t bytes) {
  ddtree::round_shape const shape{.batch = 2, .vocab = 151936};
  ddtree::decoding_round round;
  if (auto s = ddtree::decoding_round::create(ctx, shape, {memory, bytes}, &round); !s) return s;
  ddtree::batch_view const batch{engine.cache_len};
  round.accepted_.bonus[0] = 1;
  round.accepted_.bonus[1] = 2;
  auto s = round.draft(batch, {engine.draft_logits, ddtree::dtype::bf16}, round.accepted_.bonus,
                       {engine.tokens, engine.positions, engine.slots}, engine.mask);
  engine.target_forward();
  if (s) s = round.accept(batch, {engine.target_logits, ddtree::dtype::bf16});
  if (s) s = round.commit(batch, engine.kv, engine.cache_len);
  return s;
}

}  // namespace

TEST_CASE("the documentation's example runs", "[round]") {
  context const ctx = context::cpu();
  round_shape const shape{.batch = 2, .vocab = 151936};
  example_engine engine(ctx, shape);
  buffer<unsigned char> memory(ctx, decoding_round::bytes(ctx, shape));
  REQUIRE(example(ctx, engine, memory.data(), memory.bytes()));
  // The best 64 prefixes of such a drafter hold the chain of token 7: all 15 are accepted.
  CHECK(engine.lengths.values() == std::vector<std::int32_t>{26, 36});
  CHECK(engine.ids.values()[0] == 1);
  CHECK(engine.ids.values()[65] == 2);
  CHECK(memory.intact());
}
