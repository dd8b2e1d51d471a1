// SPDX-License-Identifier: Apache-2.0
#include "rank.hpp"

#include "toy_models.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace {

using ddtree::index_t;
using ddtree::token_t;

constexpr ddtree::round_shape shape{
    .batch = 4, .vocab = vocabulary::size, .depth = 5, .top_k = 32, .budget = 16, .requests = 3};
constexpr std::size_t width = static_cast<std::size_t>(shape.width());
constexpr std::size_t rows = static_cast<std::size_t>(shape.batch) * width;
// The batch's third row is padding, as in a captured graph.
constexpr std::int32_t requests[] = {2, 0, -1, 1};
constexpr index_t capacity = 128;  // KV rows of a request
constexpr int heads = 2;           // of a rank
// Reading a column that is not an id would choose it.
constexpr float not_an_id = 1e30f;

void check(ddtree::status const& s) {
  if (!s) throw std::runtime_error(s.message);
}

// Greedy, Gumbel-max over the whole vocabulary, and over the best 20.
constexpr std::int32_t max_top_k = 32;

ddtree::sampling layout_of_sampling() {
  ddtree::sampling how;
  how.max_top_k = max_top_k;
  return how;
}

ddtree::accept_options with_log_prob() {
  ddtree::accept_options options;
  options.shard_log_prob = true;
  return options;
}

std::size_t scratch_bytes(ddtree::context const& ctx, index_t ranks) {
  return std::max({ddtree::expand_shard_workspace_bytes(ctx, shape),
                   ddtree::expand_merge_workspace_bytes(ctx, shape, ranks),
                   ddtree::build_tree_workspace_bytes(ctx, shape),
                   ddtree::accept_shard_workspace_bytes(ctx, shape),
                   ddtree::accept_merge_workspace_bytes(ctx, shape, ranks)});
}

/// Fills the columns of a row that are ids.
template <class Logit>
void fill_row(float* row, ddtree::vocab_ranges const& ranges, Logit logit) {
  for (auto const& range : ranges.range) {
    for (index_t i = 0; i < range.count; ++i) {
      row[range.local_begin + i] = logit(static_cast<token_t>(range.global_begin + i));
    }
  }
}

/// Copies `count` elements from a context's memory.
template <class T>
std::vector<T> fetch(ddtree::context const& ctx, T const* from, std::size_t count) {
  std::vector<T> values(count);
  copy(ctx, values.data(), from, count * sizeof(T));
  return values;
}

/// FNV-1a, going on from `hash`.
template <class T>
void add(std::uint64_t& hash, std::vector<T> const& values) {
  auto const* const bytes = reinterpret_cast<unsigned char const*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
}

void add(std::uint64_t& hash, ddtree::context const& ctx, ddtree::draft_tree const& tree) {
  auto const from = [&](auto const* values, std::size_t count) {
    add(hash, fetch(ctx, values, count));
  };
  constexpr auto batch = static_cast<std::size_t>(shape.batch);
  from(tree.token, rows);
  from(tree.parent, rows);
  from(tree.depth, rows);
  from(tree.rank, rows);
  from(tree.log_weight, rows);
  from(tree.first_child, rows);
  from(tree.next_sibling, rows);
  from(tree.ancestors, rows * static_cast<std::size_t>(shape.words()));
  from(tree.num_nodes, batch);
  from(tree.flags, batch);
}

void add(std::uint64_t& hash, ddtree::context const& ctx, ddtree::accepted const& block) {
  auto const from = [&](auto const* values, std::size_t count) {
    add(hash, fetch(ctx, values, count));
  };
  constexpr auto batch = static_cast<std::size_t>(shape.batch);
  constexpr std::size_t path = batch * (shape.depth + 1);
  from(block.path, path);
  from(block.num_accepted, batch);
  from(block.token, path);
  from(block.bonus, batch);
  from(block.log_prob, path);
  from(block.flags, batch);
}

}  // namespace

