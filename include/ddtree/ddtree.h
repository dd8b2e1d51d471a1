// SPDX-License-Identifier: Apache-2.0
/// @file ddtree.h
/// The whole API for C99 and whatever calls C: the structs of the C++ headers byte for byte, and a
/// function for each of theirs (those of formats/ excepted, which are for C++).
///
/// What a call does, what its arguments and members mean and which errors it has is said once, in
/// the C++ header that each part names. What differs:
///
/// * `ddtree::expand` is `ddtree_expand`; `decoding_round::draft` is `ddtree_decoding_round_draft`,
///   with the round first. The enumerator `dtype::bf16` is DDTREE_DTYPE_BF16.
/// * What C++ takes as a const reference is a pointer here, and null stands for the C++ default:
///   no options, no batch, the CPU, an empty view.
/// * C has no default members: begin with `ddtree_X_default()`, which for every struct X that a
///   caller fills in returns what C++ initialises it to, then set what differs. All zeros are not
///   the defaults: ids of type 0 are u8, a shape has a depth.
/// * A status is returned, never thrown; success is `code == DDTREE_ERRC_OK`.
///
/// While the version is 0.x a minor version may change structs and functions; the soname changes
/// with it. Compare DDTREE_VERSION with `ddtree_version()` where the library is loaded by name.
#ifndef DDTREE_DDTREE_H
#define DDTREE_DDTREE_H

#include "ddtree/export.h"
#include "ddtree/version.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// DDTREE_VERSION of the library that runs.
DDTREE_API int32_t ddtree_version(void);

// ddtree/status.hpp

typedef int32_t ddtree_errc;
enum {
  DDTREE_ERRC_OK = 0,
  DDTREE_ERRC_INVALID_ARGUMENT = 1,
  DDTREE_ERRC_WORKSPACE_TOO_SMALL = 2,
  DDTREE_ERRC_UNSUPPORTED = 3,
  DDTREE_ERRC_UNSUPPORTED_DEVICE = 4,
  DDTREE_ERRC_NO_KERNEL_IMAGE = 5,
  DDTREE_ERRC_CUDA_ERROR = 6
};

typedef struct ddtree_status {
  ddtree_errc code;
  int32_t detail;
  char const* message;
} ddtree_status;

DDTREE_API char const* ddtree_errc_name(ddtree_errc code);

// ddtree/context.hpp

typedef int32_t ddtree_backend_kind;
enum { DDTREE_BACKEND_KIND_CPU = 0, DDTREE_BACKEND_KIND_CUDA = 1 };

typedef struct ddtree_context {
  ddtree_backend_kind backend;
  int32_t device;
  int32_t threads;
  struct CUstream_st* stream;
  char const* variant;
} ddtree_context;

DDTREE_API ddtree_context ddtree_context_cpu(int32_t threads);
/// `stream` is a cudaStream_t.
DDTREE_API ddtree_context ddtree_context_cuda(int32_t device, struct CUstream_st* stream);
DDTREE_API ddtree_context ddtree_context_with_variant(ddtree_context const* ctx, char const* text);

// ddtree/views.hpp

typedef int64_t ddtree_index_t;
typedef int32_t ddtree_token_t;
typedef int32_t ddtree_node_t;

typedef int32_t ddtree_dtype;
enum {
  DDTREE_DTYPE_U8 = 0,
  DDTREE_DTYPE_I32 = 1,
  DDTREE_DTYPE_I64 = 2,
  DDTREE_DTYPE_F32 = 3,
  DDTREE_DTYPE_F16 = 4,
  DDTREE_DTYPE_BF16 = 5
};

enum {
  DDTREE_MAX_BATCH = 65535,
  DDTREE_MAX_DEPTH = 31,
  DDTREE_MAX_TOP_K = 1024,
  DDTREE_MAX_BUDGET = 2047,
  DDTREE_MAX_VOCAB = 4194304
};

typedef struct ddtree_round_shape {
  ddtree_index_t batch;
  ddtree_index_t vocab;
  int32_t depth;
  int32_t top_k;
  int32_t budget;
  ddtree_index_t requests;
} ddtree_round_shape;

