// SPDX-License-Identifier: Apache-2.0
// The structs and values of ddtree.h are those of the C++ headers. Checked when this is compiled: a
// member or an enumerator that one side alone has is an error here.
#include "ddtree/ddtree.h"
#include "ddtree/ddtree.hpp"

#include <cstddef>

// EACH(macro, x, a, b, ...) is macro(x, a) macro(x, b) ...
#define AGAIN(...) AGAIN_1(AGAIN_1(AGAIN_1(__VA_ARGS__)))
#define AGAIN_1(...) AGAIN_2(AGAIN_2(AGAIN_2(__VA_ARGS__)))
#define AGAIN_2(...) __VA_ARGS__
#define PARENTHESES ()
#define EACH(macro, x, ...) AGAIN(EACH_STEP(macro, x, __VA_ARGS__))
#define EACH_STEP(macro, x, first, ...) \
  macro(x, first) __VA_OPT__(EACH_NEXT PARENTHESES(macro, x, __VA_ARGS__))
#define EACH_NEXT() EACH_STEP

// A structured binding compiles only where it names as many members as there are.
#define SAME_MEMBER(type, member)                                                   \
  static_assert(offsetof(ddtree_##type, member) == offsetof(ddtree::type, member)); \
  static_assert(sizeof(ddtree_##type::member) == sizeof(ddtree::type::member));
#define SAME_STRUCT(type, ...)                                                               \
  static_assert(sizeof(ddtree_##type) == sizeof(ddtree::type));                              \
  static_assert(alignof(ddtree_##type) == alignof(ddtree::type));                            \
  EACH(SAME_MEMBER, type, __VA_ARGS__)                                                       \
  [[maybe_unused]] void all_members(ddtree_##type const& of_c, ddtree::type const& of_cpp) { \
    { [[maybe_unused]] auto const& [__VA_ARGS__] = of_c; }                                   \
    { [[maybe_unused]] auto const& [__VA_ARGS__] = of_cpp; }                                 \
  }

namespace {

SAME_STRUCT(status, code, detail, message)
SAME_STRUCT(context, backend, device, threads, stream, variant)
SAME_STRUCT(round_shape, batch, vocab, depth, top_k, budget, requests)
SAME_STRUCT(workspace, data, bytes)
SAME_STRUCT(ids_in, data, type, stride)
SAME_STRUCT(ids_out, data, type, stride)
SAME_STRUCT(batch_view, cache_len, request)
SAME_STRUCT(logits_view, data, type, vocab, row_stride, batch_stride, row_offset)
SAME_STRUCT(rows_view, data, row_bytes, row_stride_bytes, batch_stride, row_offset)
SAME_STRUCT(kv_table, entries, columns, page_size, entry_mask, entry_scale, index_only)
SAME_STRUCT(vocab_range, local_begin, count, global_begin)
SAME_STRUCT(vocab_ranges, range)
SAME_STRUCT(shard_out, data, bytes)
SAME_STRUCT(shard_in, data, ranks, rank_stride_bytes)
SAME_STRUCT(candidates, token, log_prob, flags)
SAME_STRUCT(draft_tree, token, parent, depth, rank, log_weight, first_child, next_sibling,
            ancestors, num_nodes, flags)
SAME_STRUCT(accepted, path, num_accepted, token, bonus, log_prob, flags)
SAME_STRUCT(expand_options, temperature, temperature_by_request, vocab_map, draft_vocab, bias)
SAME_STRUCT(build_options, budget, max_depth, capacity, max_position, seed_depth, min_log_weight)
SAME_STRUCT(tree_nodes, parent, token, num_nodes, log_weight)
SAME_STRUCT(mask_view, data, kind, type, region, columns, row_stride, batch_stride, masked_value,
            window)
SAME_STRUCT(verify_inputs, token, position, slot)
SAME_STRUCT(verify_options, padding, dummy_slot, capacity, table)
SAME_STRUCT(sampling, temperature, top_k, top_p, min_p, seed, order, max_top_k)
SAME_STRUCT(bitmask_view, data, row_stride, batch_stride, row_offset)
SAME_STRUCT(accept_mirror, token, bonus, num_accepted, new_cache_len)
SAME_STRUCT(accept_options, logit_bias, logit_bias_stride, token_bitmask, stop_tokens,
            stop_tokens_per_request, remaining, processed_log_prob, shard_log_prob, mirror)
SAME_STRUCT(kv_tensor, base, page_stride, token_stride, head_stride, pages, heads, row_bytes, table,
            reserved)
SAME_STRUCT(kv_cache, tensors, num_tensors, table)
SAME_STRUCT(state_tensor, from, from_slot_stride, from_node_stride, from_slots, to, to_slot_stride,
            to_slots, bytes)
SAME_STRUCT(state_view, tensors, num_tensors, from_slot, to_slot, take)
SAME_STRUCT(round_options, expand, build, verify, accept, log_prob)
SAME_STRUCT(decoding_round, ctx, shape, options, candidates_, tree, accepted_, scratch)
SAME_STRUCT(variant_info, op, backend, name)

// A switch that misses an enumerator is a warning.
#define VALUE(enumerator, value) \
  case enumerator:               \
    return value;
#define SAME_ENUM(type, last, ...)                        \
  constexpr std::int32_t value_in_c(ddtree::type value) { \
    using enum ddtree::type;                              \
    switch (value) { __VA_ARGS__ }                        \
    return -1;                                            \
  }                                                       \
  static_assert([] {                                      \
    for (std::int32_t i = 0; i <= last; ++i) {            \
      if (value_in_c(ddtree::type{i}) != i) return false; \
    }                                                     \
    return true;                                          \
  }());

SAME_ENUM(errc, 6,
          VALUE(ok, DDTREE_ERRC_OK) VALUE(invalid_argument, DDTREE_ERRC_INVALID_ARGUMENT)
              VALUE(workspace_too_small, DDTREE_ERRC_WORKSPACE_TOO_SMALL)
                  VALUE(unsupported, DDTREE_ERRC_UNSUPPORTED)
                      VALUE(unsupported_device, DDTREE_ERRC_UNSUPPORTED_DEVICE)
                          VALUE(no_kernel_image, DDTREE_ERRC_NO_KERNEL_IMAGE)
                              VALUE(cuda_error, DDTREE_ERRC_CUDA_ERROR))
SAME_ENUM(backend_kind, 1,
          VALUE(cpu, DDTREE_BACKEND_KIND_CPU) VALUE(cuda, DDTREE_BACKEND_KIND_CUDA))
SAME_ENUM(dtype, 5,
          VALUE(u8, DDTREE_DTYPE_U8) VALUE(i32, DDTREE_DTYPE_I32) VALUE(i64, DDTREE_DTYPE_I64)
              VALUE(f32, DDTREE_DTYPE_F32) VALUE(f16, DDTREE_DTYPE_F16)
                  VALUE(bf16, DDTREE_DTYPE_BF16))
SAME_ENUM(mask_kind, 2,
          VALUE(bits, DDTREE_MASK_KIND_BITS) VALUE(boolean, DDTREE_MASK_KIND_BOOLEAN)
              VALUE(additive, DDTREE_MASK_KIND_ADDITIVE))
SAME_ENUM(mask_columns, 2,
          VALUE(tree, DDTREE_MASK_COLUMNS_TREE) VALUE(full, DDTREE_MASK_COLUMNS_FULL)
              VALUE(recent, DDTREE_MASK_COLUMNS_RECENT))
SAME_ENUM(padding_slot, 2,
          VALUE(minus_one, DDTREE_PADDING_SLOT_MINUS_ONE) VALUE(dummy, DDTREE_PADDING_SLOT_DUMMY)
              VALUE(in_sequence, DDTREE_PADDING_SLOT_IN_SEQUENCE))
SAME_ENUM(filter_order, 1,
          VALUE(k_p_min, DDTREE_FILTER_ORDER_K_P_MIN) VALUE(min_k_p, DDTREE_FILTER_ORDER_MIN_K_P))
SAME_ENUM(operation, ddtree::num_operations - 1,
          VALUE(expand, DDTREE_OPERATION_EXPAND) VALUE(expand_shard, DDTREE_OPERATION_EXPAND_SHARD)
              VALUE(expand_merge, DDTREE_OPERATION_EXPAND_MERGE) VALUE(build_tree,
                                                                       DDTREE_OPERATION_BUILD_TREE)
                  VALUE(link_tree, DDTREE_OPERATION_LINK_TREE) VALUE(write_mask,
                                                                     DDTREE_OPERATION_WRITE_MASK)
                      VALUE(write_verify_inputs, DDTREE_OPERATION_WRITE_VERIFY_INPUTS)
                          VALUE(accept_tokens, DDTREE_OPERATION_ACCEPT_TOKENS)
                              VALUE(accept_greedy, DDTREE_OPERATION_ACCEPT_GREEDY)
                                  VALUE(accept_sampled, DDTREE_OPERATION_ACCEPT_SAMPLED)
                                      VALUE(accept_shard, DDTREE_OPERATION_ACCEPT_SHARD)
                                          VALUE(accept_merge, DDTREE_OPERATION_ACCEPT_MERGE)
                                              VALUE(compact_kv, DDTREE_OPERATION_COMPACT_KV)
                                                  VALUE(compact_rows, DDTREE_OPERATION_COMPACT_ROWS)
                                                      VALUE(compact_state,
                                                            DDTREE_OPERATION_COMPACT_STATE)
                                                          VALUE(advance, DDTREE_OPERATION_ADVANCE))

static_assert(DDTREE_NUM_OPERATIONS == ddtree::num_operations);
static_assert(DDTREE_MAX_BATCH == ddtree::max_batch);
static_assert(DDTREE_MAX_DEPTH == ddtree::max_depth);
static_assert(DDTREE_MAX_TOP_K == ddtree::max_top_k);
static_assert(DDTREE_MAX_BUDGET == ddtree::max_budget);
static_assert(DDTREE_MAX_VOCAB == ddtree::max_vocab);
static_assert(DDTREE_FLAG_DRAFT_NAN == ddtree::flag::draft_nan);
static_assert(DDTREE_FLAG_CANDIDATES_CUT == ddtree::flag::candidates_cut);
static_assert(DDTREE_FLAG_TOP_K_LIMITED == ddtree::flag::top_k_limited);
static_assert(DDTREE_FLAG_LENGTH_LIMITED == ddtree::flag::length_limited);
static_assert(DDTREE_FLAG_ID_OUT_OF_RANGE == ddtree::flag::id_out_of_range);
static_assert(DDTREE_FLAG_SLOT_OUT_OF_RANGE == ddtree::flag::slot_out_of_range);
static_assert(DDTREE_FLAG_TARGET_NAN == ddtree::flag::target_nan);
static_assert(DDTREE_FLAG_STOPPED == ddtree::flag::stopped);
static_assert(DDTREE_FLAG_LIMIT_REACHED == ddtree::flag::limit_reached);

}  // namespace
