// SPDX-License-Identifier: Apache-2.0
// The smallest complete round: one request on the CPU, with made-up logits.
#include "ddtree/ddtree.hpp"

#include <cstdio>
#include <vector>

constexpr ddtree::round_shape shape{.vocab = 8, .depth = 3, .top_k = 2, .budget = 10};
constexpr char const* word[] = {"the", "cat", "dog", "sat", "ran", "on", "mat", "."};

// The drafter's part, one forward pass: for each of the next three positions, logits of each word.
std::vector<float> const draft_logits = {
    0, 3, 2.5, 0, 0,   0, 0, 0,  // cat, perhaps dog
    0, 0, 0,   3, 2.5, 0, 0, 0,  // sat, perhaps ran
    0, 0, 0,   0, 0,   5, 0, 2,  // on
};

// The target's part, one forward pass over the tree: a row of logits per node. Here it only looks
// at the node's own token: after "the" comes "dog", after "dog" "ran", then "on" and "the".
std::vector<float> target_logits(ddtree::draft_tree const& tree) {
  constexpr int next[] = {2, 3, 4, 5, 5, 0, 7, 0};
  std::vector<float> logits(static_cast<std::size_t>(shape.width() * shape.vocab), 0.0f);
  for (ddtree::index_t i = 0; i < shape.width(); ++i) {
    logits[static_cast<std::size_t>(i * shape.vocab + next[tree.token[i]])] = 9;
  }
  return logits;
}

void print_tree(ddtree::candidates const& candidates, ddtree::draft_tree const& tree) {
  for (int d = 0; d < shape.depth; ++d) {
    std::printf("candidates of position %d:", d + 1);
    for (int i = d * shape.top_k; i < (d + 1) * shape.top_k; ++i) {
      std::printf("  %s %.2f", word[candidates.token[i]], double(candidates.log_prob[i]));
    }
    std::puts("");
  }
  std::puts("node  parent  log weight  token");
  for (int i = 0; i < tree.num_nodes[0]; ++i) {
    std::printf("%4d  %6d  %10.2f  %*s%s\n", i, tree.parent[i], double(tree.log_weight[i]),
                2 * tree.depth[i], "", word[tree.token[i]]);
  }
}

int main() {
  auto const ctx = ddtree::context::cpu();
  std::vector<unsigned char> memory(ddtree::decoding_round::bytes(ctx, shape));
  ddtree::decoding_round round;
  auto s = ddtree::decoding_round::create(ctx, shape, {memory.data(), memory.size()}, &round);
  if (s) round.accepted_.bonus[0] = 0;  // "the", sampled after prefill, is the first root

  // What an engine has: the length of the request's cache, and the inputs of its target.
  int cache_len[1] = {10};
  int tokens[shape.width()], positions[shape.width()], slots[shape.width()];
  unsigned mask_bits[shape.width() * shape.words()];
  ddtree::batch_view const batch{cache_len};
  ddtree::mask_view mask;
  mask.data = mask_bits;

  if (s) {
    s = round.draft(batch, {draft_logits.data(), ddtree::dtype::f32}, round.accepted_.bonus,
                    {tokens, positions, slots}, mask);
  }
  if (s) {
    print_tree(round.candidates_, round.tree);
    auto const logits = target_logits(round.tree);  // of these tokens, under this mask
    s = round.accept(batch, {logits.data(), ddtree::dtype::f32});
  }
  if (s) s = round.commit(batch, {}, cache_len);  // no KV cache here: only the length advances
  if (!s) {
    std::fprintf(stderr, "%s\n", s.message);
    return 1;
  }

  std::printf("accepted:");
  for (int r = 1; r <= round.accepted_.num_accepted[0]; ++r) {
    std::printf(" %s (node %d)", word[round.accepted_.token[r - 1]], round.accepted_.path[r]);
  }
  std::printf("\nnext root: %s\ncache length: %d\n", word[round.accepted_.bonus[0]], cache_len[0]);
}
