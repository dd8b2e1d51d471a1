#pragma once

#include "config.hpp"
#include "matrix.hpp"
#include "tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tiny_lm {

struct layer_weights {
  std::vector<float> attn_norm, ffn_norm;
  matrix wq, wk, wv, wo, w_gate, w_up, w_down;
};

struct target_weights {
  std::vector<float> embed;  // [vocab, hidden]
  matrix head;               // the same values: embedding and head are tied
  std::vector<layer_weights> layers;
  std::vector<float> norm;

  std::span<float const> embedding(std::int32_t token) const {
    return std::span(embed).subspan(static_cast<std::size_t>(token) * norm.size(), norm.size());
  }
};

struct drafter_weights {
  std::vector<float> mask_embed, hidden_norm, norm;
  matrix fc;
  std::vector<layer_weights> layers;
};

/// Everything in a model folder: configuration, tokenizer and both sets of weights.
struct model {
  model_config config;
  tokenizer text;
  target_weights target;
  drafter_weights drafter;
};

model load_model(std::filesystem::path const& folder);

}  // namespace tiny_lm
