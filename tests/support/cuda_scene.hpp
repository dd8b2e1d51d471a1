// SPDX-License-Identifier: Apache-2.0
// A batch with the arrays of every call, laid out alike in each context, and every call over it.
// Inputs are made on the CPU; what one call hands to the next is an input of its own, so that each
// call can be compared alone.
#pragma once

#include "ddtree/ddtree.hpp"

#include "support/catch.hpp"
#include "support/cuda_memory.hpp"
#include "support/trees.hpp"
#include "support/words.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ddtree_test {

struct placed_candidates {
  placed_candidates(memory_set& m, ddtree::round_shape const& s, role exact, role close)
      : token(m.take<ddtree::token_t>("candidates.token", slots(s), exact)),
        log_prob(m.take<float>("candidates.log_prob", slots(s), close)),
        flags(m.take<std::uint32_t>("candidates.flags", sized(s.batch), exact)) {}

  static std::size_t slots(ddtree::round_shape const& s) {
    return sized(s.batch * s.depth * s.top_k);
  }
  ddtree::candidates view() const { return {token.data, log_prob.data, flags.data}; }

  placed<ddtree::token_t> token;
  placed<float> log_prob;
  placed<std::uint32_t> flags;
};

struct placed_tree {
  placed_tree(memory_set& m, ddtree::round_shape const& s, role exact)
      : token(m.take<ddtree::token_t>("tree.token", nodes(s), exact)),
        parent(m.take<ddtree::node_t>("tree.parent", nodes(s), exact)),
        depth(m.take<std::int32_t>("tree.depth", nodes(s), exact)),
        rank(m.take<std::int32_t>("tree.rank", nodes(s), exact)),
        log_weight(m.take<float>("tree.log_weight", nodes(s), exact)),
        first_child(m.take<ddtree::node_t>("tree.first_child", nodes(s), exact)),
        next_sibling(m.take<ddtree::node_t>("tree.next_sibling", nodes(s), exact)),
        ancestors(
            m.take<std::uint32_t>("tree.ancestors", nodes(s) * sized(s.words()), exact)),
        num_nodes(m.take<std::int32_t>("tree.num_nodes", sized(s.batch), exact)),
        flags(m.take<std::uint32_t>("tree.flags", sized(s.batch), exact)) {}

  static std::size_t nodes(ddtree::round_shape const& s) { return sized(s.batch * s.width()); }
  ddtree::draft_tree view() const {
    return {token.data,      parent.data,      depth.data,        rank.data,
            log_weight.data, first_child.data, next_sibling.data, ancestors.data,
            num_nodes.data,  flags.data};
  }

  placed<ddtree::token_t> token;
  placed<ddtree::node_t> parent;
  placed<std::int32_t> depth, rank;
  placed<float> log_weight;
  placed<ddtree::node_t> first_child, next_sibling;
  placed<std::uint32_t> ancestors;
  placed<std::int32_t> num_nodes;
  placed<std::uint32_t> flags;
};

struct placed_accepted {
  placed_accepted(memory_set& m, ddtree::round_shape const& s, role exact, role close)
      : path(m.take<ddtree::node_t>("accepted.path", rows(s), exact)),
        num_accepted(m.take<std::int32_t>("accepted.num_accepted", sized(s.batch), exact)),
        token(m.take<ddtree::token_t>("accepted.token", rows(s), exact)),
        bonus(m.take<ddtree::token_t>("accepted.bonus", sized(s.batch), exact)),
        log_prob(m.take<float>("accepted.log_prob", rows(s), close)),
        flags(m.take<std::uint32_t>("accepted.flags", sized(s.batch), exact)) {}

  static std::size_t rows(ddtree::round_shape const& s) {
    return sized(s.batch * (ddtree::index_t{s.depth} + 1));
  }
  ddtree::accepted view(bool with_log_prob) const {
    return {path.data,  num_accepted.data, token.data,
            bonus.data, with_log_prob ? log_prob.data : nullptr, flags.data};
  }

  placed<ddtree::node_t> path;
  placed<std::int32_t> num_accepted;
  placed<ddtree::token_t> token, bonus;
  placed<float> log_prob;
  placed<std::uint32_t> flags;
};

