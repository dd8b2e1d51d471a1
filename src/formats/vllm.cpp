// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/vllm.hpp"

#include "formats/run.hpp"
#include "formats/validate.hpp"
#include "formats/vllm_rows.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace vllm {
namespace {

using check_verify = check<"vllm::write_verify_buffers">;
using check_offsets = check<"vllm::write_row_offsets">;
using check_output = check<"vllm::write_output_buffers">;

status check_arrays(verify_buffers const& out) {
  if (out.max_rows < 0) return check_verify::fail<"out.max_rows < 0">();
  return support::first_failure(check_verify::ids<"out.query_start_loc">(out.query_start_loc),
                                check_verify::ids<"out.seq_lens">(out.seq_lens),
                                check_verify::ids<"out.input_ids">(out.input_ids),
                                check_verify::ids<"out.positions">(out.positions),
                                check_verify::ids<"out.slot_mapping">(out.slot_mapping),
                                check_verify::ids<"out.row_request">(out.row_request),
                                check_verify::ids<"out.row_node">(out.row_node));
}

status check_tree(round_shape const& shape, batch_view const& batch, draft_tree const& tree,
                  verify_buffers const& out, query_rows rows) {
  bool const needs_len = out.seq_lens.data || out.positions.data || out.slot_mapping.data;
  return support::first_failure(
      check_verify::needed<"tree.token">(out.input_ids.data, shape, tree.token),
      check_verify::needed<"tree.depth">(out.positions.data, shape, tree.depth),
      check_verify::needed<"tree.num_nodes">(rows == query_rows::nodes || out.slot_mapping.data,
                                             shape, tree.num_nodes),
      check_verify::needed<"batch.cache_len">(needs_len, shape, batch.cache_len.data));
}

status check_slots(ddtree::verify_options const& slots) {
  if (slots.padding != padding_slot::minus_one && slots.padding != padding_slot::dummy &&
      slots.padding != padding_slot::in_sequence) {
    return check_verify::fail<"options.slots.padding is none">();
  }
  if (auto s = check_verify::ids<"options.slots.capacity">(slots.capacity); !s) return s;
  return check_verify::table<"options.slots.table">(slots.table);
}

status check_output_arrays(round_shape const& shape, output_buffers const& out) {
  if (out.output_columns < index_t{shape.depth} + 1) {
    return check_output::fail<"out.output_columns < depth + 1">();
  }
  return support::first_failure(
      check_output::rows<"out.output_token_ids">(out.output_token_ids, out.output_columns),
      check_output::ids<"out.num_sampled_tokens">(out.num_sampled_tokens),
      check_output::ids<"out.num_rejected_tokens">(out.num_rejected_tokens),
      check_output::ids<"out.num_accepted_tokens">(out.num_accepted_tokens),
      check_output::ids<"out.state_from">(out.state_from),
      check_output::ids<"out.state_to">(out.state_to));
}

status check_inputs(round_shape const& shape, draft_tree const& tree, accepted const& path,
                    ids_in const& states, output_buffers const& out) {
  bool const moves = out.state_from.data != nullptr || out.state_to.data != nullptr;
  return support::first_failure(
      check_output::needed<"tree.num_nodes">(out.num_rejected_tokens.data, shape, tree.num_nodes),
      check_output::needed<"path.num_accepted">(true, shape, path.num_accepted),
      check_output::needed<"path.token">(out.output_token_ids.data, shape, path.token),
      check_output::needed<"path.path">(moves, shape, path.path),
      check_output::needed<"spec_state_indices">(moves, shape, states.data),
      check_output::rows<"spec_state_indices">(states, shape.width()));
}

}  // namespace

status write_verify_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            draft_tree const& tree, verify_buffers const& out,
                            verify_options const& options) noexcept {
  status const bad = support::first_failure(check_verify::call(ctx, shape, batch),
                                            check_arrays(out), check_slots(options.slots),
                                            check_verify::rows_option<"options.rows">(options.rows),
                                            check_tree(shape, batch, tree, out, options.rows));
  if (!bad) return bad;
  verify_job job{shape, batch, tree, out, options, true};
  support::set_if_zero(job.out.max_rows, shape.batch * shape.width());
  kv_table& table = job.options.slots.table;
  support::set_if_zero(table.entries.stride, table.columns);
  return run(ctx, job);
}

status write_row_offsets(context const& ctx, round_shape const& shape, batch_view const& batch,
                         draft_tree const& tree, ids_out row_offset) noexcept {
  status const bad =
      support::first_failure(check_offsets::call(ctx, shape, batch),
                             check_offsets::needed<"tree.num_nodes">(true, shape, tree.num_nodes),
                             check_offsets::needed<"row_offset">(true, shape, row_offset.data),
                             check_offsets::ids<"row_offset">(row_offset));
  if (!bad) return bad;
  verify_job job{shape, batch, tree, {}, {}, false};
  job.out.query_start_loc = row_offset;
  job.out.max_rows = shape.batch * shape.width();
  return run(ctx, job);
}

status write_output_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            draft_tree const& tree, accepted const& path, ids_in spec_state_indices,
                            output_buffers const& out) noexcept {
  output_job job{shape, batch, tree, path, spec_state_indices, out};
  support::set_if_zero(job.out.output_columns, index_t{shape.depth} + 1);
  status const bad = support::first_failure(
      check_output::call(ctx, shape, batch), check_output_arrays(shape, job.out),
      check_inputs(shape, tree, path, spec_state_indices, out));
  if (!bad) return bad;
  support::set_if_zero(job.out.output_token_ids.stride, job.out.output_columns);
  support::set_if_zero(job.spec_state_indices.stride, shape.width());
  return run(ctx, job);
}

}  // namespace vllm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
