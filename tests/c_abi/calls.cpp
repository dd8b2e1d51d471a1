// SPDX-License-Identifier: Apache-2.0
// The C ABI against the C++ API: the same calls give the same bytes.
#include "ddtree/ddtree.hpp"

#include "c_abi/scene.h"
#include "support/catch.hpp"

#include <cstring>
#include <memory>
#include <string>

namespace {

using namespace ddtree;

void note(scene& s, status const& status) {
  s.status[s.statuses++] = {static_cast<std::int32_t>(status.code), status.detail, status.message};
}
template <class T>
void count(scene& s, T n) {
  s.number[s.numbers++] = static_cast<std::int64_t>(n);
}
void say(scene& s, char const* text) { s.text[s.texts++] = text; }

candidates view(candidate_arrays& a) { return {a.token, a.log_prob, a.flags}; }
draft_tree view(tree_arrays& a) {
  return {a.token,       a.parent,       a.depth,     a.rank,      a.log_weight,
          a.first_child, a.next_sibling, a.ancestors, a.num_nodes, a.flags};
}
accepted view(accepted_arrays& a) {
  return {a.path, a.num_accepted, a.token, a.bonus, a.log_prob, a.flags};
}
vocab_ranges half_of(int rank) { return {{{HALF * rank, HALF, HALF * rank}, {}}}; }

void call_operations(scene& s, context const& ctx, round_shape const& shape) {
  workspace const scratch{s.scratch, sizeof s.scratch};
  batch_view const batch{s.cache_len};
  logits_view const draft{s.draft}, target{s.target};
  shard_in const gathered{shard_of(&s, 0), RANKS, SHARD};

  expand_options expand_how;
  expand_how.temperature = 0.5f;
  count(s, expand_workspace_bytes(ctx, shape));
  note(s, expand(ctx, shape, batch, draft, view(s.expanded), scratch, expand_how));
  count(s, expand_shard_bytes(shape));
  count(s, expand_shard_workspace_bytes(ctx, shape));
  count(s, expand_merge_workspace_bytes(ctx, shape, RANKS));
  for (int rank = 0; rank < RANKS; ++rank) {
    note(s, expand_shard(ctx, shape, batch, {s.draft, dtype::f32, VOCAB}, half_of(rank),
                         {shard_of(&s, rank), SHARD}, scratch, expand_how));
  }
  note(s, expand_merge(ctx, shape, batch, gathered, view(s.merged), scratch, expand_how));

  build_options build_how;
  build_how.seed_depth = 2;
  auto const tree = view(s.built);
  count(s, build_tree_workspace_bytes(ctx, shape));
  note(s, build_tree(ctx, shape, batch, view(s.expanded), s.root, tree, scratch, build_how));
  note(s, link_tree(ctx, shape, batch, {s.built.parent, s.built.token, s.built.num_nodes},
                    view(s.linked)));

  mask_view mask;
  mask.data = s.mask;
  note(s, write_mask(ctx, shape, batch, tree, mask));
  verify_options verify_how;
  verify_how.padding = padding_slot::dummy;
  verify_how.dummy_slot = 99;
  note(s, write_verify_inputs(ctx, shape, batch, tree, {{}, s.position, s.slot}, verify_how));

  sampling how;
  how.temperature = s.temperature;
  how.seed = s.seed;
  how.max_top_k = 8;
  accept_options accept_how;
  accept_how.shard_log_prob = true;
  auto by_tokens = view(s.by_tokens);
  by_tokens.log_prob = nullptr;
  auto const greedy = view(s.greedy);
  note(s, accept_tokens(ctx, shape, batch, tree, s.target_token, by_tokens));
  count(s, accept_greedy_workspace_bytes(ctx, shape));
  note(s, accept_greedy(ctx, shape, batch, tree, target, greedy, scratch));
  count(s, accept_sampled_workspace_bytes(ctx, shape));
  note(s,
       accept_sampled(ctx, shape, batch, tree, target, how, view(s.sampled), scratch, accept_how));
  count(s, accept_shard_bytes(shape, how, accept_how));
  count(s, accept_shard_workspace_bytes(ctx, shape));
  count(s, accept_merge_workspace_bytes(ctx, shape, RANKS));
  for (int rank = 0; rank < RANKS; ++rank) {
    note(s, accept_shard(ctx, shape, batch, tree, {s.target, dtype::f32, VOCAB}, half_of(rank), how,
                         {shard_of(&s, rank), SHARD}, scratch, accept_how));
  }
  note(s,
       accept_merge(ctx, shape, batch, tree, gathered, how, view(s.sharded), scratch, accept_how));

  kv_tensor const tensor{s.kv, ROWS * ROW, ROW, 0, BATCH, 1, ROW};
  kv_cache cache{&tensor, 1};
  cache.table[0].page_size = ROWS;
  note(s, compact_kv(ctx, shape, batch, greedy, cache));
  note(s, compact_rows(ctx, shape, batch, greedy, {s.hidden, ROW}, {s.hidden, ROW}));
  state_tensor const states{s.states, WIDTH * ROW, ROW, BATCH, s.live, ROW, BATCH, ROW};
  note(s, compact_state(ctx, shape, batch, greedy, {&states, 1}));
  note(s, advance(ctx, shape, batch, greedy, s.new_cache_len));

  note(s, expand(ctx, {}, {}, {}, {}, scratch));
  note(s, expand({}, shape, {}, {}, view(s.expanded), scratch));
}

void call_round(scene& s, context const& ctx, round_shape const& shape) {
  workspace const memory{s.memory, sizeof s.memory};
  batch_view const batch{s.cache_len};
  round_options options;
  options.log_prob = true;
  decoding_round round;
  count(s, decoding_round::bytes(ctx, shape));
  note(s, decoding_round::create(ctx, shape, memory, &round, options));
  round.tree = view(s.of_round);
  auto const path = view(s.of_round_path);
  note(s, round.reset(ctx));
  note(s, round.draft(batch, {s.draft}, s.root, {}, {}));
  note(s, round.accept_tokens(batch, s.target_token));
  note(s, round.accept(batch, {s.target}, {}, &path));
  note(s, round.commit(batch, {}, s.new_cache_len, &path));

  accepted bound;
  count(s, accepted_bytes(shape));
  note(s, bind_accepted(shape, memory, &bound));
  count(s, reinterpret_cast<unsigned char*>(bound.flags) - s.memory);
}

void call_queries(scene& s, context const& ctx, round_shape const& shape) {
  count(s, DDTREE_VERSION);
  count(s, shape.width());
  count(s, shape.words());
  count(s, shape.request_rows());
  for (int code = 0; code <= static_cast<int>(errc::cuda_error) + 1; ++code) {
    say(s, name(errc{code}));
  }
  for (int i = 0; i <= num_operations; ++i) {
    say(s, name(operation{i}));
    say(s, floor_of(operation{i}));
    say(s, selected(ctx, operation{i}, shape));
  }
  variant_info info[64];
  std::size_t const n = variants(backend_kind::cpu, info, 64);
  for (std::size_t i = 0; i < n; ++i) {
    count(s, info[i].op);
    count(s, info[i].backend);
    say(s, info[i].name);
  }
  std::int32_t architecture[16];
  std::size_t const architectures = compiled_architectures(architecture, 16);
  for (std::size_t i = 0; i < architectures; ++i) count(s, architecture[i]);
  say(s, selected(ctx.with_variant("expand=none"), operation::expand, shape));
  count(s, 7);
  count(s, backend_kind::cuda);
}

void call_everything_from_cpp(scene& s) {
  auto const ctx = context::cpu(2);
  round_shape const shape{
      .batch = BATCH, .vocab = VOCAB, .depth = DEPTH, .top_k = TOP_K, .budget = BUDGET};
  call_operations(s, ctx, shape);
  call_round(s, ctx, shape);
  call_queries(s, ctx, shape);
}

/// Everything else zero.
void fill(scene& s) {
  std::uint32_t state = 1;
  auto const next = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (float& x : s.draft) x = static_cast<float>(next() % 512) / 64;
  for (float& x : s.target) x = static_cast<float>(next() % 512) / 64;
  for (auto& x : s.target_token) x = static_cast<std::int32_t>(next() % VOCAB);
  for (auto& x : s.kv) x = static_cast<unsigned char>(next());
  for (auto& x : s.hidden) x = static_cast<unsigned char>(next());
  for (auto& x : s.states) x = static_cast<unsigned char>(next());
  for (int b = 0; b < BATCH; ++b) {
    s.root[b] = 3 + b;
    s.cache_len[b] = s.new_cache_len[b] = 10 + b;
    s.seed[b] = 1000 + b;
    s.temperature[b] = 0.75f;
  }
}

/// Lets the walk accept the deepest rank-0 node: the target says what the drafter found likeliest.
void agree(scene& s, scene const& drafted) {
  for (int b = 0; b < BATCH; ++b) {
    for (int i = 0; i < WIDTH; ++i) {
      int const child = drafted.built.first_child[b * WIDTH + i];
      if (child >= 0) {
        s.target[(b * WIDTH + i) * VOCAB + drafted.built.token[b * WIDTH + child]] = 20;
      }
    }
  }
}

}  // namespace