struct scene {
  static constexpr ddtree::index_t page_size = 4, heads = 2, row_bytes = 16, tensors = 2;
  static constexpr ddtree::index_t hidden_bytes = 24, state_bytes = 40, ranks = 2;

  /// Slots for trees behind some context, the same for every request.
  static ddtree::index_t columns_for(ddtree::round_shape const& s) {
    return (3 * s.width() + 40) / page_size;
  }

  scene(ddtree::context const& context, ddtree::round_shape const& extents, ddtree::dtype logits)
      : ctx(context),
        shape(extents),
        type(logits),
        columns(columns_for(extents)),
        pages(extents.request_rows() * columns),
        memory(context),
        cache_len(memory.take<std::int64_t>("cache_len", requests(), role::input)),
        request(memory.take<std::int32_t>("request", sized(shape.batch), role::input)),
        root(memory.take<std::int32_t>("root", sized(shape.batch), role::input)),
        draft(memory.take<unsigned char>("draft", sized(shape.batch * shape.depth) * row(),
                                         role::input)),
        target(memory.take<unsigned char>("target", placed_tree::nodes(shape) * row(),
                                          role::input)),
        target_token(
            memory.take<std::int32_t>("target_token", placed_tree::nodes(shape), role::input)),
        budget(memory.take<std::int32_t>("budget", requests(), role::input)),
        temperature(memory.take<float>("temperature", requests(), role::input)),
        top_p(memory.take<float>("top_p", requests(), role::input)),
        top_k(memory.take<std::int32_t>("top_k", requests(), role::input)),
        seed(memory.take<std::int64_t>("seed", requests(), role::input)),
        candidates_in(memory, shape, role::input, role::input),
        candidates_out(memory, shape, role::output, role::close),
        tree_in(memory, shape, role::input),
        tree_out(memory, shape, role::output),
        accepted_in(memory, shape, role::input, role::input),
        accepted_out(memory, shape, role::output, role::close),
        expand_parts(parts("expand parts", ddtree::expand_shard_bytes(shape), role::scratch)),
        expand_parts_in(parts("expand parts in", ddtree::expand_shard_bytes(shape), role::input)),
        accept_parts(parts("accept parts", accept_part_bytes(), role::scratch)),
        accept_parts_in(parts("accept parts in", accept_part_bytes(), role::input)),
        mask(memory.take<std::uint32_t>("mask", placed_tree::nodes(shape) * sized(mask_words()),
                                        role::output)),
        verify_token(
            memory.take<std::int32_t>("verify.token", placed_tree::nodes(shape), role::output)),
        verify_position(
            memory.take<std::int64_t>("verify.position", placed_tree::nodes(shape), role::output)),
        verify_slot(
            memory.take<std::int64_t>("verify.slot", placed_tree::nodes(shape), role::output)),
        table(memory.take<std::int32_t>("table", requests() * sized(columns), role::input)),
        kv(memory.take<unsigned char>("kv", sized(tensors * tensor_bytes()), role::input)),
        kv_tensors(memory.take<ddtree::kv_tensor>("kv tensors", tensors, role::own)),
        hidden(memory.take<unsigned char>("hidden", placed_tree::nodes(shape) * hidden_bytes,
                                          role::input)),
        hidden_out(memory.take<unsigned char>("hidden out",
                                              placed_tree::nodes(shape) * hidden_bytes,
                                              role::output)),
        states(memory.take<unsigned char>("states", placed_tree::nodes(shape) * state_bytes,
                                          role::input)),
        live_states(memory.take<unsigned char>("live states", requests() * state_bytes,
                                               role::output)),
        state_tensors(memory.take<ddtree::state_tensor>("state tensors", 1, role::own)),
        new_len(memory.take<std::int64_t>("new_len", requests(), role::input)),
        work(memory.take<unsigned char>("workspace", workspace_bytes(), role::scratch)),
        round_memory(memory.take<unsigned char>(
            "round", ddtree::decoding_round::bytes(context, extents), role::scratch)) {
    draft_view.data = draft.data;
    draft_view.type = type;
    target_view.data = target.data;
    target_view.type = type;
    mask_view.data = mask.data;
    mask_view.region = ddtree::mask_columns::full;
    mask_view.columns = columns * page_size;
    inputs = {verify_token.data, verify_position.data, verify_slot.data};
    target_ids = target_token.data;
    hidden_from = {hidden.data, hidden_bytes, 0, 0, {}};
    hidden_to = {hidden_out.data, hidden_bytes, 0, 0, {}};
    paging.entries = table.data;
    paging.columns = columns;
    paging.page_size = page_size;
    set_kv(kv.data, page_size * heads * row_bytes, heads * row_bytes);
    state_tensors.host[0] = {states.data,      shape.width() * state_bytes,
                             state_bytes,      shape.batch,
                             live_states.data, state_bytes,
                             shape.request_rows(), state_bytes};
  }

