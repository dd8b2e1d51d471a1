// SPDX-License-Identifier: Apache-2.0
// The C ABI: every function hands its arguments to the C++ one of the same name.
#include "ddtree/ddtree.h"
#include "ddtree/ddtree.hpp"

#include <bit>
#include <type_traits>

// The structs that callers fill in; each has a default.
#define DDTREE_C_FILLED(X) \
  X(round_shape)           \
  X(ids_in)                \
  X(ids_out)               \
  X(batch_view)            \
  X(logits_view)           \
  X(rows_view)             \
  X(kv_table)              \
  X(vocab_ranges)          \
  X(shard_in)              \
  X(candidates)            \
  X(draft_tree)            \
  X(accepted)              \
  X(expand_options)        \
  X(build_options)         \
  X(tree_nodes)            \
  X(mask_view)             \
  X(verify_inputs)         \
  X(verify_options)        \
  X(sampling)              \
  X(accept_options)        \
  X(kv_tensor)             \
  X(kv_cache)              \
  X(state_tensor)          \
  X(state_view)            \
  X(round_options)
#define DDTREE_C_OTHERS(X) \
  X(status)                \
  X(context)               \
  X(workspace)             \
  X(shard_out)             \
  X(decoding_round)        \
  X(variant_info)

namespace {

/// The struct of the other language, both ways.
template <class T>
struct twin {
  using type = T;
};
#define DDTREE_C_TWIN(name)     \
  template <>                   \
  struct twin<ddtree_##name> {  \
    using type = ddtree::name;  \
  };                            \
  template <>                   \
  struct twin<ddtree::name> {   \
    using type = ddtree_##name; \
  };
DDTREE_C_FILLED(DDTREE_C_TWIN)
DDTREE_C_OTHERS(DDTREE_C_TWIN)

/// A value across the border: the same bytes.
template <class T>
typename twin<T>::type cross(T const& value) {
  return std::bit_cast<typename twin<T>::type>(value);
}

/// How a C argument becomes a C++ parameter of type P; what does not belong together does not
/// compile. A null pointer for a reference stands for the default.
template <class P>
struct parameter {
  template <class C>
  static P from(C value) {
    if constexpr (std::is_enum_v<P>) {
      static_assert(std::is_same_v<C, std::int32_t>);
      return P{value};
    } else if constexpr (std::is_pointer_v<P>) {
      using T = std::remove_pointer_t<C>;
      using type = typename twin<std::remove_const_t<T>>::type;
      return reinterpret_cast<std::conditional_t<std::is_const_v<T>, type const, type>*>(value);
    } else {
      return cross(value);
    }
  }
};
template <class T>
struct parameter<T const&> {
  static T from(typename twin<T>::type const* value) { return value ? cross(*value) : T{}; }
};

template <class R, class... P, class... C>
auto call(R (*function)(P...) noexcept, C... arguments) {
  return cross(function(parameter<P>::from(arguments)...));
}

template <class R, class... P, class... C>
auto call(R (ddtree::decoding_round::*function)(P...) const noexcept,
          ddtree_decoding_round const* round, C... arguments) {
  ddtree::decoding_round const self = parameter<ddtree::decoding_round const&>::from(round);
  return cross((self.*function)(parameter<P>::from(arguments)...));
}

ddtree::round_shape to_shape(ddtree_round_shape const* shape) {
  return parameter<ddtree::round_shape const&>::from(shape);
}

}  // namespace

#define DDTREE_C_DEFAULT(name) \
  ddtree_##name ddtree_##name##_default(void) { return cross(ddtree::name{}); }
DDTREE_C_FILLED(DDTREE_C_DEFAULT)

int32_t ddtree_version(void) { return DDTREE_VERSION; }

char const* ddtree_errc_name(ddtree_errc code) { return ddtree::name(ddtree::errc{code}); }

ddtree_context ddtree_context_cpu(int32_t threads) { return cross(ddtree::context::cpu(threads)); }

ddtree_context ddtree_context_cuda(int32_t device, CUstream_st* stream) {
  return cross(ddtree::context::cuda(device, stream));
}

ddtree_context ddtree_context_with_variant(ddtree_context const* ctx, char const* text) {
  return cross(parameter<ddtree::context const&>::from(ctx).with_variant(text));
}

ddtree_index_t ddtree_round_shape_width(ddtree_round_shape const* shape) {
  return to_shape(shape).width();
}

ddtree_index_t ddtree_round_shape_words(ddtree_round_shape const* shape) {
  return to_shape(shape).words();
}

ddtree_index_t ddtree_round_shape_request_rows(ddtree_round_shape const* shape) {
  return to_shape(shape).request_rows();
}

size_t ddtree_accepted_bytes(ddtree_round_shape const* shape) {
  return call(ddtree::accepted_bytes, shape);
}

