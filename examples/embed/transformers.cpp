// SPDX-License-Identifier: Apache-2.0
// The calls of one round around a transformers model; docs/embed/transformers.md says where they
// go.
#include "ddtree/formats/transformers.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

namespace {

namespace transformers = ddtree::formats::transformers;

// The inputs of model.forward, as data pointers of torch tensors.
struct model_inputs {
  std::int64_t* input_ids;        // [1, width]
  std::int64_t* position_ids;     // [1, width]
  std::int64_t* cache_position;   // [width]
  std::uint16_t* attention_mask;  // bf16 [1, 1, width, kv_length]
  ddtree::index_t kv_length;
};

// Before the target's forward.
ddtree::status prepare_forward(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                               model_inputs const& in) {
  ddtree::verify_options options;
  options.padding = ddtree::padding_slot::in_sequence;
  auto const s =
      ddtree::write_verify_inputs(round.ctx, round.shape, batch, round.tree,
                                  {in.input_ids, in.position_ids, in.cache_position}, options);
  if (!s) return s;
  auto const mask =
      transformers::make_attention_mask(in.attention_mask, ddtree::dtype::bf16, in.kv_length);
  return ddtree::write_mask(round.ctx, round.shape, batch, round.tree, mask);
}

// Once: keys and values of every layer, [1, heads, length, head_dim].
void describe_layer(void* keys, void* values, ddtree::index_t length, int heads, int row_bytes,
                    ddtree::kv_tensor out[2]) {
  out[0] = transformers::make_kv_tensor(keys, 1, length, heads, row_bytes);
  out[1] = transformers::make_kv_tensor(values, 1, length, heads, row_bytes);
}

// After the forward, on the logits of all rows; a dynamic cache is then cropped by Python.
ddtree::status finish_round(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                            ddtree::logits_view const& logits, ddtree::kv_tensor const* tensors,
                            ddtree::index_t num_tensors, ddtree::index_t length,
                            std::int32_t* cache_len) {
  if (auto s = round.accept(batch, logits); !s) return s;
  ddtree::kv_cache cache;
  cache.tensors = tensors;
  cache.num_tensors = num_tensors;
  cache.table[0] = transformers::make_kv_table(length);
  return round.commit(batch, cache, cache_len);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::size_t n = tiny_round::rows;
  constexpr std::size_t length = 32;
  std::int64_t ids[n], positions[n], cache_position[n];
  std::vector<std::uint16_t> mask(n * length);
  auto s = tiny.draft();
  if (s) {
    s = prepare_forward(tiny.round, tiny.batch,
                        {ids, positions, cache_position, mask.data(), ddtree::index_t(length)});
  }
  if (!s) return report(s, false);

  // The model: it writes row i of the tree to its cache and looks at the row's own token only.
  constexpr std::int32_t next[] = {2, 3, 4, 5, 5, 0, 7, 0};
  std::vector<float> logits(n * 8, 0.0f), keys(2 * length * 4), values(2 * length * 4);
  for (std::size_t i = 0; i < n; ++i) {
    logits[i * 8 + std::size_t(next[ids[i]])] = 9;
    keys[std::size_t(cache_position[i]) * 4] = static_cast<float>(ids[i]);
  }
  ddtree::kv_tensor layer[2];
  describe_layer(keys.data(), values.data(), length, 2, 4 * sizeof(float), layer);
  s = finish_round(tiny.round, tiny.batch, {logits.data(), ddtree::dtype::f32}, layer, 2, length,
                   tiny.cache_len);
  std::printf("committed:");
  for (int t = 10; t < tiny.cache_len[0]; ++t) std::printf(" %g", double(keys[std::size_t(t) * 4]));
  std::printf("\n");
  return report(
      s, tiny.cache_len[0] == 14 && keys[11 * 4] == 2 && keys[12 * 4] == 4 && keys[13 * 4] == 5);
}