  /// Where the cache stands; tensor after tensor.
  void set_kv(unsigned char* base, ddtree::index_t page_stride, ddtree::index_t token_stride) {
    for (ddtree::index_t t = 0; t < tensors; ++t) {
      kv_tensors.host[t] = {base + t * tensor_bytes(),
                            page_stride,
                            token_stride,
                            row_bytes,
                            pages,
                            static_cast<std::int32_t>(heads),
                            static_cast<std::int32_t>(row_bytes),
                            0,
                            0};
    }
  }

  std::size_t requests() const { return sized(shape.request_rows()); }
  std::size_t row() const { return sized(shape.vocab) * element_bytes(type); }
  ddtree::index_t mask_words() const { return (columns * page_size + 31) / 32; }
  ddtree::index_t tensor_bytes() const { return pages * page_size * heads * row_bytes; }

  std::size_t workspace_bytes() const {
    return std::max({std::size_t{1}, ddtree::expand_workspace_bytes(ctx, shape),
                     ddtree::expand_shard_workspace_bytes(ctx, shape),
                     ddtree::expand_merge_workspace_bytes(ctx, shape, ranks),
                     ddtree::build_tree_workspace_bytes(ctx, shape),
                     ddtree::accept_greedy_workspace_bytes(ctx, shape),
                     ddtree::accept_sampled_workspace_bytes(ctx, shape),
                     ddtree::accept_shard_workspace_bytes(ctx, shape),
                     ddtree::accept_merge_workspace_bytes(ctx, shape, ranks)});
  }

  ddtree::batch_view batch() const { return {cache_len.data, request.data}; }
  ddtree::workspace scratch() const { return work.as_workspace(); }
  ddtree::sampling how() const {
    ddtree::sampling s;
    s.temperature = temperature.data;
    s.top_p = top_p.data;
    s.top_k = top_k.data;
    s.seed = seed.data;
    s.max_top_k = 16;
    return s;
  }
  ddtree::build_options build() const {
    ddtree::build_options o;
    o.budget = budget.data;
    return o;
  }
  ddtree::accept_options shard_options() const {
    ddtree::accept_options o;
    o.shard_log_prob = true;
    return o;
  }
  ddtree::kv_cache cache() const {
    ddtree::kv_cache c;
    c.tensors = kv_tensors.data;
    c.num_tensors = tensors;
    c.table[0] = paging;
    return c;
  }
  ddtree::state_view state() const {
    ddtree::state_view s;
    s.tensors = state_tensors.data;
    s.num_tensors = 1;
    return s;
  }

  /// Columns [begin, begin + count) of a view, as a rank has them.
  struct part {
    ddtree::logits_view logits;
    ddtree::vocab_ranges ranges;
  };
  part part_of(ddtree::logits_view from, ddtree::index_t rank) const {
    ddtree::index_t const cut = shape.vocab * 2 / 5;
    ddtree::index_t const begin = rank == 0 ? 0 : cut;
    part p;
    p.logits = from;
    p.logits.data = static_cast<unsigned char const*>(from.data) + sized(begin) * element_bytes(type);
    p.logits.vocab = rank == 0 ? cut : shape.vocab - cut;
    if (p.logits.row_stride == 0) p.logits.row_stride = shape.vocab;
    p.ranges.range[0] = {0, p.logits.vocab, begin};
    return p;
  }
  static ddtree::shard_out one(placed<unsigned char> const& all, ddtree::index_t rank) {
    std::size_t const bytes = all.size / ranks;
    return {all.data + sized(rank) * bytes, bytes};
  }
  static ddtree::shard_in every(placed<unsigned char> const& all) {
    return {all.data, ranks, static_cast<ddtree::index_t>(all.size / ranks)};
  }

