// SPDX-License-Identifier: Apache-2.0
// Every function of ddtree.h, called from C99. calls.cpp is the same in C++.
#include "ddtree/ddtree.h"

#include "scene.h"

static void note(struct scene* s, ddtree_status status) {
  struct call_result const result = {status.code, status.detail, status.message};
  s->status[s->statuses++] = result;
}
static void count(struct scene* s, size_t n) { s->number[s->numbers++] = (int64_t)n; }
static void say(struct scene* s, char const* text) { s->text[s->texts++] = text; }

static ddtree_ids_in ids32(int32_t const* data) {
  ddtree_ids_in ids = ddtree_ids_in_default();
  ids.data = data;
  return ids;
}
static ddtree_ids_in ids64(int64_t const* data) {
  ddtree_ids_in ids = ids32(NULL);
  ids.data = data;
  ids.type = DDTREE_DTYPE_I64;
  return ids;
}
static ddtree_ids_out out64(int64_t* data) {
  ddtree_ids_out ids = ddtree_ids_out_default();
  ids.data = data;
  ids.type = DDTREE_DTYPE_I64;
  return ids;
}
static ddtree_logits_view logits(float const* data) {
  ddtree_logits_view view = ddtree_logits_view_default();
  view.data = data;
  return view;
}
static ddtree_candidates candidates(struct candidate_arrays* a) {
  ddtree_candidates c = ddtree_candidates_default();
  c.token = a->token;
  c.log_prob = a->log_prob;
  c.flags = a->flags;
  return c;
}
static ddtree_draft_tree tree_of(struct tree_arrays* a) {
  ddtree_draft_tree t = ddtree_draft_tree_default();
  t.token = a->token;
  t.parent = a->parent;
  t.depth = a->depth;
  t.rank = a->rank;
  t.log_weight = a->log_weight;
  t.first_child = a->first_child;
  t.next_sibling = a->next_sibling;
  t.ancestors = a->ancestors;
  t.num_nodes = a->num_nodes;
  t.flags = a->flags;
  return t;
}
static ddtree_accepted accepted(struct accepted_arrays* a) {
  ddtree_accepted p = ddtree_accepted_default();
  p.path = a->path;
  p.num_accepted = a->num_accepted;
  p.token = a->token;
  p.bonus = a->bonus;
  p.log_prob = a->log_prob;
  p.flags = a->flags;
  return p;
}
static ddtree_kv_cache cache_of(ddtree_kv_tensor const* tensor) {
  ddtree_kv_cache cache = ddtree_kv_cache_default();
  cache.tensors = tensor;
  cache.num_tensors = 1;
  cache.table[0] = ddtree_kv_table_default();
  cache.table[0].page_size = ROWS;
  return cache;
}
static ddtree_vocab_ranges half_of(int rank) {
  ddtree_vocab_ranges ranges = ddtree_vocab_ranges_default();
  ranges.range[0].local_begin = HALF * rank;
  ranges.range[0].count = HALF;
  ranges.range[0].global_begin = HALF * rank;
  return ranges;
}