TEST_CASE("Every call from C gives the bytes of the call from C++", "[c_abi]") {
  auto const c = std::make_unique<scene>(), cpp = std::make_unique<scene>();
  fill(*cpp);
  call_everything_from_cpp(*cpp);  // a first time, for the tree
  fill(*c);
  agree(*c, *cpp);
  *cpp = scene{};
  fill(*cpp);
  std::memcpy(cpp->target, c->target, sizeof c->target);

  call_everything_from_c(c.get());
  call_everything_from_cpp(*cpp);

  int failures = 0;
  REQUIRE(c->statuses == cpp->statuses);
  for (int i = 0; i < c->statuses; ++i) {
    CAPTURE(i, c->status[i].message);
    CHECK(c->status[i].code == cpp->status[i].code);
    CHECK(std::string(c->status[i].message) == cpp->status[i].message);
    failures += c->status[i].code != 0;
  }
  REQUIRE(c->texts == cpp->texts);
  for (int i = 0; i < c->texts; ++i) CHECK(c->text[i] == cpp->text[i]);
  CHECK(std::memcmp(c.get(), cpp.get(), offsetof(scene, memory)) == 0);

  // And the calls did something.
  CHECK(failures == 2);  // the two that were meant to
  CHECK(c->greedy.num_accepted[0] > 1);
  CHECK(c->built.num_nodes[0] == WIDTH);
  CHECK(std::memcmp(&c->sampled, &c->sharded, offsetof(accepted_arrays, log_prob)) == 0);
  CHECK(c->new_cache_len[1] > 11);
}