rank::rank(ddtree::context const& ctx, int index, int ranks)
    : draft(ctx, ddtree::expand_shard_bytes(shape), ranks),
      target(ctx, ddtree::accept_shard_bytes(shape, layout_of_sampling(), with_log_prob()), ranks),
      ctx_(ctx),
      index_(index),
      ranks_(ranks),
      cut_(ranks),
      mine_(cut_.of(index)),
      draft_logits_(ctx, static_cast<std::size_t>(shape.batch * shape.depth * cut_.columns())),
      target_logits_(ctx, rows * static_cast<std::size_t>(cut_.columns())),
      cache_(ctx, static_cast<std::size_t>(shape.requests * capacity * heads)),
      tensor_(ctx, 1),
      cache_len_(ctx, static_cast<std::size_t>(shape.requests)),
      request_(ctx, static_cast<std::size_t>(shape.batch)),
      root_(ctx, static_cast<std::size_t>(shape.batch), 1),
      token_(ctx, rows),
      position_(ctx, rows),
      slot_(ctx, rows),
      temperature_(ctx, static_cast<std::size_t>(shape.requests)),
      top_k_(ctx, static_cast<std::size_t>(shape.requests)),
      seed_(ctx, static_cast<std::size_t>(shape.requests)),
      memory_(ctx, ddtree::decoding_round::bytes(ctx, shape)),
      scratch_(ctx, scratch_bytes(ctx, ranks)),
      sequence_(static_cast<std::size_t>(shape.requests)) {
  ddtree::round_options round;
  round.log_prob = true;
  check(ddtree::decoding_round::create(ctx, shape, memory_.as_workspace(), &round_, round));
  request_.write({std::begin(requests), std::end(requests)});
  batch_ = {cache_len_.data(), request_.data()};

  temperature_.write({0.0f, 0.9f, 0.9f});
  top_k_.write({0, 0, 20});
  seed_.write({1, 2, 3});
  how_ = layout_of_sampling();
  how_.temperature = temperature_.data();
  how_.top_k = top_k_.data();
  how_.seed = seed_.data();
  options_ = with_log_prob();

  ddtree::kv_tensor t;
  t.base = cache_.data();
  t.row_bytes = sizeof(kv_row);
  t.head_stride = sizeof(kv_row);
  t.token_stride = heads * t.head_stride;
  t.page_stride = capacity * t.token_stride;
  t.pages = shape.requests;
  t.heads = heads;
  tensor_.write({t});
}

void rank::propose() {
  write_draft_logits();
  ddtree::logits_view view{draft_logits_.data(), ddtree::dtype::f32};
  view.vocab = cut_.columns();
  check(ddtree::expand_shard(ctx_, shape, batch_, view, mine_,
                             {draft.sent.data(), draft.sent.bytes()}, scratch_.as_workspace()));
}

void rank::verify() {
  auto const scratch = scratch_.as_workspace();
  check(ddtree::expand_merge(ctx_, shape, batch_, {draft.all.data(), ranks_}, round_.candidates_,
                             scratch));
  check(ddtree::build_tree(ctx_, shape, batch_, round_.candidates_, root_.data(), round_.tree,
                           scratch));
  check(ddtree::write_verify_inputs(ctx_, shape, batch_, round_.tree,
                                    {token_.data(), position_.data(), slot_.data()}));
  write_tree_to_cache();
  write_target_logits();
  ddtree::logits_view view{target_logits_.data(), ddtree::dtype::f32};
  view.vocab = cut_.columns();
  check(ddtree::accept_shard(ctx_, shape, batch_, round_.tree, view, mine_, how_,
                             {target.sent.data(), target.sent.bytes()}, scratch, options_));
}

void rank::commit() {
  check(ddtree::accept_merge(ctx_, shape, batch_, round_.tree, {target.all.data(), ranks_}, how_,
                             round_.accepted_, scratch_.as_workspace(), options_));
  check(ddtree::compact_kv(ctx_, shape, batch_, round_.accepted_, cache_view()));
  check(ddtree::advance(ctx_, shape, batch_, round_.accepted_, cache_len_.data()));

  add(trees, ctx_, round_.tree);
  add(blocks, ctx_, round_.accepted_);
  constexpr auto batch = static_cast<std::size_t>(shape.batch);
  take(fetch(ctx_, round_.accepted_.num_accepted, batch),
       fetch(ctx_, round_.accepted_.token, batch * (shape.depth + 1)));
  // The bonus is the next root; the padding row has none.
  auto roots = fetch(ctx_, round_.accepted_.bonus, batch);
  std::replace(roots.begin(), roots.end(), -1, 0);
  root_.write(roots);
}

