#pragma once

#include <span>

namespace tiny_lm {

/// y = x / sqrt(mean(x^2) + eps) * weight.
void rms_norm(float const* x, std::span<float const> weight, float eps, float* y);

/// The same for each of `rows` dense rows of weight.size() values.
void rms_norm_rows(float const* x, int rows, std::span<float const> weight, float eps, float* y);

/// x += y.
void add(std::span<float> x, std::span<float const> y);

/// gate = silu(gate) * up.
void silu_multiply(std::span<float> gate, std::span<float const> up);

/// Scores become weights that sum to one.
void softmax(std::span<float> scores);

}  // namespace tiny_lm