DDTREE_API ddtree_round_shape ddtree_round_shape_default(void);
DDTREE_API ddtree_index_t ddtree_round_shape_width(ddtree_round_shape const* shape);
DDTREE_API ddtree_index_t ddtree_round_shape_words(ddtree_round_shape const* shape);
DDTREE_API ddtree_index_t ddtree_round_shape_request_rows(ddtree_round_shape const* shape);

typedef struct ddtree_workspace {
  void* data;
  size_t bytes;
} ddtree_workspace;

typedef struct ddtree_ids_in {
  void const* data;
  ddtree_dtype type;
  ddtree_index_t stride;
} ddtree_ids_in;

typedef struct ddtree_ids_out {
  void* data;
  ddtree_dtype type;
  ddtree_index_t stride;
} ddtree_ids_out;

typedef struct ddtree_batch_view {
  ddtree_ids_in cache_len;
  ddtree_ids_in request;
} ddtree_batch_view;

typedef struct ddtree_logits_view {
  void const* data;
  ddtree_dtype type;
  ddtree_index_t vocab;
  ddtree_index_t row_stride;
  ddtree_index_t batch_stride;
  ddtree_ids_in row_offset;
} ddtree_logits_view;

typedef struct ddtree_rows_view {
  void* data;
  ddtree_index_t row_bytes;
  ddtree_index_t row_stride_bytes;
  ddtree_index_t batch_stride;
  ddtree_ids_in row_offset;
} ddtree_rows_view;

typedef struct ddtree_kv_table {
  ddtree_ids_out entries;
  ddtree_index_t columns;
  ddtree_index_t page_size;
  int64_t entry_mask;
  int64_t entry_scale;
  bool index_only;
} ddtree_kv_table;

typedef struct ddtree_vocab_range {
  ddtree_index_t local_begin;
  ddtree_index_t count;
  ddtree_index_t global_begin;
} ddtree_vocab_range;

typedef struct ddtree_vocab_ranges {
  ddtree_vocab_range range[2];
} ddtree_vocab_ranges;

typedef struct ddtree_shard_out {
  void* data;
  size_t bytes;
} ddtree_shard_out;

typedef struct ddtree_shard_in {
  void const* data;
  ddtree_index_t ranks;
  ddtree_index_t rank_stride_bytes;
} ddtree_shard_in;

DDTREE_API ddtree_ids_in ddtree_ids_in_default(void);
DDTREE_API ddtree_ids_out ddtree_ids_out_default(void);
DDTREE_API ddtree_batch_view ddtree_batch_view_default(void);
DDTREE_API ddtree_logits_view ddtree_logits_view_default(void);
DDTREE_API ddtree_rows_view ddtree_rows_view_default(void);
DDTREE_API ddtree_kv_table ddtree_kv_table_default(void);
DDTREE_API ddtree_vocab_ranges ddtree_vocab_ranges_default(void);
DDTREE_API ddtree_shard_in ddtree_shard_in_default(void);

// ddtree/tree.hpp

enum {
  DDTREE_FLAG_DRAFT_NAN = 1 << 0,
  DDTREE_FLAG_CANDIDATES_CUT = 1 << 1,
  DDTREE_FLAG_TOP_K_LIMITED = 1 << 2,
  DDTREE_FLAG_LENGTH_LIMITED = 1 << 3,
  DDTREE_FLAG_ID_OUT_OF_RANGE = 1 << 4,
  DDTREE_FLAG_SLOT_OUT_OF_RANGE = 1 << 5,
  DDTREE_FLAG_TARGET_NAN = 1 << 6,
  DDTREE_FLAG_STOPPED = 1 << 7,
  DDTREE_FLAG_LIMIT_REACHED = 1 << 8
};

typedef struct ddtree_candidates {
  ddtree_token_t* token;
  float* log_prob;
  uint32_t* flags;
} ddtree_candidates;

typedef struct ddtree_draft_tree {
  ddtree_token_t* token;
  ddtree_node_t* parent;
  int32_t* depth;
  int32_t* rank;
  float* log_weight;
  ddtree_node_t* first_child;
  ddtree_node_t* next_sibling;
  uint32_t* ancestors;
  int32_t* num_nodes;
  uint32_t* flags;
} ddtree_draft_tree;