  ddtree::context ctx;
  ddtree::round_shape shape;
  ddtree::dtype type;
  ddtree::index_t columns, pages;
  memory_set memory;

  placed<std::int64_t> cache_len;
  placed<std::int32_t> request, root;
  placed<unsigned char> draft, target;
  placed<std::int32_t> target_token, budget;
  placed<float> temperature, top_p;
  placed<std::int32_t> top_k;
  placed<std::int64_t> seed;
  placed_candidates candidates_in, candidates_out;
  placed_tree tree_in, tree_out;
  placed_accepted accepted_in, accepted_out;
  placed<unsigned char> expand_parts, expand_parts_in, accept_parts, accept_parts_in;
  placed<std::uint32_t> mask;
  placed<std::int32_t> verify_token;
  placed<std::int64_t> verify_position, verify_slot;
  placed<std::int32_t> table;
  placed<unsigned char> kv;
  placed<ddtree::kv_tensor> kv_tensors;
  placed<unsigned char> hidden, hidden_out, states, live_states;
  placed<ddtree::state_tensor> state_tensors;
  placed<std::int64_t> new_len;
  placed<unsigned char> work, round_memory;

  // What the calls are given; a test may point them elsewhere.
  ddtree::logits_view draft_view, target_view;
  ddtree::mask_view mask_view;
  ddtree::verify_inputs inputs;
  ddtree::ids_in target_ids;
  ddtree::rows_view hidden_from, hidden_to;
  ddtree::kv_table paging;

 private:
  std::size_t accept_part_bytes() const {
    // The pointers only say which arrays are bound.
    ddtree::sampling s;
    s.temperature = &any_;
    s.max_top_k = 16;
    return ddtree::accept_shard_bytes(shape, s, shard_options());
  }
  placed<unsigned char> parts(char const* name, std::size_t bytes, role what) {
    return memory.take<unsigned char>(name, ranks * ((bytes + 15) / 16 * 16), what);
  }

  float any_ = 1;
};

/// One call over a scene.
struct named_call {
  ddtree::operation op;
  ddtree::status (*run)(scene const&);
};