/// The drafter: it goes on from the root by what it expects the target to say.
void rank::write_draft_logits() {
  auto const columns = static_cast<std::size_t>(cut_.columns());
  auto const root = root_.read();
  std::vector<float> logits(draft_logits_.bytes() / sizeof(float), not_an_id);
  for (std::size_t b = 0; b < root.size(); ++b) {
    token_t last = root[b];
    for (std::size_t d = 0; d < shape.depth; ++d, last = favourite(last)) {
      fill_row(&logits[(b * shape.depth + d) * columns], mine_,
               [&](token_t id) { return draft_logit(last, id); });
    }
  }
  draft_logits_.write(logits);
}

void rank::write_target_logits() {
  auto const columns = static_cast<std::size_t>(cut_.columns());
  auto const token = token_.read();
  std::vector<float> logits(rows * columns, not_an_id);
  for (std::size_t i = 0; i < rows; ++i) {
    fill_row(&logits[i * columns], mine_, [&](token_t id) { return target_logit(token[i], id); });
  }
  target_logits_.write(logits);
}

/// What the target's attention does before it reads: keys and values of each node to its slot.
void rank::write_tree_to_cache() {
  auto const token = token_.read(), position = position_.read(), slot = slot_.read();
  auto cache = cache_.read();
  for (std::size_t i = 0; i < rows; ++i) {
    if (slot[i] < 0) continue;  // a padding row
    index_t const row = requests[i / width] * capacity + slot[i];
    for (int h = 0; h < heads; ++h) {
      cache[static_cast<std::size_t>(row * heads + h)] = {token[i], position[i], index_ * heads + h,
                                                          0};
    }
  }
  cache_.write(cache);
}

/// Appends what was committed to the sequences: the root and the accepted tokens.
void rank::take(std::vector<std::int32_t> const& num_accepted, std::vector<token_t> const& path) {
  add(tokens, path);
  auto const root = root_.read();
  for (std::size_t b = 0; b < num_accepted.size(); ++b) {
    if (requests[b] < 0) continue;
    auto const request = static_cast<std::size_t>(requests[b]);
    auto& sequence = sequence_[request];
    std::size_t const before = sequence.size();
    sequence.push_back(root[b]);
    auto const* const first = &path[b * (shape.depth + 1)];
    sequence.insert(sequence.end(), first, first + num_accepted[b]);
    accepted += num_accepted[b];
    check_cache(request, before);
    // A full cache ends the request; another one takes its place.
    if (static_cast<index_t>(sequence.size()) > capacity - shape.width()) sequence.clear();
  }
  std::vector<std::int32_t> lengths;
  for (auto const& s : sequence_) lengths.push_back(static_cast<std::int32_t>(s.size()));
  cache_len_.write(lengths);
}

void rank::check_cache(std::size_t request, std::size_t before) {
  auto const cache = cache_.read();
  auto const& sequence = sequence_[request];
  auto const length = static_cast<std::size_t>(cache_len_.read()[request]);
  cache_is_right = cache_is_right && length == sequence.size();
  for (std::size_t s = before; s < sequence.size(); ++s) {
    for (int h = 0; h < heads; ++h) {
      std::size_t const at = (request * capacity + s) * heads + static_cast<std::size_t>(h);
      kv_row const& row = cache[at];
      cache_is_right = cache_is_right && row.token == sequence[s] &&
                       row.position == static_cast<std::int32_t>(s) &&
                       row.head == index_ * heads + h;
    }
  }
}

ddtree::kv_cache rank::cache_view() {
  ddtree::kv_cache view;
  view.tensors = tensor_.data();
  view.num_tensors = 1;
  view.table[0].page_size = capacity;
  return view;
}