typedef struct ddtree_accepted {
  ddtree_node_t* path;
  int32_t* num_accepted;
  ddtree_token_t* token;
  ddtree_token_t* bonus;
  float* log_prob;
  uint32_t* flags;
} ddtree_accepted;

DDTREE_API ddtree_candidates ddtree_candidates_default(void);
DDTREE_API ddtree_draft_tree ddtree_draft_tree_default(void);
DDTREE_API ddtree_accepted ddtree_accepted_default(void);
DDTREE_API size_t ddtree_accepted_bytes(ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_bind_accepted(ddtree_round_shape const* shape,
                                              ddtree_workspace memory, ddtree_accepted* out);

// ddtree/expand.hpp

typedef struct ddtree_expand_options {
  float temperature;
  float const* temperature_by_request;
  ddtree_ids_in vocab_map;
  ddtree_index_t draft_vocab;
  float const* bias;
} ddtree_expand_options;

DDTREE_API ddtree_expand_options ddtree_expand_options_default(void);
DDTREE_API size_t ddtree_expand_workspace_bytes(ddtree_context const* ctx,
                                                ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_expand(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                       ddtree_batch_view const* batch,
                                       ddtree_logits_view const* draft,
                                       ddtree_candidates const* out, ddtree_workspace scratch,
                                       ddtree_expand_options const* options);
DDTREE_API size_t ddtree_expand_shard_bytes(ddtree_round_shape const* shape);
DDTREE_API size_t ddtree_expand_shard_workspace_bytes(ddtree_context const* ctx,
                                                      ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_expand_shard(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_logits_view const* shard, ddtree_vocab_ranges const* ranges, ddtree_shard_out out,
    ddtree_workspace scratch, ddtree_expand_options const* options);
DDTREE_API size_t ddtree_expand_merge_workspace_bytes(ddtree_context const* ctx,
                                                      ddtree_round_shape const* shape,
                                                      ddtree_index_t ranks);
DDTREE_API ddtree_status ddtree_expand_merge(ddtree_context const* ctx,
                                             ddtree_round_shape const* shape,
                                             ddtree_batch_view const* batch,
                                             ddtree_shard_in const* all_ranks,
                                             ddtree_candidates const* out, ddtree_workspace scratch,
                                             ddtree_expand_options const* options);

// ddtree/build.hpp

typedef struct ddtree_build_options {
  ddtree_ids_in budget;
  ddtree_ids_in max_depth;
  ddtree_ids_in capacity;
  ddtree_ids_in max_position;
  int32_t seed_depth;
  float min_log_weight;
} ddtree_build_options;

typedef struct ddtree_tree_nodes {
  ddtree_ids_in parent;
  ddtree_ids_in token;
  ddtree_ids_in num_nodes;
  float const* log_weight;
} ddtree_tree_nodes;

DDTREE_API ddtree_build_options ddtree_build_options_default(void);
DDTREE_API ddtree_tree_nodes ddtree_tree_nodes_default(void);
DDTREE_API size_t ddtree_build_tree_workspace_bytes(ddtree_context const* ctx,
                                                    ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_build_tree(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape,
                                           ddtree_batch_view const* batch,
                                           ddtree_candidates const* in, ddtree_ids_in root,
                                           ddtree_draft_tree const* out, ddtree_workspace scratch,
                                           ddtree_build_options const* options);
DDTREE_API ddtree_status ddtree_link_tree(ddtree_context const* ctx,
                                          ddtree_round_shape const* shape,
                                          ddtree_batch_view const* batch,
                                          ddtree_tree_nodes const* in,
                                          ddtree_draft_tree const* out);

// ddtree/mask.hpp

typedef int32_t ddtree_mask_kind;
enum { DDTREE_MASK_KIND_BITS = 0, DDTREE_MASK_KIND_BOOLEAN = 1, DDTREE_MASK_KIND_ADDITIVE = 2 };

typedef int32_t ddtree_mask_columns;
enum { DDTREE_MASK_COLUMNS_TREE = 0, DDTREE_MASK_COLUMNS_FULL = 1, DDTREE_MASK_COLUMNS_RECENT = 2 };

typedef struct ddtree_mask_view {
  void* data;
  ddtree_mask_kind kind;
  ddtree_dtype type;
  ddtree_mask_columns region;
  ddtree_index_t columns;
  ddtree_index_t row_stride;
  ddtree_index_t batch_stride;
  float masked_value;
  ddtree_index_t window;
} ddtree_mask_view;

typedef struct ddtree_verify_inputs {
  ddtree_ids_out token;
  ddtree_ids_out position;
  ddtree_ids_out slot;
} ddtree_verify_inputs;

typedef int32_t ddtree_padding_slot;
enum {
  DDTREE_PADDING_SLOT_MINUS_ONE = 0,
  DDTREE_PADDING_SLOT_DUMMY = 1,
  DDTREE_PADDING_SLOT_IN_SEQUENCE = 2
};

typedef struct ddtree_verify_options {
  ddtree_padding_slot padding;
  int64_t dummy_slot;
  ddtree_ids_in capacity;
  ddtree_kv_table table;
} ddtree_verify_options;

DDTREE_API ddtree_mask_view ddtree_mask_view_default(void);
DDTREE_API ddtree_verify_inputs ddtree_verify_inputs_default(void);
DDTREE_API ddtree_verify_options ddtree_verify_options_default(void);
DDTREE_API ddtree_status ddtree_write_mask(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape,
                                           ddtree_batch_view const* batch,
                                           ddtree_draft_tree const* tree,
                                           ddtree_mask_view const* out);
DDTREE_API ddtree_status ddtree_write_verify_inputs(ddtree_context const* ctx,
                                                    ddtree_round_shape const* shape,
                                                    ddtree_batch_view const* batch,
                                                    ddtree_draft_tree const* tree,
                                                    ddtree_verify_inputs const* out,
                                                    ddtree_verify_options const* options);

// ddtree/accept.hpp

typedef int32_t ddtree_filter_order;
enum { DDTREE_FILTER_ORDER_K_P_MIN = 0, DDTREE_FILTER_ORDER_MIN_K_P = 1 };

typedef struct ddtree_sampling {
  float const* temperature;
  ddtree_ids_in top_k;
  float const* top_p;
  float const* min_p;
  ddtree_ids_in seed;
  ddtree_filter_order order;
  int32_t max_top_k;
} ddtree_sampling;

typedef struct ddtree_bitmask_view {
  uint32_t const* data;
  ddtree_index_t row_stride;
  ddtree_index_t batch_stride;
  ddtree_ids_in row_offset;
} ddtree_bitmask_view;

typedef struct ddtree_accept_mirror {
  ddtree_ids_out token;
  ddtree_ids_out bonus;
  ddtree_ids_out num_accepted;
  ddtree_ids_out new_cache_len;
} ddtree_accept_mirror;

typedef struct ddtree_accept_options {
  float const* logit_bias;
  ddtree_index_t logit_bias_stride;
  ddtree_bitmask_view token_bitmask;
  ddtree_ids_in stop_tokens;
  int32_t stop_tokens_per_request;
  ddtree_ids_in remaining;
  bool processed_log_prob;
  bool shard_log_prob;
  ddtree_accept_mirror mirror;
} ddtree_accept_options;

DDTREE_API ddtree_sampling ddtree_sampling_default(void);
DDTREE_API ddtree_accept_options ddtree_accept_options_default(void);
DDTREE_API ddtree_status ddtree_accept_tokens(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_draft_tree const* tree, ddtree_ids_in target_token, ddtree_accepted const* out,
    ddtree_accept_options const* options);
DDTREE_API size_t ddtree_accept_greedy_workspace_bytes(ddtree_context const* ctx,
                                                       ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_accept_greedy(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_draft_tree const* tree, ddtree_logits_view const* target, ddtree_accepted const* out,
    ddtree_workspace scratch, ddtree_accept_options const* options);
DDTREE_API size_t ddtree_accept_sampled_workspace_bytes(ddtree_context const* ctx,
                                                        ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_accept_sampled(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_draft_tree const* tree, ddtree_logits_view const* target, ddtree_sampling const* how,
    ddtree_accepted const* out, ddtree_workspace scratch, ddtree_accept_options const* options);
DDTREE_API size_t ddtree_accept_shard_bytes(ddtree_round_shape const* shape,
                                            ddtree_sampling const* how,
                                            ddtree_accept_options const* options);
DDTREE_API size_t ddtree_accept_shard_workspace_bytes(ddtree_context const* ctx,
                                                      ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_accept_shard(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_draft_tree const* tree, ddtree_logits_view const* shard,
    ddtree_vocab_ranges const* ranges, ddtree_sampling const* how, ddtree_shard_out out,
    ddtree_workspace scratch, ddtree_accept_options const* options);
DDTREE_API size_t ddtree_accept_merge_workspace_bytes(ddtree_context const* ctx,
                                                      ddtree_round_shape const* shape,
                                                      ddtree_index_t ranks);
DDTREE_API ddtree_status ddtree_accept_merge(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_draft_tree const* tree, ddtree_shard_in const* all_ranks, ddtree_sampling const* how,
    ddtree_accepted const* out, ddtree_workspace scratch, ddtree_accept_options const* options);

// ddtree/compact.hpp

typedef struct ddtree_kv_tensor {
  void* base;
  ddtree_index_t page_stride;
  ddtree_index_t token_stride;
  ddtree_index_t head_stride;
  ddtree_index_t pages;
  int32_t heads;
  int32_t row_bytes;
  int32_t table;
  int32_t reserved;
} ddtree_kv_tensor;

typedef struct ddtree_kv_cache {
  ddtree_kv_tensor const* tensors;
  ddtree_index_t num_tensors;
  ddtree_kv_table table[4];
} ddtree_kv_cache;

typedef struct ddtree_state_tensor {
  void const* from;
  ddtree_index_t from_slot_stride;
  ddtree_index_t from_node_stride;
  ddtree_index_t from_slots;
  void* to;
  ddtree_index_t to_slot_stride;
  ddtree_index_t to_slots;
  ddtree_index_t bytes;
} ddtree_state_tensor;

typedef struct ddtree_state_view {
  ddtree_state_tensor const* tensors;
  ddtree_index_t num_tensors;
  ddtree_ids_in from_slot;
  ddtree_ids_in to_slot;
  ddtree_ids_in take;
} ddtree_state_view;

DDTREE_API ddtree_kv_tensor ddtree_kv_tensor_default(void);
DDTREE_API ddtree_kv_cache ddtree_kv_cache_default(void);
DDTREE_API ddtree_state_tensor ddtree_state_tensor_default(void);
DDTREE_API ddtree_state_view ddtree_state_view_default(void);
DDTREE_API ddtree_status ddtree_compact_kv(ddtree_context const* ctx,
                                           ddtree_round_shape const* shape,
                                           ddtree_batch_view const* batch,
                                           ddtree_accepted const* path,
                                           ddtree_kv_cache const* cache);
DDTREE_API ddtree_status ddtree_compact_rows(
    ddtree_context const* ctx, ddtree_round_shape const* shape, ddtree_batch_view const* batch,
    ddtree_accepted const* path, ddtree_rows_view const* from, ddtree_rows_view const* to);
DDTREE_API ddtree_status ddtree_compact_state(ddtree_context const* ctx,
                                              ddtree_round_shape const* shape,
                                              ddtree_batch_view const* batch,
                                              ddtree_accepted const* path,
                                              ddtree_state_view const* state);
DDTREE_API ddtree_status ddtree_advance(ddtree_context const* ctx, ddtree_round_shape const* shape,
                                        ddtree_batch_view const* batch, ddtree_accepted const* path,
                                        ddtree_ids_out cache_len);

// ddtree/round.hpp

typedef struct ddtree_round_options {
  ddtree_expand_options expand;
  ddtree_build_options build;
  ddtree_verify_options verify;
  ddtree_accept_options accept;
  bool log_prob;
} ddtree_round_options;

typedef struct ddtree_decoding_round {
  ddtree_context ctx;
  ddtree_round_shape shape;
  ddtree_round_options options;
  ddtree_candidates candidates_;
  ddtree_draft_tree tree;
  ddtree_accepted accepted_;
  ddtree_workspace scratch;
} ddtree_decoding_round;

DDTREE_API ddtree_round_options ddtree_round_options_default(void);
DDTREE_API size_t ddtree_decoding_round_bytes(ddtree_context const* ctx,
                                              ddtree_round_shape const* shape);
DDTREE_API ddtree_status ddtree_decoding_round_create(ddtree_context const* ctx,
                                                      ddtree_round_shape const* shape,
                                                      ddtree_workspace memory,
                                                      ddtree_decoding_round* out,
                                                      ddtree_round_options const* options);
DDTREE_API ddtree_status ddtree_decoding_round_reset(ddtree_decoding_round const* round,
                                                     ddtree_context const* on);
DDTREE_API ddtree_status ddtree_decoding_round_draft(ddtree_decoding_round const* round,
                                                     ddtree_batch_view const* batch,
                                                     ddtree_logits_view const* draft_logits,
                                                     ddtree_ids_in root,
                                                     ddtree_verify_inputs const* inputs,
                                                     ddtree_mask_view const* mask);
DDTREE_API ddtree_status ddtree_decoding_round_accept(ddtree_decoding_round const* round,
                                                      ddtree_batch_view const* batch,
                                                      ddtree_logits_view const* target,
                                                      ddtree_sampling const* how,
                                                      ddtree_accepted const* out);
DDTREE_API ddtree_status ddtree_decoding_round_accept_tokens(ddtree_decoding_round const* round,
                                                             ddtree_batch_view const* batch,
                                                             ddtree_ids_in target_token,
                                                             ddtree_accepted const* out);
DDTREE_API ddtree_status ddtree_decoding_round_commit(ddtree_decoding_round const* round,
                                                      ddtree_batch_view const* batch,
                                                      ddtree_kv_cache const* cache,
                                                      ddtree_ids_out cache_len,
                                                      ddtree_accepted const* from);

// ddtree/variants.hpp

typedef int32_t ddtree_operation;
enum {
  DDTREE_OPERATION_EXPAND = 0,
  DDTREE_OPERATION_EXPAND_SHARD = 1,
  DDTREE_OPERATION_EXPAND_MERGE = 2,
  DDTREE_OPERATION_BUILD_TREE = 3,
  DDTREE_OPERATION_LINK_TREE = 4,
  DDTREE_OPERATION_WRITE_MASK = 5,
  DDTREE_OPERATION_WRITE_VERIFY_INPUTS = 6,
  DDTREE_OPERATION_ACCEPT_TOKENS = 7,
  DDTREE_OPERATION_ACCEPT_GREEDY = 8,
  DDTREE_OPERATION_ACCEPT_SAMPLED = 9,
  DDTREE_OPERATION_ACCEPT_SHARD = 10,
  DDTREE_OPERATION_ACCEPT_MERGE = 11,
  DDTREE_OPERATION_COMPACT_KV = 12,
  DDTREE_OPERATION_COMPACT_ROWS = 13,
  DDTREE_OPERATION_COMPACT_STATE = 14,
  DDTREE_OPERATION_ADVANCE = 15
};
enum { DDTREE_NUM_OPERATIONS = 16 };

typedef struct ddtree_variant_info {
  ddtree_operation op;
  ddtree_backend_kind backend;
  char const* name;
} ddtree_variant_info;

DDTREE_API char const* ddtree_operation_name(ddtree_operation op);
DDTREE_API char const* ddtree_floor_of(ddtree_operation op);
DDTREE_API size_t ddtree_variants(ddtree_backend_kind backend, ddtree_variant_info* out,
                                  size_t capacity);
DDTREE_API char const* ddtree_selected(ddtree_context const* ctx, ddtree_operation op,
                                       ddtree_round_shape const* shape);
DDTREE_API size_t ddtree_compiled_architectures(int32_t* out, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif  // DDTREE_DDTREE_H
