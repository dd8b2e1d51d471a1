// SPDX-License-Identifier: Apache-2.0
// The arguments of each operation as the API hands them to a backend: validated, strides resolved,
// workspaces as the caller gave them.
#pragma once

#include "ddtree/accept.hpp"
#include "ddtree/build.hpp"
#include "ddtree/compact.hpp"
#include "ddtree/context.hpp"
#include "ddtree/expand.hpp"
#include "ddtree/mask.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

struct expand_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  logits_view draft;
  candidates out;
  workspace scratch;
  expand_options options;
};

struct expand_shard_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  logits_view shard;
  vocab_ranges ranges;
  shard_out out;
  workspace scratch;
  expand_options options;
};

struct expand_merge_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  shard_in all_ranks;
  candidates out;
  workspace scratch;
  expand_options options;
};

struct build_tree_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  candidates in;
  ids_in root;
  draft_tree out;
  workspace scratch;
  build_options options;
};

struct link_tree_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  tree_nodes in;
  draft_tree out;
};

struct write_mask_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  mask_view out;
};

struct write_verify_inputs_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  verify_inputs out;
  verify_options options;
};

struct accept_tokens_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  ids_in target_token;
  accepted out;
  accept_options options;
};

/// accept_greedy and accept_sampled; greedy has `how` all null.
struct accept_logits_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  logits_view target;
  sampling how;
  accepted out;
  workspace scratch;
  accept_options options;
};

struct accept_shard_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  logits_view shard;
  vocab_ranges ranges;
  sampling how;
  shard_out out;
  workspace scratch;
  accept_options options;
};

struct accept_merge_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  draft_tree tree;
  shard_in all_ranks;
  sampling how;
  accepted out;
  workspace scratch;
  accept_options options;
};

struct compact_kv_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  accepted path;
  kv_cache cache;
};

struct compact_rows_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  accepted path;
  rows_view from;
  rows_view to;
};

struct compact_state_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  accepted path;
  state_view state;
};

struct advance_call {
  context ctx;
  round_shape shape;
  batch_view batch;
  accepted path;
  ids_out cache_len;
};

}  // namespace support
}  // namespace v0
}  // namespace ddtree