/// Every call, from the inputs of its own. The shard calls' contributions are made for both ranks.
inline constexpr named_call calls[] = {
    {ddtree::operation::expand,
     [](scene const& s) {
       return expand(s.ctx, s.shape, s.batch(), s.draft_view, s.candidates_out.view(), s.scratch());
     }},
    {ddtree::operation::expand_shard,
     [](scene const& s) {
       for (ddtree::index_t rank = 0; rank < scene::ranks; ++rank) {
         auto const p = s.part_of(s.draft_view, rank);
         auto const status = expand_shard(s.ctx, s.shape, s.batch(), p.logits, p.ranges,
                                          scene::one(s.expand_parts, rank), s.scratch());
         if (!status) return status;
       }
       // What was contributed shows in what it merges to.
       return expand_merge(s.ctx, s.shape, s.batch(), scene::every(s.expand_parts),
                           s.candidates_out.view(), s.scratch());
     }},
    {ddtree::operation::expand_merge,
     [](scene const& s) {
       return expand_merge(s.ctx, s.shape, s.batch(), scene::every(s.expand_parts_in),
                           s.candidates_out.view(), s.scratch());
     }},
    {ddtree::operation::build_tree,
     [](scene const& s) {
       return build_tree(s.ctx, s.shape, s.batch(), s.candidates_in.view(), s.root.data,
                         s.tree_out.view(), s.scratch(), s.build());
     }},
    {ddtree::operation::link_tree,
     [](scene const& s) {
       ddtree::tree_nodes nodes;
       nodes.parent = s.tree_in.parent.data;
       nodes.token = s.tree_in.token.data;
       nodes.num_nodes = s.tree_in.num_nodes.data;
       nodes.log_weight = s.tree_in.log_weight.data;
       return link_tree(s.ctx, s.shape, s.batch(), nodes, s.tree_out.view());
     }},
    {ddtree::operation::write_mask,
     [](scene const& s) {
       return write_mask(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.mask_view);
     }},
    {ddtree::operation::write_verify_inputs,
     [](scene const& s) {
       ddtree::verify_options o;
       o.table = s.cache().table[0];
       return write_verify_inputs(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.inputs, o);
     }},
    {ddtree::operation::accept_tokens,
     [](scene const& s) {
       return accept_tokens(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.target_ids,
                            s.accepted_out.view(false));
     }},
    {ddtree::operation::accept_greedy,
     [](scene const& s) {
       return accept_greedy(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.target_view,
                            s.accepted_out.view(true), s.scratch());
     }},
    {ddtree::operation::accept_sampled,
     [](scene const& s) {
       return accept_sampled(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.target_view, s.how(),
                             s.accepted_out.view(true), s.scratch());
     }},
    {ddtree::operation::accept_shard,
     [](scene const& s) {
       for (ddtree::index_t rank = 0; rank < scene::ranks; ++rank) {
         auto const p = s.part_of(s.target_view, rank);
         auto const status = accept_shard(s.ctx, s.shape, s.batch(), s.tree_in.view(), p.logits,
                                          p.ranges, s.how(), scene::one(s.accept_parts, rank),
                                          s.scratch(), s.shard_options());
         if (!status) return status;
       }
       return accept_merge(s.ctx, s.shape, s.batch(), s.tree_in.view(),
                           scene::every(s.accept_parts), s.how(), s.accepted_out.view(true),
                           s.scratch(), s.shard_options());
     }},
    {ddtree::operation::accept_merge,
     [](scene const& s) {
       return accept_merge(s.ctx, s.shape, s.batch(), s.tree_in.view(),
                           scene::every(s.accept_parts_in), s.how(), s.accepted_out.view(true),
                           s.scratch(), s.shard_options());
     }},
    {ddtree::operation::compact_kv,
     [](scene const& s) {
       return compact_kv(s.ctx, s.shape, s.batch(), s.accepted_in.view(false), s.cache());
     }},
    {ddtree::operation::compact_rows,
     [](scene const& s) {
       return compact_rows(s.ctx, s.shape, s.batch(), s.accepted_in.view(false), s.hidden_from,
                           s.hidden_to);
     }},
    {ddtree::operation::compact_state,
     [](scene const& s) {
       return compact_state(s.ctx, s.shape, s.batch(), s.accepted_in.view(false), s.state());
     }},
    {ddtree::operation::advance,
     [](scene const& s) {
       return advance(s.ctx, s.shape, s.batch(), s.accepted_in.view(false), s.new_len.data);
     }},
};

/// Which rows of a batch are alive: `live` of them, spread; the others are dead in one of four ways,
/// and the tables of dead requests point at pages of live ones.
inline void place_requests(scene& s, std::mt19937& random, ddtree::index_t live) {
  std::vector<std::int32_t> ids(s.requests());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<std::size_t> rows(sized(s.shape.batch));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  std::shuffle(rows.begin(), rows.end(), random);

  auto const columns = sized(s.columns);
  ddtree::index_t const longest = s.columns * scene::page_size - s.shape.width() / 2;
  for (std::size_t i = 0; i < s.table.size; ++i) {
    s.table.host[i] = static_cast<std::int32_t>((i * 7 + 3) % s.table.size);
  }
  // Coprime to 7 or not, no page may occur twice.
  if (s.table.size % 7 == 0) {
    for (std::size_t i = 0; i < s.table.size; ++i) s.table.host[i] = static_cast<std::int32_t>(i);
  }
  for (std::size_t r = 0; r < s.requests(); ++r) {
    s.cache_len.host[r] = static_cast<std::int64_t>(random() % static_cast<unsigned>(longest));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::int32_t const id = ids[i];
    s.request.host[rows[i]] = id;
    if (i < sized(live)) continue;
    if (i % 4 == 0) s.request.host[rows[i]] = -1;
    if (i % 4 == 1) s.cache_len.host[id] = -1;
    if (i % 4 == 2) s.cache_len.host[id] = (std::int64_t{1} << 40) + 1;
    if (i % 4 == 3) s.request.host[rows[i]] = static_cast<std::int32_t>(s.requests());
    if (live == 0) continue;
    auto const from = sized(ids[i % sized(live)]);
    std::copy_n(s.table.host + from * columns, columns, s.table.host + sized(id) * columns);
  }
}

