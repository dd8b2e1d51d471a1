// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/sglang.hpp"

#include "formats/run.hpp"
#include "formats/sglang_rows.hpp"
#include "formats/validate.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace sglang {
namespace {

using check_verify = check<"sglang::write_verify_buffers">;
using check_accept = check<"sglang::write_accept_buffers">;
using check_read = check<"sglang::read_accept_results">;

status check_arrays(round_shape const& shape, verify_buffers const& out) {
  index_t const width = shape.width();
  return support::first_failure(
      check_verify::rows<"out.draft_token">(out.draft_token, width),
      check_verify::rows<"out.positions">(out.positions, width),
      check_verify::rows<"out.retrieve_index">(out.retrieve_index, width),
      check_verify::rows<"out.retrieve_next_token">(out.retrieve_next_token, width),
      check_verify::rows<"out.retrieve_next_sibling">(out.retrieve_next_sibling, width),
      check_verify::rows<"out.retrieve_parent_token">(out.retrieve_parent_token, width),
      check_verify::ids<"out.mask_indptr">(out.mask_indptr),
      check_verify::rows<"out.kv_slots">(out.kv_slots, out.kv_columns),
      check_verify::ids<"out.kv_lens">(out.kv_lens));
}

status check_extents(round_shape const& shape, verify_buffers const& out,
                     verify_options const& options) {
  if (out.mode != tree_mask::full && out.mode != tree_mask::qlen_only &&
      out.mode != tree_mask::qlen_only_bitpacking) {
    return check_verify::fail<"out.mode is none">();
  }
  if (out.mode == tree_mask::qlen_only_bitpacking && shape.width() > 32) {
    return check_verify::fail<"out.mode: more than 32 rows do not fit a word">();
  }
  if (out.custom_mask_bytes < 0) return check_verify::fail<"out.custom_mask_bytes < 0">();
  index_t const seen = smaller(index_t{shape.depth} + 1, shape.width());
  if (out.kv_columns != 0 && out.kv_columns < seen) {
    return check_verify::fail<"out.kv_columns < min(depth + 1, width)">();
  }
  if (options.inactive_len < 0 || options.inactive_len > rules::max_cache_len) {
    return check_verify::fail<"options.inactive_len outside [0, 2^40]">();
  }
  return {};
}

/// The arrays of the tree that the wanted outputs come from.
status check_tree(round_shape const& shape, draft_tree const& tree, ids_in const& out_cache_loc,
                  verify_buffers const& out) {
  bool const slots = out.kv_slots.data != nullptr;
  bool const nodes = slots || out.kv_lens.data != nullptr;
  return support::first_failure(
      check_verify::needed<"tree.token">(out.draft_token.data, shape, tree.token),
      check_verify::needed<"tree.depth">(out.positions.data || nodes, shape, tree.depth),
      check_verify::needed<"tree.parent">(out.retrieve_parent_token.data || slots, shape,
                                          tree.parent),
      check_verify::needed<"tree.first_child">(out.retrieve_next_token.data, shape,
                                               tree.first_child),
      check_verify::needed<"tree.next_sibling">(out.retrieve_next_sibling.data, shape,
                                                tree.next_sibling),
      check_verify::needed<"tree.ancestors">(out.custom_mask, shape, tree.ancestors),
      check_verify::needed<"tree.num_nodes">(nodes, shape, tree.num_nodes),
      check_verify::needed<"out_cache_loc">(slots, shape, out_cache_loc.data),
      check_verify::rows<"out_cache_loc">(out_cache_loc, shape.width()));
}

void resolve_strides(index_t width, verify_buffers& out) {
  ids_out* const all[] = {&out.draft_token,           &out.positions,
                          &out.retrieve_index,        &out.retrieve_next_token,
                          &out.retrieve_next_sibling, &out.retrieve_parent_token};
  for (ids_out* const ids : all) support::set_if_zero(ids->stride, width);
  support::set_if_zero(out.kv_slots.stride, out.kv_columns);
}

status check_arrays(round_shape const& shape, ids_in const& out_cache_loc,
                    accept_buffers const& out) {
  bool const moves = out.tgt_cache_loc.data != nullptr || out.src_cache_loc.data != nullptr;
  return support::first_failure(
      check_accept::ids<"out.predicts">(out.predicts),
      check_accept::rows<"out.accept_index">(out.accept_index, out.accept_columns),
      check_accept::ids<"out.accept_token_num">(out.accept_token_num),
      check_accept::ids<"out.tgt_cache_loc">(out.tgt_cache_loc),
      check_accept::ids<"out.src_cache_loc">(out.src_cache_loc),
      check_accept::needed<"out_cache_loc">(moves, shape, out_cache_loc.data),
      check_accept::rows<"out_cache_loc">(out_cache_loc, shape.width()));
}

status check_path(round_shape const& shape, batch_view const& batch, accepted const& path,
                  accept_buffers const& out) {
  if (out.page_size < 1) return check_accept::fail<"out.page_size < 1">();
  if (out.accept_columns < index_t{shape.depth} + 1) {
    return check_accept::fail<"out.accept_columns < depth + 1">();
  }
  if (out.evict_mask != nullptr && out.page_size > 1 && batch.cache_len.data == nullptr) {
    return check_accept::fail<"batch.cache_len is null">();
  }
  return support::first_failure(
      check_accept::needed<"path.path">(true, shape, path.path),
      check_accept::needed<"path.num_accepted">(true, shape, path.num_accepted),
      check_accept::needed<"path.token">(out.predicts.data != nullptr, shape, path.token));
}

status check_results(round_shape const& shape, accept_results const& in, index_t columns) {
  if (shape.batch == 0) return {};
  if (columns < 1) return check_read::fail<"in.accept_columns < 1">();
  return support::first_failure(check_read::bound_ids<"in.predicts">(in.predicts),
                                check_read::bound_rows<"in.accept_index">(in.accept_index, columns),
                                check_read::bound_ids<"in.accept_token_num">(in.accept_token_num));
}

}  // namespace

