// A whole round of one request, as small as it can be.
#include "ddtree/ddtree.hpp"

#include <cstddef>
#include <cstdint>

// The drafter finds token 2 most likely and the target agrees; after it the target says 3.
inline bool decodes_a_round() {
  auto const cpu = ddtree::context::cpu(2);
  ddtree::round_shape const shape{.batch = 1, .vocab = 4, .depth = 1, .top_k = 2, .budget = 2};
  static std::byte memory[1 << 16];
  if (ddtree::decoding_round::bytes(cpu, shape) > sizeof memory) return false;
  ddtree::decoding_round round;
  auto s = ddtree::decoding_round::create(cpu, shape, {memory, sizeof memory}, &round);

  float const draft[4] = {0, 1, 3, 2};
  float const target[3][4] = {{0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}};
  std::int32_t const root = 1;
  std::int32_t cache_len = 5;
  ddtree::batch_view const batch{&cache_len};
  if (s) s = round.draft(batch, {draft}, &root, {}, {});
  if (s) s = round.accept(batch, ddtree::logits_view{target});
  if (s) s = round.commit(batch, {}, &cache_len);
  return s && *round.accepted_.num_accepted == 1 && *round.accepted_.bonus == 3 && cache_len == 7;
}
