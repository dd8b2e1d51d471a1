#include "engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace tiny_lm {
namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

void check(ddtree::status const& s) {
  if (!s) throw std::runtime_error(std::string("ddtree: ") + s.message);
}

ddtree::round_shape shape_of(model_config const& config, decode_options const& o) {
  ddtree::round_shape shape{.batch = o.batch, .vocab = config.vocab};
  switch (o.how) {
    case mode::plain: shape.depth = 0, shape.top_k = 1, shape.budget = 0; break;
    case mode::chain:
      shape.depth = config.draft_depth(), shape.top_k = 1, shape.budget = config.draft_depth();
      break;
    case mode::tree:
      shape.depth = config.draft_depth(), shape.top_k = o.top_k, shape.budget = o.budget;
      break;
  }
  return shape;
}

/// Pages of a sequence that uses every position of the model, and the tree behind its last one.
int pages_per_sequence(model_config const& config, ddtree::round_shape const& shape) {
  int const slots = config.positions + static_cast<int>(shape.width());
  return (slots + paged_cache::page_size - 1) / paged_cache::page_size;
}

}  // namespace

engine::engine(model const& weights, decode_options const& options)
    : model_(weights),
      options_(options),
      target_(weights, options.threads),
      drafter_(weights, options.threads),
      cache_(
          weights.config.target, options.batch,
          pages_per_sequence(weights.config, shape_of(weights.config, options)),
          options.batch * pages_per_sequence(weights.config, shape_of(weights.config, options))) {
  auto const shape = shape_of(weights.config, options);
  auto const rows = size(shape.batch);
  row_request_.assign(rows, -1);
  cache_len_.assign(rows, 0);
  root_.assign(rows, 0);
  budget_.assign(rows, 0);
  remaining_.assign(rows, 0);
  capacity_.assign(rows, weights.config.positions);
  seed_.assign(rows, 0);
  temperature_.assign(rows, options.temperature);
  top_p_.assign(rows, options.top_p);
  for (auto* input : {&tokens_, &positions_, &slots_}) input->resize(rows * size(shape.width()));
  first_row_.resize(rows);
  mask_.resize(rows * size(shape.width() * shape.words()));
  draft_logits_.resize(rows * size(shape.depth) * size(shape.vocab));
  sequences_.assign(rows, sequence(weights.config));
  stats_.drafted.resize(size(shape.depth));
  stats_.accepted.resize(size(shape.depth));

  // One thread: the calls are short beside the model here, and starting threads is not free.
  auto const cpu = ddtree::context::cpu(1).with_variant(options.variant);
  ddtree::round_options steps;
  steps.build.budget = budget_.data();
  steps.build.capacity = capacity_.data();
  if (options.cut_walks) {
    steps.accept.stop_tokens = &model_.config.eos;
    steps.accept.stop_tokens_per_request = 1;
    steps.accept.remaining = remaining_.data();
  }
  round_memory_.resize(ddtree::decoding_round::bytes(cpu, shape));
  check(ddtree::decoding_round::create(cpu, shape, {round_memory_.data(), round_memory_.size()},
                                       &round_, steps));
}

std::vector<generation> engine::run(std::span<request const> requests,
                                    progress_callback const& progress) {
  results_.assign(requests.size(), {});
  next_ = finished_ = 0;
  while (finished_ < requests.size()) {
    admit(requests);
    draft();
    verify();
    accept();
    commit();
    if (progress) progress(finished_, stats_.tokens);
  }
  return std::move(results_);
}

