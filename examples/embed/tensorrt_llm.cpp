// SPDX-License-Identifier: Apache-2.0
// The calls of one round in TensorRT-LLM's decoder; docs/embed/tensorrt_llm.md says where they go.
#include "ddtree/formats/tensorrt_llm.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

namespace {

namespace tensorrt_llm = ddtree::formats::tensorrt_llm;

// The decoder's tensors: data pointers. n = maxDecodingTokens, words = ceil(n / 32).
struct decoder_tensors {
  std::int32_t* generation_lengths;  // [batch]
  std::int32_t* position_offsets;    // [batch, n]
  std::int32_t* packed_mask;         // [batch, n, words]
  std::int32_t* draft_ids;           // [batch, n - 1]
  std::int32_t* accepted_lengths;    // [batch]
  std::int32_t* output_ids;          // [batch, depth + 1]
  std::int32_t* lengths_cumsum;      // [batch + 1]
  std::int32_t* paths_offsets;       // [batch * depth]
};

// Before the generation step: spec_decoding_* of the attention, and the draft tokens.
ddtree::status prepare_step(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                            decoder_tensors const& t) {
  tensorrt_llm::verify_buffers out;
  out.generation_lengths = t.generation_lengths;
  out.position_offsets = t.position_offsets;
  out.packed_mask = reinterpret_cast<std::uint32_t*>(t.packed_mask);
  out.draft_ids = t.draft_ids;
  return tensorrt_llm::write_verify_buffers(round.ctx, round.shape, batch, round.tree, out);
}

// After it: acceptance, and what the engine's own KV update reads.
ddtree::status accept_step(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                           ddtree::ids_in target_ids, decoder_tensors const& t) {
  if (auto s = round.accept_tokens(batch, target_ids); !s) return s;
  tensorrt_llm::accept_buffers out;
  out.accept_token = t.output_ids;
  out.accepted_lengths = t.accepted_lengths;
  out.accepted_lengths_cumsum = t.lengths_cumsum;
  out.paths_offsets = t.paths_offsets;
  return tensorrt_llm::write_accept_buffers(round.ctx, round.shape, batch, round.accepted_, out);
}

// Or, in place of the KV update, once on the host: K and V of one layer, and their tables.
void describe_layer(char* primary_pool, ddtree::index_t pool_blocks, int layer,
                    ddtree::formats::kv_extents extents, ddtree::kv_tensor out[2]) {
  extents.pages = pool_blocks - 2 * layer;
  tensorrt_llm::make_kv_tensors(primary_pool + 2 * layer * extents.page_bytes(), extents, out);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::size_t n = tiny_round::rows;
  std::int32_t generation_lengths[1], offsets[n], mask[n], drafts[n - 1];
  std::int32_t lengths[1], output[4], cumsum[2], packed[3];
  decoder_tensors const t{
      generation_lengths, offsets, mask, drafts, lengths, output, cumsum, packed};

  auto s = tiny.draft();
  if (s) s = prepare_step(tiny.round, tiny.batch, t);
  if (s) s = accept_step(tiny.round, tiny.batch, tiny.target_tokens().data(), t);

  // Two layers of K and V, 8 blocks of 4 tokens each; the request has blocks 0, 1, 2, ... of a
  // layer.
  std::vector<char> pool(2 * 2 * 8 * 4 * 2 * 16);
  std::int32_t block_offsets[2 * 8];
  for (int k = 0; k < 8; ++k) {
    block_offsets[k] = 4 * k;
    block_offsets[8 + k] = 4 * k + 1;
  }
  ddtree::kv_tensor layers[4];
  for (int layer = 0; layer < 2; ++layer) {
    describe_layer(pool.data(), 2 * 2 * 8, layer, {0, 4, 2, 16}, layers + 2 * layer);
  }
  ddtree::kv_cache cache;
  cache.tensors = layers;
  cache.num_tensors = 4;
  tensorrt_llm::make_kv_tables(block_offsets, 8, 4, cache.table);
  if (s) s = tiny.round.commit(tiny.batch, cache, tiny.cache_len);
  if (!s) return report(s, false);

  std::printf("%d rows; accepted length %d:", generation_lengths[0], lengths[0]);
  for (int u = 0; u < lengths[0]; ++u) std::printf(" %d", output[u]);
  std::printf("; drafts");
  for (int u = 0; u < cumsum[1]; ++u) std::printf(" %d", packed[u]);
  std::printf("\n");
  return report(s, lengths[0] == 4 && output[0] == 2 && output[3] == 0 && cumsum[1] == 3 &&
                       tiny.round.accepted_.flags[0] == tiny.round.tree.flags[0]);
}
