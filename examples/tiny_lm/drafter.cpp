#include "drafter.hpp"

#include "attention.hpp"
#include "elementwise.hpp"
#include "layer.hpp"
#include "row_split.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tiny_lm {
namespace {

std::size_t size(int value) { return static_cast<std::size_t>(value); }

/// A block may begin at the last position of the target's context.
int cache_capacity(model_config const& config) { return config.positions + config.block; }

}  // namespace

draft_context::draft_context(model_config const& config) : capacity_(cache_capacity(config)) {
  std::vector<float> const tensor(size(capacity_) * size(config.drafter.kv_width()));
  keys_.assign(size(config.drafter.layers), tensor);
  values_ = keys_;
}

/// The block rows of one thread; row r of the call is row r % block of request r / block.
struct drafter::share {
  share(drafter const& owner, std::span<draft_request const> all_requests, int first_row, int last)
      : net(owner.model_),
        rope(owner.rope_),
        cache_rows(owner.cache_rows_),
        requests(all_requests),
        first(first_row),
        rows(shape, last - first_row) {
    for (int r = 0; r < rows.rows; ++r)
      positions.push_back(context(r).length() + (first + r) % net.config.block);
  }

  draft_context& context(int row) const {
    return *requests[size((first + row) / net.config.block)].context;
  }

  void embed() {
    for (int r = 0; r < rows.rows; ++r) {
      bool const is_bonus = (first + r) % net.config.block == 0;
      auto const bonus = requests[size((first + r) / net.config.block)].bonus;
      auto const mask = std::span<float const>(net.drafter.mask_embed);
      std::ranges::copy(is_bonus ? net.target.embedding(bonus) : mask, rows.x[r]);
    }
  }

  void write_kv(layer_weights const& weights, std::size_t layer) {
    project_qkv(weights, shape, rope, positions, rows);
    for (int r = 0; r < rows.rows; ++r) {
      auto const at = size(positions[size(r)]) * size(shape.kv_width());
      std::ranges::copy(rows.k.row(r), context(r).keys_[layer].data() + at);
      std::ranges::copy(rows.v.row(r), context(r).values_[layer].data() + at);
    }
  }

  void attend_and_finish(layer_weights const& weights, std::size_t layer) {
    for (int r = 0; r < rows.rows; ++r) {
      draft_context const& seen = context(r);
      attend(shape, rows.q[r], seen.keys_[layer].data(), seen.values_[layer].data(),
             cache_rows.first(size(seen.length() + net.config.block)), scores, rows.attended[r]);
    }
    finish_layer(weights, shape, rows);
  }

  void write_logits(std::span<float> logits) {
    auto const vocab = size(net.config.vocab);
    rms_norm_rows(rows.x.data(), rows.rows, net.drafter.norm, shape.eps, rows.y.data());
    for (int r = 0; r < rows.rows;) {
      int const in_block = (first + r) % net.config.block;
      int const request = (first + r) / net.config.block;
      if (in_block == 0) {  // the bonus token's own row predicts nothing
        ++r;
        continue;
      }
      int const count = std::min(net.config.block - in_block, rows.rows - r);
      auto const out = size(request * net.config.draft_depth() + in_block - 1) * vocab;
      net.target.head.multiply(rows.y[r], count, logits.data() + out);
      r += count;
    }
  }

  model const& net;
  rope_table const& rope;
  std::span<std::int32_t const> cache_rows;
  transformer_shape const& shape = net.config.drafter;
  std::span<draft_request const> requests;
  int first;
  layer_rows rows;
  std::vector<int> positions;
  std::vector<float> scores;
};

drafter::drafter(model const& weights, int threads)
    : model_(weights),
      rope_(cache_capacity(weights.config), weights.config.drafter.head_dim,
            weights.config.rope_theta),
      cache_rows_(size(cache_capacity(weights.config))),
      threads_(threads) {
  std::iota(cache_rows_.begin(), cache_rows_.end(), 0);
}

void drafter::add_context(draft_context& context, std::span<float const> features) const {
  auto const& shape = model_.config.drafter;
  auto const& weights = model_.drafter;
  int const count = static_cast<int>(features.size()) / model_.config.feature_width();
  if (context.length_ + count > model_.config.positions)
    throw std::out_of_range("drafter: more context than the model has positions");

  row_array projected(count, shape.hidden), input(count, shape.hidden);
  weights.fc.multiply(features.data(), count, projected.data());
  rms_norm_rows(projected.data(), count, weights.hidden_norm, shape.eps, input.data());

  std::vector<int> positions(size(count));
  std::iota(positions.begin(), positions.end(), context.length_);
  auto const at = size(context.length_) * size(shape.kv_width());
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer)
    project_kv(weights.layers[layer], shape, rope_, positions, input.data(),
               context.keys_[layer].data() + at, context.values_[layer].data() + at);
  context.length_ += count;
}

void drafter::draft(std::span<draft_request const> requests, std::span<float> logits) const {
  auto const& config = model_.config;
  if (logits.size() != requests.size() * size(config.draft_depth()) * size(config.vocab))
    throw std::invalid_argument("drafter: logits do not fit the requests");
  for (draft_request const& request : requests)
    if (request.bonus < 0 || request.bonus >= config.vocab)
      throw std::out_of_range("drafter: token outside the vocabulary");

  int const rows = static_cast<int>(requests.size()) * config.block;
  split_rows(rows, threads_, [&](int first, int last, auto& sync) {
    share own(*this, requests, first, last);
    own.embed();
    for (std::size_t layer = 0; layer < model_.drafter.layers.size(); ++layer) {
      own.write_kv(model_.drafter.layers[layer], layer);
      sync.arrive_and_wait();
      own.attend_and_finish(model_.drafter.layers[layer], layer);
    }
    own.write_logits(logits);
  });
}

}  // namespace tiny_lm