static void call_operations(struct scene* s, ddtree_context const* ctx,
                            ddtree_round_shape const* shape) {
  ddtree_workspace const scratch = {s->scratch, sizeof s->scratch};
  ddtree_batch_view batch = ddtree_batch_view_default();
  batch.cache_len = ids64(s->cache_len);
  ddtree_logits_view const draft = logits(s->draft), target = logits(s->target);

  ddtree_expand_options expand_options = ddtree_expand_options_default();
  expand_options.temperature = 0.5f;
  ddtree_candidates const expanded = candidates(&s->expanded), merged = candidates(&s->merged);
  count(s, ddtree_expand_workspace_bytes(ctx, shape));
  note(s, ddtree_expand(ctx, shape, &batch, &draft, &expanded, scratch, &expand_options));
  count(s, ddtree_expand_shard_bytes(shape));
  count(s, ddtree_expand_shard_workspace_bytes(ctx, shape));
  count(s, ddtree_expand_merge_workspace_bytes(ctx, shape, RANKS));
  ddtree_shard_in gathered = ddtree_shard_in_default();
  gathered.data = shard_of(s, 0);
  gathered.ranks = RANKS;
  gathered.rank_stride_bytes = SHARD;
  for (int rank = 0; rank < RANKS; ++rank) {
    ddtree_logits_view shard = draft;
    shard.vocab = VOCAB;
    ddtree_vocab_ranges const ranges = half_of(rank);
    ddtree_shard_out const out = {shard_of(s, rank), SHARD};
    note(s,
         ddtree_expand_shard(ctx, shape, &batch, &shard, &ranges, out, scratch, &expand_options));
  }
  note(s, ddtree_expand_merge(ctx, shape, &batch, &gathered, &merged, scratch, &expand_options));

  ddtree_build_options build_options = ddtree_build_options_default();
  build_options.seed_depth = 2;
  ddtree_draft_tree const built = tree_of(&s->built), linked = tree_of(&s->linked);
  count(s, ddtree_build_tree_workspace_bytes(ctx, shape));
  note(s, ddtree_build_tree(ctx, shape, &batch, &expanded, ids32(s->root), &built, scratch,
                            &build_options));
  ddtree_tree_nodes nodes = ddtree_tree_nodes_default();
  nodes.parent = ids32(s->built.parent);
  nodes.token = ids32(s->built.token);
  nodes.num_nodes = ids32(s->built.num_nodes);
  note(s, ddtree_link_tree(ctx, shape, &batch, &nodes, &linked));

  ddtree_mask_view mask = ddtree_mask_view_default();
  mask.data = s->mask;
  note(s, ddtree_write_mask(ctx, shape, &batch, &built, &mask));
  ddtree_verify_inputs inputs = ddtree_verify_inputs_default();
  inputs.position = out64(s->position);
  inputs.slot = out64(s->slot);
  ddtree_verify_options verify_options = ddtree_verify_options_default();
  verify_options.padding = DDTREE_PADDING_SLOT_DUMMY;
  verify_options.dummy_slot = 99;
  note(s, ddtree_write_verify_inputs(ctx, shape, &batch, &built, &inputs, &verify_options));

  ddtree_sampling how = ddtree_sampling_default();
  how.temperature = s->temperature;
  how.seed = ids64(s->seed);
  how.max_top_k = 8;
  ddtree_accept_options accept_options = ddtree_accept_options_default();
  accept_options.shard_log_prob = true;
  ddtree_accepted by_tokens = accepted(&s->by_tokens);
  by_tokens.log_prob = NULL;
  ddtree_accepted const greedy = accepted(&s->greedy), sampled = accepted(&s->sampled);
  ddtree_accepted const sharded = accepted(&s->sharded);
  note(s,
       ddtree_accept_tokens(ctx, shape, &batch, &built, ids32(s->target_token), &by_tokens, NULL));
  count(s, ddtree_accept_greedy_workspace_bytes(ctx, shape));
  note(s, ddtree_accept_greedy(ctx, shape, &batch, &built, &target, &greedy, scratch, NULL));
  count(s, ddtree_accept_sampled_workspace_bytes(ctx, shape));
  note(s, ddtree_accept_sampled(ctx, shape, &batch, &built, &target, &how, &sampled, scratch,
                                &accept_options));
  count(s, ddtree_accept_shard_bytes(shape, &how, &accept_options));
  count(s, ddtree_accept_shard_workspace_bytes(ctx, shape));
  count(s, ddtree_accept_merge_workspace_bytes(ctx, shape, RANKS));
  for (int rank = 0; rank < RANKS; ++rank) {
    ddtree_logits_view shard = target;
    shard.vocab = VOCAB;
    ddtree_vocab_ranges const ranges = half_of(rank);
    ddtree_shard_out const out = {shard_of(s, rank), SHARD};
    note(s, ddtree_accept_shard(ctx, shape, &batch, &built, &shard, &ranges, &how, out, scratch,
                                &accept_options));
  }
  note(s, ddtree_accept_merge(ctx, shape, &batch, &built, &gathered, &how, &sharded, scratch,
                              &accept_options));

  ddtree_kv_tensor tensor = ddtree_kv_tensor_default();
  tensor.base = s->kv;
  tensor.page_stride = ROWS * ROW;
  tensor.token_stride = ROW;
  tensor.pages = BATCH;
  tensor.row_bytes = ROW;
  ddtree_kv_cache const cache = cache_of(&tensor);
  note(s, ddtree_compact_kv(ctx, shape, &batch, &greedy, &cache));
  ddtree_rows_view rows = ddtree_rows_view_default();
  rows.data = s->hidden;
  rows.row_bytes = ROW;
  note(s, ddtree_compact_rows(ctx, shape, &batch, &greedy, &rows, &rows));
  ddtree_state_tensor states = ddtree_state_tensor_default();
  states.from = s->states;
  states.from_slot_stride = WIDTH * ROW;
  states.from_node_stride = ROW;
  states.from_slots = BATCH;
  states.to = s->live;
  states.to_slot_stride = ROW;
  states.to_slots = BATCH;
  states.bytes = ROW;
  ddtree_state_view state = ddtree_state_view_default();
  state.tensors = &states;
  state.num_tensors = 1;
  note(s, ddtree_compact_state(ctx, shape, &batch, &greedy, &state));
  note(s, ddtree_advance(ctx, shape, &batch, &greedy, out64(s->new_cache_len)));

  // Errors are the same too, and so is what null stands for.
  note(s, ddtree_expand(ctx, NULL, NULL, NULL, NULL, scratch, NULL));
  note(s, ddtree_expand(NULL, shape, NULL, NULL, &expanded, scratch, NULL));
}

