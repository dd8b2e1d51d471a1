#include "config.hpp"

#include "json_file.hpp"

#include <algorithm>

namespace tiny_lm {
namespace {

transformer_shape read_shape(nlohmann::json const& json) {
  return {json.at("hidden"),   json.at("layers"), json.at("heads"), json.at("kv_heads"),
          json.at("head_dim"), json.at("ffn"),    json.at("eps")};
}

bool is_usable(transformer_shape const& shape) {
  return shape.hidden > 0 && shape.layers > 0 && shape.kv_heads > 0 && shape.ffn > 0 &&
         shape.head_dim > 0 && shape.head_dim % 16 == 0 && shape.heads % shape.kv_heads == 0;
}

bool is_usable(model_config const& config) {
  return is_usable(config.target) && is_usable(config.drafter) && config.vocab > 0 &&
         config.positions > 0 && config.block > 1 &&
         config.target.hidden == config.drafter.hidden &&
         config.target.head_dim == config.drafter.head_dim &&
         std::ranges::is_sorted(config.feature_layers) &&
         std::ranges::all_of(config.feature_layers,
                             [&](int layer) { return layer >= 0 && layer < config.target.layers; });
}

}  // namespace

model_config load_config(std::filesystem::path const& path) {
  auto const json = read_json(path);
  auto config = naming_file(path, [&] {
    auto const& target = json.at("target");
    auto const& drafter = json.at("drafter");
    auto const& special = json.at("special");
    return model_config{read_shape(target), read_shape(drafter), target.at("vocab"),
                        target.at("ctx"),   drafter.at("block"), drafter.at("target_layer_ids"),
                        target.at("theta"), special.at("bos"),   special.at("eos")};
  });
  if (!is_usable(config))
    throw std::runtime_error(path.string() + ": dimensions do not fit together");
  return config;
}

}  // namespace tiny_lm