ddtree_status ddtree_bind_accepted(ddtree_round_shape const* shape, ddtree_workspace memory,
                                   ddtree_accepted* out) {
  return call(ddtree::bind_accepted, shape, memory, out);
}

size_t ddtree_expand_workspace_bytes(ddtree_context const* ctx, ddtree_round_shape const* shape) {
  return call(ddtree::expand_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_expand(ddtree_context const* ctx, ddtree_round_shape const* shape,
                            ddtree_batch_view const* batch, ddtree_logits_view const* draft,
                            ddtree_candidates const* out, ddtree_workspace scratch,
                            ddtree_expand_options const* options) {
  return call(ddtree::expand, ctx, shape, batch, draft, out, scratch, options);
}

size_t ddtree_expand_shard_bytes(ddtree_round_shape const* shape) {
  return call(ddtree::expand_shard_bytes, shape);
}

size_t ddtree_expand_shard_workspace_bytes(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape) {
  return call(ddtree::expand_shard_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_expand_shard(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                  ddtree_batch_view const* batch, ddtree_logits_view const* shard,
                                  ddtree_vocab_ranges const* ranges, ddtree_shard_out out,
                                  ddtree_workspace scratch, ddtree_expand_options const* options) {
  return call(ddtree::expand_shard, ctx, shape, batch, shard, ranges, out, scratch, options);
}

size_t ddtree_expand_merge_workspace_bytes(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape, ddtree_index_t ranks) {
  return call(ddtree::expand_merge_workspace_bytes, ctx, shape, ranks);
}

ddtree_status ddtree_expand_merge(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                  ddtree_batch_view const* batch, ddtree_shard_in const* all_ranks,
                                  ddtree_candidates const* out, ddtree_workspace scratch,
                                  ddtree_expand_options const* options) {
  return call(ddtree::expand_merge, ctx, shape, batch, all_ranks, out, scratch, options);
}

size_t ddtree_build_tree_workspace_bytes(ddtree_context const* ctx,
                                         ddtree_round_shape const* shape) {
  return call(ddtree::build_tree_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_build_tree(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                ddtree_batch_view const* batch, ddtree_candidates const* in,
                                ddtree_ids_in root, ddtree_draft_tree const* out,
                                ddtree_workspace scratch, ddtree_build_options const* options) {
  return call(ddtree::build_tree, ctx, shape, batch, in, root, out, scratch, options);
}

ddtree_status ddtree_link_tree(ddtree_context const* ctx, ddtree_round_shape const* shape,
                               ddtree_batch_view const* batch, ddtree_tree_nodes const* in,
                               ddtree_draft_tree const* out) {
  return call(ddtree::link_tree, ctx, shape, batch, in, out);
}

ddtree_status ddtree_write_mask(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                ddtree_mask_view const* out) {
  return call(ddtree::write_mask, ctx, shape, batch, tree, out);
}

ddtree_status ddtree_write_verify_inputs(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                         ddtree_batch_view const* batch,
                                         ddtree_draft_tree const* tree,
                                         ddtree_verify_inputs const* out,
                                         ddtree_verify_options const* options) {
  return call(ddtree::write_verify_inputs, ctx, shape, batch, tree, out, options);
}

ddtree_status ddtree_accept_tokens(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                   ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                   ddtree_ids_in target_token, ddtree_accepted const* out,
                                   ddtree_accept_options const* options) {
  return call(ddtree::accept_tokens, ctx, shape, batch, tree, target_token, out, options);
}

size_t ddtree_accept_greedy_workspace_bytes(ddtree_context const* ctx,
                                            ddtree_round_shape const* shape) {
  return call(ddtree::accept_greedy_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_accept_greedy(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                   ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                   ddtree_logits_view const* target, ddtree_accepted const* out,
                                   ddtree_workspace scratch, ddtree_accept_options const* options) {
  return call(ddtree::accept_greedy, ctx, shape, batch, tree, target, out, scratch, options);
}

size_t ddtree_accept_sampled_workspace_bytes(ddtree_context const* ctx,
                                             ddtree_round_shape const* shape) {
  return call(ddtree::accept_sampled_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_accept_sampled(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                    ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                    ddtree_logits_view const* target, ddtree_sampling const* how,
                                    ddtree_accepted const* out, ddtree_workspace scratch,
                                    ddtree_accept_options const* options) {
  return call(ddtree::accept_sampled, ctx, shape, batch, tree, target, how, out, scratch, options);
}

size_t ddtree_accept_shard_bytes(ddtree_round_shape const* shape, ddtree_sampling const* how,
                                 ddtree_accept_options const* options) {
  return call(ddtree::accept_shard_bytes, shape, how, options);
}

size_t ddtree_accept_shard_workspace_bytes(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape) {
  return call(ddtree::accept_shard_workspace_bytes, ctx, shape);
}

ddtree_status ddtree_accept_shard(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                  ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                  ddtree_logits_view const* shard,
                                  ddtree_vocab_ranges const* ranges, ddtree_sampling const* how,
                                  ddtree_shard_out out, ddtree_workspace scratch,
                                  ddtree_accept_options const* options) {
  return call(ddtree::accept_shard, ctx, shape, batch, tree, shard, ranges, how, out, scratch,
              options);
}

size_t ddtree_accept_merge_workspace_bytes(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape, ddtree_index_t ranks) {
  return call(ddtree::accept_merge_workspace_bytes, ctx, shape, ranks);
}

ddtree_status ddtree_accept_merge(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                  ddtree_batch_view const* batch, ddtree_draft_tree const* tree,
                                  ddtree_shard_in const* all_ranks, ddtree_sampling const* how,
                                  ddtree_accepted const* out, ddtree_workspace scratch,
                                  ddtree_accept_options const* options) {
  return call(ddtree::accept_merge, ctx, shape, batch, tree, all_ranks, how, out, scratch, options);
}

ddtree_status ddtree_compact_kv(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                ddtree_batch_view const* batch, ddtree_accepted const* path,
                                ddtree_kv_cache const* cache) {
  return call(ddtree::compact_kv, ctx, shape, batch, path, cache);
}

ddtree_status ddtree_compact_rows(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                  ddtree_batch_view const* batch, ddtree_accepted const* path,
                                  ddtree_rows_view const* from, ddtree_rows_view const* to) {
  return call(ddtree::compact_rows, ctx, shape, batch, path, from, to);
}

ddtree_status ddtree_compact_state(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                   ddtree_batch_view const* batch, ddtree_accepted const* path,
                                   ddtree_state_view const* state) {
  return call(ddtree::compact_state, ctx, shape, batch, path, state);
}

ddtree_status ddtree_advance(ddtree_context const* ctx, ddtree_round_shape const* shape,
                             ddtree_batch_view const* batch, ddtree_accepted const* path,
                             ddtree_ids_out cache_len) {
  return call(ddtree::advance, ctx, shape, batch, path, cache_len);
}

size_t ddtree_decoding_round_bytes(ddtree_context const* ctx, ddtree_round_shape const* shape) {
  return call(ddtree::decoding_round::bytes, ctx, shape);
}

ddtree_status ddtree_decoding_round_create(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape, ddtree_workspace memory,
                                           ddtree_decoding_round* out,
                                           ddtree_round_options const* options) {
  return call(ddtree::decoding_round::create, ctx, shape, memory, out, options);
}

ddtree_status ddtree_decoding_round_reset(ddtree_decoding_round const* round,
                                          ddtree_context const* on) {
  return call(&ddtree::decoding_round::reset, round, on);
}

ddtree_status ddtree_decoding_round_draft(ddtree_decoding_round const* round,
                                          ddtree_batch_view const* batch,
                                          ddtree_logits_view const* draft_logits,
                                          ddtree_ids_in root, ddtree_verify_inputs const* inputs,
                                          ddtree_mask_view const* mask) {
  return call(&ddtree::decoding_round::draft, round, batch, draft_logits, root, inputs, mask);
}

ddtree_status ddtree_decoding_round_accept(ddtree_decoding_round const* round,
                                           ddtree_batch_view const* batch,
                                           ddtree_logits_view const* target,
                                           ddtree_sampling const* how, ddtree_accepted const* out) {
  return call(&ddtree::decoding_round::accept, round, batch, target, how, out);
}

ddtree_status ddtree_decoding_round_accept_tokens(ddtree_decoding_round const* round,
                                                  ddtree_batch_view const* batch,
                                                  ddtree_ids_in target_token,
                                                  ddtree_accepted const* out) {
  return call(&ddtree::decoding_round::accept_tokens, round, batch, target_token, out);
}

ddtree_status ddtree_decoding_round_commit(ddtree_decoding_round const* round,
                                           ddtree_batch_view const* batch,
                                           ddtree_kv_cache const* cache, ddtree_ids_out cache_len,
                                           ddtree_accepted const* from) {
  return call(&ddtree::decoding_round::commit, round, batch, cache, cache_len, from);
}

size_t ddtree_variants(ddtree_backend_kind backend, ddtree_variant_info* out, size_t capacity) {
  return call(ddtree::variants, backend, out, capacity);
}

char const* ddtree_selected(ddtree_context const* ctx, ddtree_operation op,
                            ddtree_round_shape const* shape) {
  return call(ddtree::selected, ctx, op, shape);
}

size_t ddtree_compiled_architectures(int32_t* out, size_t capacity) {
  return call(ddtree::compiled_architectures, out, capacity);
}

char const* ddtree_operation_name(ddtree_operation op) {
  return ddtree::name(ddtree::operation{op});
}

char const* ddtree_floor_of(ddtree_operation op) { return ddtree::floor_of(ddtree::operation{op}); }