static void call_round(struct scene* s, ddtree_context const* ctx,
                       ddtree_round_shape const* shape) {
  ddtree_workspace const memory = {s->memory, sizeof s->memory};
  ddtree_batch_view batch = ddtree_batch_view_default();
  batch.cache_len = ids64(s->cache_len);
  ddtree_logits_view const draft = logits(s->draft), target = logits(s->target);
  ddtree_round_options options = ddtree_round_options_default();
  options.log_prob = true;
  ddtree_decoding_round round;
  count(s, ddtree_decoding_round_bytes(ctx, shape));
  note(s, ddtree_decoding_round_create(ctx, shape, memory, &round, &options));
  round.tree = tree_of(&s->of_round);
  ddtree_accepted const path = accepted(&s->of_round_path);
  note(s, ddtree_decoding_round_reset(&round, ctx));
  note(s, ddtree_decoding_round_draft(&round, &batch, &draft, ids32(s->root), NULL, NULL));
  note(s, ddtree_decoding_round_accept_tokens(&round, &batch, ids32(s->target_token), NULL));
  note(s, ddtree_decoding_round_accept(&round, &batch, &target, NULL, &path));
  note(s, ddtree_decoding_round_commit(&round, &batch, NULL, out64(s->new_cache_len), &path));

  ddtree_accepted bound;
  count(s, ddtree_accepted_bytes(shape));
  note(s, ddtree_bind_accepted(shape, memory, &bound));
  count(s, (size_t)((unsigned char*)bound.flags - s->memory));
}

static void call_queries(struct scene* s, ddtree_context const* ctx,
                         ddtree_round_shape const* shape) {
  count(s, (size_t)ddtree_version());
  count(s, (size_t)ddtree_round_shape_width(shape));
  count(s, (size_t)ddtree_round_shape_words(shape));
  count(s, (size_t)ddtree_round_shape_request_rows(shape));
  for (ddtree_errc code = DDTREE_ERRC_OK; code <= DDTREE_ERRC_CUDA_ERROR + 1; ++code) {
    say(s, ddtree_errc_name(code));
  }
  for (ddtree_operation op = 0; op <= DDTREE_NUM_OPERATIONS; ++op) {
    say(s, ddtree_operation_name(op));
    say(s, ddtree_floor_of(op));
    say(s, ddtree_selected(ctx, op, shape));
  }
  ddtree_variant_info info[64];
  size_t const n = ddtree_variants(DDTREE_BACKEND_KIND_CPU, info, 64);
  for (size_t i = 0; i < n; ++i) {
    count(s, (size_t)info[i].op);
    count(s, (size_t)info[i].backend);
    say(s, info[i].name);
  }
  int32_t architecture[16];
  size_t const architectures = ddtree_compiled_architectures(architecture, 16);
  for (size_t i = 0; i < architectures; ++i) count(s, (size_t)architecture[i]);
  ddtree_context const other = ddtree_context_with_variant(ctx, "expand=none");
  say(s, ddtree_selected(&other, DDTREE_OPERATION_EXPAND, shape));
  ddtree_context const gpu = ddtree_context_cuda(7, NULL);
  count(s, (size_t)gpu.device);
  count(s, (size_t)gpu.backend);
}

void call_everything_from_c(struct scene* s) {
  ddtree_context const ctx = ddtree_context_cpu(2);
  ddtree_round_shape shape = ddtree_round_shape_default();
  shape.batch = BATCH;
  shape.vocab = VOCAB;
  shape.depth = DEPTH;
  shape.top_k = TOP_K;
  shape.budget = BUDGET;
  call_operations(s, &ctx, &shape);
  call_round(s, &ctx, &shape);
  call_queries(s, &ctx, &shape);
}
