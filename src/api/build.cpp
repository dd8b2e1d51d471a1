// SPDX-License-Identifier: Apache-2.0
#include "ddtree/build.hpp"

#include "api/tables.hpp"
#include "cpu/build.hpp"
#include "support/calls.hpp"
#include "support/validate.hpp"
#include "support/variants.hpp"

#if defined(DDTREE_WITH_CUDA)
#include "build/build.hpp"
#endif

namespace ddtree {
inline namespace v0 {
namespace {

using support::build_tree_call;
using support::link_tree_call;

constexpr support::variant<build_tree_call> build_tree_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, cpu::build_tree_workspace, cpu::build_tree},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::build_tree},
#endif
};

constexpr support::variant<link_tree_call> link_tree_table[] = {
    {"cpu", backend_kind::cpu, nullptr, nullptr, nullptr, cpu::link_tree},
#if defined(DDTREE_WITH_CUDA)
    {"generic", backend_kind::cuda, nullptr, nullptr, nullptr, cuda::link_tree},
#endif
};

using check_build = support::check<"build_tree">;
using check_link = support::check<"link_tree">;

/// Arrays without elements may be null.
status check_candidates(round_shape const& shape, candidates const& in) {
  if (shape.batch == 0) return {};
  if (auto s = check_build::bound<"in.flags">(in.flags); !s || shape.depth == 0) return s;
  if (auto s = check_build::bound<"in.token">(in.token); !s) return s;
  return check_build::bound<"in.log_prob">(in.log_prob);
}

status check_options(batch_view const& batch, build_options const& options) {
  status const bad =
      support::first_failure(check_build::ids<"options.budget">(options.budget),
                             check_build::ids<"options.max_depth">(options.max_depth),
                             check_build::ids<"options.capacity">(options.capacity),
                             check_build::ids<"options.max_position">(options.max_position));
  if (!bad) return bad;
  if (options.seed_depth < 0) return check_build::fail<"options.seed_depth < 0">();
  bool const needs_length =
      options.capacity.data != nullptr || options.max_position.data != nullptr;
  if (needs_length && batch.cache_len.data == nullptr) {
    return check_build::fail<"batch.cache_len is null">();
  }
  return {};
}

status check_nodes(tree_nodes const& in) {
  return support::first_failure(check_link::bound_ids<"in.parent">(in.parent),
                                check_link::bound_ids<"in.token">(in.token),
                                check_link::bound_ids<"in.num_nodes">(in.num_nodes));
}

}  // namespace

std::size_t build_tree_workspace_bytes(context const& ctx, round_shape const& shape) noexcept {
  if (!check_build::context(ctx) || !support::is_valid(shape)) return 0;
  return support::workspace_of(build_tree_table, support::sized_call<build_tree_call>(ctx, shape));
}

status build_tree(context const& ctx, round_shape const& shape, batch_view const& batch,
                  candidates const& in, ids_in root, draft_tree const& out, workspace scratch,
                  build_options const& options) noexcept {
  status const bad = support::first_failure(
      check_build::context(ctx), check_build::shape(shape), check_build::batch(batch),
      check_candidates(shape, in),
      shape.batch > 0 ? check_build::bound_ids<"root">(root) : status{},
      shape.batch > 0 ? check_build::tree_out(out) : status{}, check_options(batch, options),
      check_build::scratch(scratch, build_tree_workspace_bytes(ctx, shape)));
  if (!bad) return bad;
  build_tree_call const call{ctx, shape, batch, in, root, out, scratch, options};
  return support::dispatch(build_tree_table, operation::build_tree, call);
}

status link_tree(context const& ctx, round_shape const& shape, batch_view const& batch,
                 tree_nodes const& in, draft_tree const& out) noexcept {
  status const bad =
      support::first_failure(check_link::context(ctx), check_link::shape(shape),
                             check_link::batch(batch), shape.batch > 0 ? check_nodes(in) : status{},
                             shape.batch > 0 ? check_link::tree_out(out) : status{});
  if (!bad) return bad;
  link_tree_call call{ctx, shape, batch, in, out};
  support::set_if_zero(call.in.parent.stride, shape.width());
  support::set_if_zero(call.in.token.stride, shape.width());
  return support::dispatch(link_tree_table, operation::link_tree, call);
}

namespace api {

std::size_t list_build(backend_kind backend, variant_info* out, std::size_t capacity,
                       std::size_t n) noexcept {
  n = support::list(build_tree_table, operation::build_tree, backend, out, capacity, n);
  return support::list(link_tree_table, operation::link_tree, backend, out, capacity, n);
}

char const* selected_build(context const& ctx, operation op, round_shape const& shape) noexcept {
  if (op == operation::build_tree) {
    return support::name_of_choice(build_tree_table, op, ctx, shape);
  }
  return support::name_of_choice(link_tree_table, op, ctx, shape);
}

}  // namespace api
}  // namespace v0
}  // namespace ddtree