status write_verify_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            draft_tree const& tree, ids_in out_cache_loc, verify_buffers const& out,
                            verify_options const& options) noexcept {
  verify_job job{shape, batch, tree, out_cache_loc, out, options};
  support::set_if_zero(job.out.kv_columns, shape.width());
  status const bad = support::first_failure(
      check_verify::call(ctx, shape, batch), check_extents(shape, out, options),
      check_arrays(shape, job.out), check_tree(shape, tree, out_cache_loc, out));
  if (!bad) return bad;
  bool const needs_len = out.positions.data != nullptr ||
                         (out.mode == tree_mask::full &&
                          (out.custom_mask != nullptr || out.mask_indptr.data != nullptr));
  if (needs_len && batch.cache_len.data == nullptr) {
    return check_verify::fail<"batch.cache_len is null">();
  }
  resolve_strides(shape.width(), job.out);
  support::set_if_zero(job.out_cache_loc.stride, shape.width());
  return run(ctx, job);
}

status write_accept_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                            accepted const& path, ids_in out_cache_loc,
                            accept_buffers const& out) noexcept {
  accept_job job{shape, batch, path, out_cache_loc, out};
  support::set_if_zero(job.out.accept_columns, index_t{shape.depth} + 1);
  status const bad = support::first_failure(check_accept::call(ctx, shape, batch),
                                            check_path(shape, batch, path, job.out),
                                            check_arrays(shape, out_cache_loc, job.out));
  if (!bad) return bad;
  support::set_if_zero(job.out.accept_index.stride, job.out.accept_columns);
  support::set_if_zero(job.out_cache_loc.stride, shape.width());
  return run(ctx, job);
}

status read_accept_results(context const& ctx, round_shape const& shape, batch_view const& batch,
                           accept_results const& in, accepted const& out) noexcept {
  read_path_job job{
      shape,
      batch,
      {in.accept_index, in.accept_columns, shape.width(), in.accept_token_num, in.predicts, true},
      out};
  support::set_if_zero(job.in.columns, index_t{shape.depth} + 1);
  status const bad = support::first_failure(check_read::call(ctx, shape, batch),
                                            check_results(shape, in, job.in.columns),
                                            check_read::path_out(shape, out));
  if (!bad) return bad;
  support::set_if_zero(job.in.index.stride, job.in.columns);
  job.in.token.stride = shape.width();
  return run(ctx, job);
}

}  // namespace sglang
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
