#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tiny_lm {

/// What target and drafter layers have in common.
struct transformer_shape {
  int hidden, layers, heads, kv_heads, head_dim, ffn;
  float eps;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

struct model_config {
  transformer_shape target, drafter;
  int vocab;
  int positions;                    // the target's longest sequence
  int block;                        // rows of one draft: the bonus token and block - 1 masks
  std::vector<int> feature_layers;  // whose residual stream feeds the drafter, ascending
  double rope_theta;
  std::int32_t bos, eos;

  int draft_depth() const { return block - 1; }
  int feature_width() const { return static_cast<int>(feature_layers.size()) * target.hidden; }
};

model_config load_config(std::filesystem::path const& path);

}  // namespace tiny_lm
