// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/tensorrt_llm.hpp"

#include "formats/run.hpp"
#include "formats/tensorrt_llm_rows.hpp"
#include "formats/validate.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace tensorrt_llm {
namespace {

using check_verify = check<"tensorrt_llm::write_verify_buffers">;
using check_accept = check<"tensorrt_llm::write_accept_buffers">;
using check_read = check<"tensorrt_llm::read_accept_results">;

status check_arrays(round_shape const& shape, verify_buffers const& out) {
  index_t const width = shape.width();
  return support::first_failure(
      check_verify::ids<"out.generation_lengths">(out.generation_lengths),
      check_verify::ids<"out.cu_generation_lengths">(out.cu_generation_lengths),
      check_verify::rows<"out.position_offsets">(out.position_offsets, width),
      check_verify::ids<"out.first_sparse_mask_offset_kv">(out.first_sparse_mask_offset_kv),
      check_verify::rows<"out.candidates">(out.candidates, width),
      check_verify::rows<"out.draft_ids">(out.draft_ids, width - 1),
      check_verify::rows<"out.retrieve_index">(out.retrieve_index, width),
      check_verify::rows<"out.retrieve_next_token">(out.retrieve_next_token, width),
      check_verify::rows<"out.retrieve_next_sibling">(out.retrieve_next_sibling, width),
      check_verify::rows<"out.paths">(out.paths, index_t{shape.depth} + 1));
}

status check_tree(round_shape const& shape, batch_view const& batch, draft_tree const& tree,
                  verify_buffers const& out, query_rows rows) {
  bool const paths = out.paths.data != nullptr;
  bool const nodes = paths || rows == query_rows::nodes;
  return support::first_failure(
      check_verify::needed<"tree.token">(out.candidates.data || out.draft_ids.data, shape,
                                         tree.token),
      check_verify::needed<"tree.parent">(paths, shape, tree.parent),
      check_verify::needed<"tree.depth">(paths || out.position_offsets.data, shape, tree.depth),
      check_verify::needed<"tree.first_child">(paths || out.retrieve_next_token.data, shape,
                                               tree.first_child),
      check_verify::needed<"tree.next_sibling">(out.retrieve_next_sibling.data, shape,
                                                tree.next_sibling),
      check_verify::needed<"tree.ancestors">(out.packed_mask || out.dense_packed_mask, shape,
                                             tree.ancestors),
      check_verify::needed<"tree.num_nodes">(nodes, shape, tree.num_nodes),
      check_verify::needed<"batch.cache_len">(out.first_sparse_mask_offset_kv.data, shape,
                                              batch.cache_len.data));
}

void resolve_strides(round_shape const& shape, verify_buffers& out) {
  ids_out* const rows[] = {&out.position_offsets, &out.candidates, &out.retrieve_index,
                           &out.retrieve_next_token, &out.retrieve_next_sibling};
  for (ids_out* const ids : rows) support::set_if_zero(ids->stride, shape.width());
  support::set_if_zero(out.draft_ids.stride, shape.width() - 1);
  support::set_if_zero(out.paths.stride, index_t{shape.depth} + 1);
}

status check_arrays(round_shape const& shape, accept_buffers const& out) {
  if (out.accept_columns < index_t{shape.depth} + 1) {
    return check_accept::fail<"out.accept_columns < depth + 1">();
  }
  if (out.indices_columns < shape.depth) return check_accept::fail<"out.indices_columns < depth">();
  return support::first_failure(
      check_accept::rows<"out.accept_index">(out.accept_index, out.accept_columns),
      check_accept::rows<"out.accept_token">(out.accept_token, out.accept_columns),
      check_accept::ids<"out.accept_token_num">(out.accept_token_num),
      check_accept::ids<"out.accepted_lengths">(out.accepted_lengths),
      check_accept::ids<"out.accepted_lengths_cumsum">(out.accepted_lengths_cumsum),
      check_accept::ids<"out.paths_offsets">(out.paths_offsets),
      check_accept::rows<"out.accepted_indices">(out.accepted_indices, out.indices_columns));
}

status check_path(round_shape const& shape, accepted const& path, accept_buffers const& out) {
  bool const nodes = out.accept_index.data || out.paths_offsets.data || out.accepted_indices.data;
  return support::first_failure(
      check_accept::needed<"path.num_accepted">(true, shape, path.num_accepted),
      check_accept::needed<"path.path">(nodes, shape, path.path),
      check_accept::needed<"path.token">(out.accept_token.data, shape, path.token));
}

status check_results(round_shape const& shape, accept_results const& in, index_t columns) {
  if (shape.batch == 0) return {};
  if (columns < 1) return check_read::fail<"in.accept_columns < 1">();
  return support::first_failure(check_read::bound_rows<"in.accept_index">(in.accept_index, columns),
                                check_read::bound_rows<"in.accept_token">(in.accept_token, columns),
                                check_read::bound_ids<"in.accept_token_num">(in.accept_token_num));
}

}  // namespace

status write_verify_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            draft_tree const& tree, verify_buffers const& out,
                            verify_options const& options) noexcept {
  status const bad =
      support::first_failure(check_verify::call(ctx, shape, batch), check_arrays(shape, out),
                             check_verify::rows_option<"options.rows">(options.rows),
                             check_tree(shape, batch, tree, out, options.rows));
  if (!bad) return bad;
  verify_job job{shape, batch, tree, out, options};
  resolve_strides(shape, job.out);
  return run(ctx, job);
}

status write_accept_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            accepted const& path, accept_buffers const& out) noexcept {
  accept_job job{shape, batch, path, out};
  support::set_if_zero(job.out.accept_columns, index_t{shape.depth} + 1);
  support::set_if_zero(job.out.indices_columns, shape.depth);
  status const bad =
      support::first_failure(check_accept::call(ctx, shape, batch), check_arrays(shape, job.out),
                             check_path(shape, path, out));
  if (!bad) return bad;
  support::set_if_zero(job.out.accept_index.stride, job.out.accept_columns);
  support::set_if_zero(job.out.accept_token.stride, job.out.accept_columns);
  support::set_if_zero(job.out.accepted_indices.stride, job.out.indices_columns);
  return run(ctx, job);
}

status read_accept_results(context const& ctx, round_shape const& shape, batch_view const& batch,
                           accept_results const& in, accepted const& out) noexcept {
  read_path_job job{
      shape,
      batch,
      {in.accept_index, in.accept_columns, 0, in.accept_token_num, in.accept_token, false},
      out};
  support::set_if_zero(job.in.columns, index_t{shape.depth} + 1);
  status const bad = support::first_failure(check_read::call(ctx, shape, batch),
                                            check_results(shape, in, job.in.columns),
                                            check_read::path_out(shape, out));
  if (!bad) return bad;
  support::set_if_zero(job.in.index.stride, job.in.columns);
  support::set_if_zero(job.in.token.stride, job.in.columns);
  return run(ctx, job);
}

}  // namespace tensorrt_llm
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
