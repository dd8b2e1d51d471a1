// A whole round of one request from C: the round of round.hpp.
#include "ddtree/ddtree.h"

#include <stdlib.h>

static int decode(void* memory, size_t bytes, ddtree_context const* cpu,
                  ddtree_round_shape const* shape) {
  float const draft_logits[4] = {0, 1, 3, 2};
  float const target_logits[3][4] = {{0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}};
  int32_t const first = 1;
  int32_t cache_len = 5;

  ddtree_batch_view batch = ddtree_batch_view_default();
  batch.cache_len.data = &cache_len;
  ddtree_logits_view draft = ddtree_logits_view_default();
  draft.data = draft_logits;
  ddtree_logits_view target = ddtree_logits_view_default();
  target.data = target_logits;
  ddtree_ids_in root = ddtree_ids_in_default();
  root.data = &first;
  ddtree_ids_out lengths = ddtree_ids_out_default();
  lengths.data = &cache_len;

  ddtree_decoding_round round;
  ddtree_workspace const where = {memory, bytes};
  ddtree_status s = ddtree_decoding_round_create(cpu, shape, where, &round, NULL);
  if (s.code == DDTREE_ERRC_OK) {
    s = ddtree_decoding_round_draft(&round, &batch, &draft, root, NULL, NULL);
  }
  if (s.code == DDTREE_ERRC_OK) {
    s = ddtree_decoding_round_accept(&round, &batch, &target, NULL, NULL);
  }
  if (s.code == DDTREE_ERRC_OK) {
    s = ddtree_decoding_round_commit(&round, &batch, NULL, lengths, NULL);
  }
  return s.code == DDTREE_ERRC_OK && *round.accepted_.num_accepted == 1 &&
         *round.accepted_.bonus == 3 && cache_len == 7;
}

int main(void) {
  ddtree_context const cpu = ddtree_context_cpu(1);
  ddtree_round_shape shape = ddtree_round_shape_default();
  shape.vocab = 4;
  shape.depth = 1;
  shape.top_k = 2;
  shape.budget = 2;
  size_t const bytes = ddtree_decoding_round_bytes(&cpu, &shape);
  void* const memory = malloc(bytes);
  int const good = ddtree_version() == DDTREE_VERSION && decode(memory, bytes, &cpu, &shape);
  free(memory);
  return good ? 0 : 1;
}
