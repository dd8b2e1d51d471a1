// SPDX-License-Identifier: Apache-2.0
#include "ddtree/formats/xgrammar.hpp"

#include "formats/run.hpp"
#include "formats/sglang_rows.hpp"
#include "formats/validate.hpp"

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace xgrammar {

status write_traversal(context const& ctx, round_shape const& shape, batch_view const& batch,
                       draft_tree const& tree, std::int64_t* out) noexcept {
  using check_traversal = check<"xgrammar::write_traversal">;
  status const bad = support::first_failure(
      check_traversal::call(ctx, shape, batch),
      check_traversal::needed<"tree.token">(true, shape, tree.token),
      check_traversal::needed<"tree.first_child">(true, shape, tree.first_child),
      check_traversal::needed<"tree.next_sibling">(true, shape, tree.next_sibling),
      check_traversal::needed<"out">(true, shape, out));
  if (!bad || shape.batch == 0) return bad;
  // SGLang's arrays, under the names that the matcher took from there.
  index_t const width = shape.width();
  index_t const nodes = shape.batch * width;
  sglang::verify_job job{shape, batch, tree, {}, {}, {}};
  job.out.retrieve_next_token = {out, dtype::i64, width};
  job.out.retrieve_next_sibling = {out + nodes, dtype::i64, width};
  job.out.draft_token = {out + 2 * nodes, dtype::i64, width};
  return run(ctx, job);
}

}  // namespace xgrammar
}  // namespace formats
}  // namespace v0
}  // namespace ddtree
