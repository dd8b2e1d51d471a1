// SPDX-License-Identifier: Apache-2.0
// Tree decoding over vocabulary shards: every rank comes to the same tree and the same tokens, and
// they are those of one rank that has the whole vocabulary.
//
//   ddtree_tensor_parallel [RANKS [ROUNDS]]
#include "group.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

bool are_equal(group const& ranks) {
  bool equal = true;
  for (auto const& r : ranks) {
    equal = equal && r->trees == ranks[0]->trees && r->blocks == ranks[0]->blocks &&
            r->tokens == ranks[0]->tokens && r->cache_is_right;
  }
  return equal;
}

void print(group const& ranks, int rounds) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    rank const& r = *ranks[i];
    std::printf("rank %zu: trees %016" PRIx64 ", accepted blocks %016" PRIx64 ", KV rows %s\n", i,
                r.trees, r.blocks, r.cache_is_right ? "in place" : "WRONG");
  }
  rank const& first = *ranks[0];
  auto const others = ranks.size() - 1;
  std::printf("%" PRId64 " drafted tokens accepted in %d rounds\n", first.accepted, rounds);
  std::printf("a rank receives %zu bytes of drafts and %zu of targets a round\n",
              others * first.draft.sent.bytes(), others * first.target.sent.bytes());
}

int play(int ranks, int rounds) {
  bool const apart = can_play_apart(ranks);
  std::printf("%d ranks %s\n", ranks,
              apart              ? "on GPUs of their own, NCCL between them"
              : count_gpus() > 0 ? "in turn on one GPU"
                                 : "in turn on the CPU");
  group const all = apart ? play_apart(ranks, rounds) : play_in_turn(ranks, rounds);
  print(all, rounds);
  group const alone = play_in_turn(1, rounds);
  bool const same_tokens = alone[0]->tokens == all[0]->tokens;
  bool const equal = are_equal(all);
  std::printf("the tokens of one rank with the whole vocabulary: %s\n", same_tokens ? "yes" : "NO");
  std::printf("equal on all ranks: %s\n", equal ? "yes" : "NO");
  return equal && same_tokens ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int const ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  int const rounds = argc > 2 ? std::atoi(argv[2]) : 50;
  if (ranks < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: %s [RANKS [ROUNDS]]\n", argv[0]);
    return 2;
  }
  try {
    return play(ranks, rounds);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
