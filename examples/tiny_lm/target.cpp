#include "target.hpp"

#include "attention.hpp"
#include "elementwise.hpp"
#include "layer.hpp"
#include "row_split.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace tiny_lm {
namespace {

/// Cache rows in the order attention sums them: the context, then the ancestors by depth (a node's
/// number is larger than its parent's), then the row itself.
std::vector<std::int32_t> visible_rows(target_row const& row, paged_cache const& cache) {
  std::vector<std::int32_t> visible;
  visible.reserve(static_cast<std::size_t>(std::max(row.context, 0)) + 32);
  for (std::int32_t slot = 0; slot < row.context; ++slot)
    visible.push_back(cache.row(row.sequence, slot));
  for (std::size_t word = 0; word < row.visible.size(); ++word)
    for (std::uint32_t bits = row.visible[word]; bits != 0; bits &= bits - 1) {
      auto const node = static_cast<std::int32_t>(word) * 32 + std::countr_zero(bits);
      visible.push_back(cache.row(row.sequence, row.context + node));
    }
  return visible;
}

struct planned_row {
  std::int32_t written;               // cache row of its own K and V
  std::vector<std::int32_t> visible;  // cache rows it attends to
};

}  // namespace

/// Everything that can be wrong with a call is found while this is made, before threads start.
struct target::plan {
  std::vector<std::int32_t> tokens;
  std::vector<int> positions;
  std::vector<planned_row> rows;
};

/// The rows of one thread, from embedding to logits.
struct target::share {
  share(target const& owner, plan const& whole, int first_row, int last_row)
      : net(owner.model_),
        rope(owner.rope_),
        first(first_row),
        tokens(slice(whole.tokens, last_row)),
        positions(slice(whole.positions, last_row)),
        planned(slice(whole.rows, last_row)),
        rows(shape, last_row - first_row) {}

  void embed() {
    for (int r = 0; r < rows.rows; ++r)
      std::ranges::copy(net.target.embedding(tokens[index(r)]), rows.x[r]);
  }

  void write_kv(layer_weights const& weights, float* keys, float* values) {
    project_qkv(weights, shape, rope, positions, rows);
    for (int r = 0; r < rows.rows; ++r) {
      std::ptrdiff_t const at = std::ptrdiff_t{planned[index(r)].written} * shape.kv_width();
      std::ranges::copy(rows.k.row(r), keys + at);
      std::ranges::copy(rows.v.row(r), values + at);
    }
  }

  void attend_and_finish(layer_weights const& weights, float const* keys, float const* values) {
    for (int r = 0; r < rows.rows; ++r)
      attend(shape, rows.q[r], keys, values, planned[index(r)].visible, scores, rows.attended[r]);
    finish_layer(weights, shape, rows);
  }

  void copy_features(std::span<float> features, int part) {
    for (int r = 0; r < rows.rows; ++r) {
      auto const row = std::ptrdiff_t{first + r} * net.config.feature_width();
      std::ranges::copy(rows.x.row(r),
                        features.begin() + row + std::ptrdiff_t{part} * shape.hidden);
    }
  }

  void write_logits(std::span<float> logits) {
    rms_norm_rows(rows.x.data(), rows.rows, net.target.norm, shape.eps, rows.y.data());
    auto const row = std::ptrdiff_t{first} * net.config.vocab;
    net.target.head.multiply(rows.y.data(), rows.rows, logits.data() + row);
  }

  static std::size_t index(int row) { return static_cast<std::size_t>(row); }

  template <class T>
  std::span<T const> slice(std::vector<T> const& all, int last) const {
    return std::span(all).subspan(index(first), index(last - first));
  }

  model const& net;
  rope_table const& rope;
  transformer_shape const& shape = net.config.target;
  int first;
  std::span<std::int32_t const> tokens;
  std::span<int const> positions;
  std::span<planned_row const> planned;
  layer_rows rows;
  std::vector<float> scores;
};

target_row causal_row(int sequence, std::int32_t token, std::int32_t position) {
  static constexpr std::uint32_t itself[] = {1};
  return {sequence, token, position, position, position, itself};
}

target::target(model const& weights, int threads)
    : model_(weights),
      rope_(weights.config.positions, weights.config.target.head_dim, weights.config.rope_theta),
      threads_(threads) {}

target::plan target::make_plan(std::span<target_row const> rows, paged_cache const& cache) const {
  plan made;
  for (target_row const& row : rows) {
    if (row.token < 0 || row.token >= model_.config.vocab)
      throw std::out_of_range("target: token outside the vocabulary");
    if (row.position < 0 || row.position >= model_.config.positions)
      throw std::out_of_range("target: position outside the model's context");
    made.tokens.push_back(row.token);
    made.positions.push_back(row.position);
    made.rows.push_back({cache.row(row.sequence, row.slot), visible_rows(row, cache)});
    if (made.rows.back().visible.empty())
      throw std::invalid_argument("target: a row that sees nothing");
  }
  return made;
}

void target::forward(std::span<target_row const> rows, paged_cache& cache, std::span<float> logits,
                     std::span<float> features) const {
  auto const& config = model_.config;
  if (logits.size() != rows.size() * static_cast<std::size_t>(config.vocab) ||
      features.size() != rows.size() * static_cast<std::size_t>(config.feature_width()))
    throw std::invalid_argument("target: outputs do not fit the rows");
  plan const whole = make_plan(rows, cache);

  split_rows(static_cast<int>(rows.size()), threads_, [&](int first, int last, auto& sync) {
    share own(*this, whole, first, last);
    own.embed();
    for (int layer = 0, part = 0; layer < config.target.layers; ++layer) {
      auto const& weights = model_.target.layers[share::index(layer)];
      own.write_kv(weights, cache.keys(layer), cache.values(layer));
      sync.arrive_and_wait();
      own.attend_and_finish(weights, cache.keys(layer), cache.values(layer));
      if (std::ranges::binary_search(config.feature_layers, layer))
        own.copy_features(features, part++);
    }
    own.write_logits(logits);
  });
}

}  // namespace tiny_lm
