// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/flashinfer.hpp"

#include "formats/flashinfer_rows.hpp"
#include "formats/run.hpp"
#include "formats/validate.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace flashinfer {
namespace {

using check_plan = check<"flashinfer::write_plan_buffers">;

status check_out(plan_buffers const& out) {
  if (out.form != mask_form::packed && out.form != mask_form::boolean) {
    return check_plan::fail<"out.form is none">();
  }
  if (out.custom_mask_bytes < 0) return check_plan::fail<"out.custom_mask_bytes < 0">();
  if (out.max_pages < 0) return check_plan::fail<"out.max_pages < 0">();
  return support::first_failure(
      check_plan::ids<"out.qo_indptr">(out.qo_indptr),
      check_plan::ids<"out.paged_kv_indptr">(out.paged_kv_indptr),
      check_plan::ids<"out.paged_kv_indices">(out.paged_kv_indices),
      check_plan::ids<"out.paged_kv_last_page_len">(out.paged_kv_last_page_len),
      check_plan::ids<"out.mask_indptr">(out.mask_indptr));
}

}  // namespace

status write_plan_buffers(context const& ctx, round_shape const& shape, batch_view const& batch,
                          draft_tree const& tree, kv_table const& table, plan_buffers const& out,
                          plan_options const& options) noexcept {
  status const bad = support::first_failure(
      check_plan::call(ctx, shape, batch), check_plan::table<"table">(table), check_out(out),
      check_plan::rows_option<"options.rows">(options.rows),
      check_plan::needed<"tree.ancestors">(out.custom_mask != nullptr, shape, tree.ancestors),
      check_plan::needed<"tree.num_nodes">(options.rows == query_rows::nodes, shape,
                                           tree.num_nodes),
      check_plan::needed<"batch.cache_len">(true, shape, batch.cache_len.data));
  if (!bad) return bad;
  plan_job job{shape, batch, tree, table, out, options};
  support::set_if_zero(job.table.entries.stride, table.columns);
  return run(ctx, job);
}

}  // namespace flashinfer
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
