// SPDX-License-Identifier: Apache-2.0
// The calls of one round in vLLM's model runner; docs/embed/vllm.md says where they go.
#include "ddtree/formats/vllm.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

namespace {

namespace vllm = ddtree::formats::vllm;
using ddtree::formats::query_rows;

// The runner's persistent tensors: data pointers.
struct runner_tensors {
  std::int32_t* query_start_loc;  // [reqs + 1]
  std::int32_t* seq_lens;         // [reqs]
  std::int32_t* input_ids;        // [tokens]
  std::int64_t* positions;        // [tokens]
  std::int64_t* slot_mapping;     // [tokens]
  float* qq_bias;                 // [reqs, n, n]
  std::int32_t* block_table;      // [reqs, max_blocks]
  ddtree::index_t max_blocks, block_size;
  std::int32_t* output_token_ids;  // [reqs, max_spec_len + 1]
  std::int32_t* num_rejected;      // [reqs]
  ddtree::index_t max_spec_len;
};

ddtree::kv_table block_table_of(runner_tensors const& t) {
  ddtree::kv_table table;
  table.entries = t.block_table;
  table.columns = t.max_blocks;
  table.page_size = t.block_size;
  return table;
}

// After the drafter: the rows of the target's forward, and the bias of its tree attention.
ddtree::status prepare_inputs(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                              runner_tensors const& t) {
  vllm::verify_buffers rows;
  rows.query_start_loc = t.query_start_loc;
  rows.seq_lens = t.seq_lens;
  rows.input_ids = t.input_ids;
  rows.positions = t.positions;
  rows.slot_mapping = t.slot_mapping;
  vllm::verify_options options;
  options.rows = query_rows::nodes;
  options.slots.table = block_table_of(t);
  auto const s =
      vllm::write_verify_buffers(round.ctx, round.shape, batch, round.tree, rows, options);
  if (!s) return s;
  ddtree::mask_view bias;
  bias.data = t.qq_bias;
  bias.kind = ddtree::mask_kind::additive;
  bias.type = ddtree::dtype::f32;
  return ddtree::write_mask(round.ctx, round.shape, batch, round.tree, bias);
}

// In place of the rejection sampler: logits [tokens, vocab] of the packed rows.
ddtree::status sample(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                      ddtree::logits_view logits, ddtree::sampling const& how,
                      runner_tensors const& t) {
  logits.row_offset = t.query_start_loc;
  if (auto s = round.accept(batch, logits, how); !s) return s;
  vllm::output_buffers out;
  out.output_token_ids = t.output_token_ids;
  out.output_columns = t.max_spec_len + 1;
  out.num_rejected_tokens = t.num_rejected;
  return vllm::write_output_buffers(round.ctx, round.shape, batch, round.tree, round.accepted_, {},
                                    out);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::size_t n = tiny_round::rows;
  std::int32_t start[2], lens[1], ids[n], output[16], rejected[1];
  std::int64_t positions[n], slots[n];
  std::vector<float> bias(n * n);
  std::int32_t blocks[] = {9, 4, 7};
  runner_tensors const t{start,  lens, ids, positions, slots,    bias.data(),
                         blocks, 3,    8,   output,    rejected, 15};

  auto s = tiny.draft();
  if (s) s = prepare_inputs(tiny.round, tiny.batch, t);
  if (!s) return report(s, false);
  // The target, row after packed row: it only looks at the row's own token.
  constexpr std::int32_t next[] = {2, 3, 4, 5, 5, 0, 7, 0};
  std::vector<float> logits(n * 8, 0.0f);
  for (std::int32_t row = 0; row < start[1]; ++row)
    logits[std::size_t(row * 8 + next[ids[row]])] = 9;
  s = sample(tiny.round, tiny.batch, {logits.data(), ddtree::dtype::f32}, {}, t);

  std::printf("%d rows, %d tokens of context and tree; out:", start[1], lens[0]);
  for (int u = 0; u < 16 && output[u] >= 0; ++u) std::printf(" %d", output[u]);
  std::printf("; %d rejected\n", rejected[0]);
  return report(s, output[0] == 2 && output[1] == 4 && output[2] == 5 && output[3] == 0 &&
                       output[4] == -1 && rejected[0] == start[1] - 4);
}
