// SPDX-License-Identifier: Apache-2.0
// Inputs and results of every call on one small batch, for C and C++.
#ifndef DDTREE_TESTS_C_ABI_SCENE_H
#define DDTREE_TESTS_C_ABI_SCENE_H

#include <stddef.h>
#include <stdint.h>

enum {
  BATCH = 2,
  VOCAB = 64,
  DEPTH = 3,
  TOP_K = 4,
  BUDGET = 8,
  WIDTH = BUDGET + 1,
  RANKS = 2,
  HALF = VOCAB / RANKS,
  ROWS = 32,  // KV rows a request has
  ROW = 16,   // bytes of one
  SHARD = 4096,
  SCRATCH = 1 << 16
};

struct candidate_arrays {
  int32_t token[BATCH * DEPTH * TOP_K];
  float log_prob[BATCH * DEPTH * TOP_K];
  uint32_t flags[BATCH];
};

struct tree_arrays {
  int32_t token[BATCH * WIDTH], parent[BATCH * WIDTH], depth[BATCH * WIDTH], rank[BATCH * WIDTH];
  float log_weight[BATCH * WIDTH];
  int32_t first_child[BATCH * WIDTH], next_sibling[BATCH * WIDTH];
  uint32_t ancestors[BATCH * WIDTH];
  int32_t num_nodes[BATCH];
  uint32_t flags[BATCH];
};

struct accepted_arrays {
  int32_t path[BATCH * (DEPTH + 1)], num_accepted[BATCH], token[BATCH * (DEPTH + 1)], bonus[BATCH];
  float log_prob[BATCH * (DEPTH + 1)];
  uint32_t flags[BATCH];
};

struct call_result {
  int32_t code, detail;
  char const* message;
};

struct scene {
  // Inputs.
  float draft[BATCH * DEPTH * VOCAB], target[BATCH * WIDTH * VOCAB];
  int32_t root[BATCH], target_token[BATCH * WIDTH];
  int64_t cache_len[BATCH], seed[BATCH];
  float temperature[BATCH];
  // Results. Nothing here points into memory of the side that wrote it.
  struct candidate_arrays expanded, merged;
  struct tree_arrays built, linked, of_round;
  uint32_t mask[BATCH * WIDTH];
  int64_t position[BATCH * WIDTH], slot[BATCH * WIDTH];
  struct accepted_arrays by_tokens, greedy, sampled, sharded, of_round_path;
  unsigned char kv[BATCH * ROWS * ROW], hidden[BATCH * WIDTH * ROW];
  unsigned char states[BATCH * WIDTH * ROW], live[BATCH * ROW];
  int64_t new_cache_len[BATCH];
  struct call_result status[64];
  int64_t number[512];
  char const* text[512];
  int statuses, numbers, texts;
  // Not compared.
  unsigned char memory[SCRATCH], scratch[SCRATCH];
  unsigned char shards[(RANKS + 1) * SHARD];
};

/// A rank's contribution, aligned as it must be.
static inline unsigned char* shard_of(struct scene* s, int rank) {
  return s->shards + (SHARD - (size_t)((uintptr_t)s->shards % SHARD)) + rank * SHARD;
}

#ifdef __cplusplus
extern "C" {
#endif
void call_everything_from_c(struct scene* s);
#ifdef __cplusplus
}
#endif

#endif  // DDTREE_TESTS_C_ABI_SCENE_H
