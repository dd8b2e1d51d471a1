#pragma once

#include "config.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tiny_lm {

/// Attention of one row over the cache rows named in `visible`, with grouped query heads.
///
/// Keys and values are [rows, kv_heads, head_dim]. Sums run in the order of the list: two rows that
/// see equal keys in the same order get the same bits, wherever in the cache the keys lie.
void attend(transformer_shape const& shape, float const* query, float const* keys,
            float const* values, std::span<std::int32_t const> visible, std::vector<float>& scores,
            float* out);

}  // namespace tiny_lm
