#include "model.hpp"

#include "safetensors.hpp"

namespace tiny_lm {
namespace {

matrix read_matrix(safetensors const& file, std::string const& name, int out, int in) {
  return matrix(file.read(name + ".weight", {out, in}), out, in);
}

std::vector<float> read_vector(safetensors const& file, std::string const& name, int size) {
  return file.read(name, {size});
}

layer_weights read_layer(safetensors const& file, transformer_shape const& shape, int layer) {
  std::string const at = "layers." + std::to_string(layer) + ".";
  return {.attn_norm = read_vector(file, at + "attn_norm.weight", shape.hidden),
          .ffn_norm = read_vector(file, at + "ffn_norm.weight", shape.hidden),
          .wq = read_matrix(file, at + "wq", shape.q_width(), shape.hidden),
          .wk = read_matrix(file, at + "wk", shape.kv_width(), shape.hidden),
          .wv = read_matrix(file, at + "wv", shape.kv_width(), shape.hidden),
          .wo = read_matrix(file, at + "wo", shape.hidden, shape.q_width()),
          .w_gate = read_matrix(file, at + "w_gate", shape.ffn, shape.hidden),
          .w_up = read_matrix(file, at + "w_up", shape.ffn, shape.hidden),
          .w_down = read_matrix(file, at + "w_down", shape.hidden, shape.ffn)};
}

std::vector<layer_weights> read_layers(safetensors const& file, transformer_shape const& shape) {
  std::vector<layer_weights> layers;
  layers.reserve(static_cast<std::size_t>(shape.layers));
  for (int layer = 0; layer < shape.layers; ++layer)
    layers.push_back(read_layer(file, shape, layer));
  return layers;
}

target_weights read_target(safetensors const& file, model_config const& config) {
  int const hidden = config.target.hidden;
  auto embed = file.read("embed.weight", {config.vocab, hidden});
  matrix head(embed, config.vocab, hidden);
  return {.embed = std::move(embed),
          .head = std::move(head),
          .layers = read_layers(file, config.target),
          .norm = read_vector(file, "norm.weight", hidden)};
}

drafter_weights read_drafter(safetensors const& file, model_config const& config) {
  int const hidden = config.drafter.hidden;
  return {.mask_embed = read_vector(file, "mask_embed", hidden),
          .hidden_norm = read_vector(file, "hidden_norm.weight", hidden),
          .norm = read_vector(file, "norm.weight", hidden),
          .fc = read_matrix(file, "fc", hidden, config.feature_width()),
          .layers = read_layers(file, config.drafter)};
}

}  // namespace

model load_model(std::filesystem::path const& folder) {
  auto const config = load_config(folder / "config.json");
  return {.config = config,
          .text = tokenizer(folder / "tokenizer.json"),
          .target = read_target(safetensors(folder / "target.safetensors"), config),
          .drafter = read_drafter(safetensors(folder / "drafter.safetensors"), config)};
}

}  // namespace tiny_lm