/// Makes every input of a scene on the CPU, from scratch, by the seed alone.
inline void make_inputs(scene& s, std::uint64_t seed, ddtree::index_t live) {
  std::mt19937 random(static_cast<unsigned>(hash(seed)));
  auto const below = [&](ddtree::index_t n) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(n));
  };
  auto const is_one_in = [&](int n) { return random() % static_cast<unsigned>(n) == 0; };
  place_requests(s, random, live);
  for (auto& id : s.root) id = below(s.shape.vocab);
  for (std::size_t r = 0; r < s.requests(); ++r) {
    s.budget.host[r] = is_one_in(3) ? below(s.shape.width()) : s.shape.budget;
    s.temperature.host[r] = is_one_in(4) ? 0.0f : 0.5f + 0.1f * static_cast<float>(below(8));
    s.top_p.host[r] = is_one_in(2) ? 1.0f : 0.9f;
    s.top_k.host[r] = is_one_in(2) ? 0 : 1 + below(16);
    s.seed.host[r] = static_cast<std::int64_t>(hash(random()));
    s.new_len.host[r] = s.cache_len.host[r];
  }
  for (auto* bytes : {&s.kv, &s.hidden, &s.states}) {
    for (auto& byte : *bytes) byte = static_cast<unsigned char>(random());
  }

  auto const no_change = [](std::size_t, std::vector<float>&) {};
  auto const draft = hashed_rows(hash(seed + 1), sized(s.shape.batch * s.shape.depth),
                                 sized(s.shape.vocab), s.type, 2.5f, no_change);
  std::copy(draft.begin(), draft.end(), s.draft.begin());
  REQUIRE(expand(s.ctx, s.shape, s.batch(), s.draft_view, s.candidates_in.view(), s.scratch()));
  REQUIRE(build_tree(s.ctx, s.shape, s.batch(), s.candidates_in.view(), s.root.data,
                     s.tree_in.view(), s.scratch(), s.build()));

  // Most nodes like one of their children, so that walks get somewhere.
  auto const width = sized(s.shape.width());
  std::vector<std::int32_t> favourite(placed_tree::nodes(s.shape), -1);
  for (std::size_t i = 0; i < favourite.size(); ++i) {
    s.target_token.host[i] = below(s.shape.vocab);
    std::int32_t child = s.tree_in.first_child.host[i];
    if (child < 0 || is_one_in(6)) continue;
    std::int32_t const next = s.tree_in.next_sibling.host[i / width * width + sized(child)];
    if (next >= 0 && is_one_in(2)) child = next;
    favourite[i] = s.tree_in.token.host[i / width * width + sized(child)];
    s.target_token.host[i] = favourite[i];
  }
  auto const prefer = [&](std::size_t i, std::vector<float>& x) {
    if (favourite[i] >= 0) x[sized(favourite[i])] += 12;
  };
  auto const target = hashed_rows(hash(seed + 2), favourite.size(), sized(s.shape.vocab), s.type,
                                  2.5f, prefer);
  std::copy(target.begin(), target.end(), s.target.begin());
  REQUIRE(accept_greedy(s.ctx, s.shape, s.batch(), s.tree_in.view(), s.target_view,
                        s.accepted_in.view(true), s.scratch()));
  for (ddtree::index_t rank = 0; rank < scene::ranks; ++rank) {
    auto const d = s.part_of(s.draft_view, rank), t = s.part_of(s.target_view, rank);
    REQUIRE(expand_shard(s.ctx, s.shape, s.batch(), d.logits, d.ranges,
                         scene::one(s.expand_parts_in, rank), s.scratch()));
    REQUIRE(accept_shard(s.ctx, s.shape, s.batch(), s.tree_in.view(), t.logits, t.ranges, s.how(),
                         scene::one(s.accept_parts_in, rank), s.scratch(), s.shard_options()));
  }
}

}  // namespace ddtree_test