/// Puts waiting requests into free rows.
void engine::admit(std::span<request const> requests) {
  stage_timer const timer(stats_.time.prefill);
  for (std::size_t row = 0; row < row_request_.size() && next_ < requests.size(); ++row) {
    if (row_request_[row] >= 0) continue;
    request const& joining = requests[next_];
    if (joining.prompt.empty()) throw std::invalid_argument("engine: a prompt without tokens");
    if (joining.prompt.size() + size(options_.max_new_tokens) > size(model_.config.positions)) {
      throw std::invalid_argument("engine: prompt and new tokens exceed the model's positions");
    }
    row_request_[row] = static_cast<std::int32_t>(row);
    seed_[row] = static_cast<std::int64_t>(joining.seed);
    remaining_[row] = options_.max_new_tokens;
    sequences_[row].request = next_++;
    sequences_[row].rounds = 0;
    // The prompt's last token is the first root: its round has budget 0 and decodes plainly.
    root_[row] = joining.prompt.back();
    budget_[row] = 0;
    prefill(sequences_[row], row, joining.prompt);
  }
}

/// Runs all of the prompt but its last token.
void engine::prefill(sequence& joined, std::size_t row, ids_t const& prompt) {
  auto const length = static_cast<std::int32_t>(prompt.size()) - 1;
  cache_len_[row] = length;
  joined.context.clear();
  cache_.reserve(static_cast<int>(row), length);
  if (length == 0) return;
  std::vector<target_row> rows;
  for (std::int32_t p = 0; p < length; ++p) {
    rows.push_back(causal_row(static_cast<int>(row), prompt[size(p)], p));
  }
  logits_.resize(rows.size() * size(model_.config.vocab));
  features_.resize(rows.size() * size(model_.config.feature_width()));
  target_.forward(rows, cache_, logits_, features_);
  if (options_.how != mode::plain) drafter_.add_context(joined.context, features_);
}

/// The drafter's logits, then the tree with its inputs and mask.
void engine::draft() {
  auto const depth_rows = size(round_.shape.depth) * size(round_.shape.vocab);
  {
    stage_timer const timer(stats_.time.draft);
    for (std::size_t row = 0; row < row_request_.size(); ++row) {
      if (row_request_[row] < 0 || budget_[row] == 0) continue;
      draft_request const wanted{&sequences_[row].context, root_[row]};
      drafter_.draft({&wanted, 1}, std::span(draft_logits_).subspan(row * depth_rows, depth_rows));
    }
  }
  stage_timer const timer(stats_.time.tree);
  ddtree::mask_view mask;
  mask.data = mask_.data();
  check(round_.draft(batch(), {draft_logits_.data()}, root_.data(),
                     {tokens_.data(), positions_.data(), slots_.data()}, mask));
}

/// The target's pass over all trees, packed: only rows that hold a node are run.
void engine::verify() {
  stage_timer const timer(stats_.time.verify);
  auto const width = size(round_.shape.width());
  auto const words = size(round_.shape.words());
  std::vector<target_row> rows;
  for (std::size_t b = 0; b < row_request_.size(); ++b) {
    first_row_[b] = static_cast<std::int32_t>(rows.size());
    if (row_request_[b] < 0) continue;
    auto const nodes = size(round_.tree.num_nodes[b]);
    cache_.reserve(static_cast<int>(b), cache_len_[b] + static_cast<int>(nodes));
    for (std::size_t at = b * width; at < b * width + nodes; ++at) {
      rows.push_back({static_cast<int>(b), tokens_[at], positions_[at], slots_[at], cache_len_[b],
                      std::span(mask_).subspan(at * words, words)});
    }
  }
  logits_.resize(rows.size() * size(model_.config.vocab));
  features_.resize(rows.size() * size(model_.config.feature_width()));
  target_.forward(rows, cache_, logits_, features_);
}

void engine::accept() {
  stage_timer const timer(stats_.time.accept);
  ddtree::logits_view target{logits_.data()};
  target.row_offset = first_row_.data();
  ddtree::sampling how;
  if (options_.temperature > 0.0f) {
    how.temperature = temperature_.data();
    how.top_p = top_p_.data();
    how.seed = seed_.data();
  }
  check(round_.accept(batch(), target, how));
}

/// Keeps the cache rows and features of accepted nodes, then hands the tokens out.
void engine::commit() {
  stage_timer const timer(stats_.time.commit);
  for (std::size_t b = 0; b < row_request_.size(); ++b) {
    if (row_request_[b] >= 0) count_round(sequences_[b], b);
  }
  auto const row_bytes = model_.config.feature_width() * static_cast<int>(sizeof(float));
  ddtree::rows_view features{features_.data(), row_bytes};
  features.row_offset = first_row_.data();
  check(ddtree::compact_rows(round_.ctx, round_.shape, batch(), round_.accepted_, features,
                             features));
  check(round_.commit(batch(), kv(), cache_len_.data()));

  for (std::size_t b = 0; b < row_request_.size(); ++b) {
    if (row_request_[b] < 0) continue;
    if (options_.how != mode::plain) {
      auto const kept = size(round_.accepted_.num_accepted[b] + 1);
      drafter_.add_context(
          sequences_[b].context,
          std::span(features_).subspan(size(first_row_[b]) * size(model_.config.feature_width()),
                                       kept * size(model_.config.feature_width())));
    }
    emit(sequences_[b], b);
  }
}

/// Appends the round's tokens to the request's output, and lets a finished request leave.
void engine::emit(sequence& of, std::size_t row) {
  generation& out = results_[of.request];
  auto const count = round_.accepted_.num_accepted[row] + 1;
  auto const* tokens = round_.accepted_.token + row * size(round_.shape.depth + 1);
  bool ended = false;
  for (std::int32_t i = 0; i < count && !ended; ++i) {
    out.tokens.push_back(tokens[i]);
    out.drafted.push_back(i + 1 < count);
    --remaining_[row];
    ++stats_.tokens;
    ended = tokens[i] == model_.config.eos || remaining_[row] == 0;
  }
  root_[row] = round_.accepted_.bonus[row];
  budget_[row] = static_cast<std::int32_t>(round_.shape.budget);
  if (!ended) return;
  cache_.release(static_cast<int>(row));
  row_request_[row] = -1;
  ++finished_;
}

void engine::count_round(sequence& of, std::size_t row) {
  ++stats_.rounds;
  if (budget_[row] == 0) return;
  auto const accepted = round_.accepted_.num_accepted[row];
  auto const first = row * size(round_.shape.width());
  for (std::int32_t i = 1; i < round_.tree.num_nodes[row]; ++i) {
    ++stats_.drafted[size(round_.tree.depth[first + size(i)] - 1)];
  }
  for (std::int32_t d = 0; d < accepted; ++d) ++stats_.accepted[size(d)];
  results_[of.request].committed.push_back(accepted + 1);
  if (observer_) {
    observer_({of.request, of.rounds, cache_len_[row], round_, static_cast<ddtree::index_t>(row)});
  }
  ++of.rounds;
}

/// The cache as the library sees it: two tensors a layer, one block table.
ddtree::kv_cache engine::kv() {
  auto const& shape = model_.config.target;
  ddtree::index_t const head_bytes = shape.head_dim * static_cast<int>(sizeof(float));
  if (kv_tensors_.empty()) {
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (float* base : {cache_.keys(layer), cache_.values(layer)}) {
        ddtree::kv_tensor tensor;
        tensor.base = base;
        tensor.head_stride = head_bytes;
        tensor.token_stride = shape.kv_heads * head_bytes;
        tensor.page_stride = paged_cache::page_size * tensor.token_stride;
        tensor.pages = cache_.pages();
        tensor.heads = shape.kv_heads;
        tensor.row_bytes = static_cast<std::int32_t>(head_bytes);
        kv_tensors_.push_back(tensor);
      }
    }
  }
  ddtree::kv_cache cache;
  cache.tensors = kv_tensors_.data();
  cache.num_tensors = static_cast<ddtree::index_t>(kv_tensors_.size());
  cache.table[0].entries = cache_.block_table().data();
  cache.table[0].columns = cache_.columns();
  cache.table[0].page_size = paged_cache::page_size;
  return cache;
}

}  // namespace tiny_lm
