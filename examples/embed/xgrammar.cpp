// SPDX-License-Identifier: Apache-2.0
// A grammar over a draft tree; docs/embed/xgrammar.md says where the calls go. The copies to the
// host and back are the engine's; on the CPU, as here, there is nothing to copy.
#include "ddtree/formats/xgrammar.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

namespace {

namespace xgrammar = ddtree::formats::xgrammar;

// After the tree is built, while the target runs. `arrays` is int64 [3, batch, width].
ddtree::status begin_grammar(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                             std::int64_t* arrays) {
  return xgrammar::write_traversal(round.ctx, round.shape, batch, round.tree, arrays);
}

// In place of xgrammar's traversal with a matcher: a grammar that forbids one token everywhere.
void fill_bitmask(std::int64_t const* next_token, std::int64_t const* next_sibling,
                  std::int64_t node, std::uint32_t forbidden, std::uint32_t* bitmask) {
  for (; node != -1; node = next_sibling[node]) {
    bitmask[node] = ~(1u << forbidden);
    fill_bitmask(next_token, next_sibling, next_token[node], forbidden, bitmask);
  }
}

// With the filled bitmask, uint32 [batch, width, ceil(vocab / 32)], back on the device.
ddtree::status accept_with_grammar(ddtree::decoding_round const& round,
                                   ddtree::batch_view const& batch,
                                   ddtree::logits_view const& target,
                                   std::uint32_t const* bitmask) {
  ddtree::accept_options options = round.options.accept;
  options.token_bitmask.data = bitmask;
  return ddtree::accept_greedy(round.ctx, round.shape, batch, round.tree, target, round.accepted_,
                               round.scratch, options);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::size_t n = tiny_round::rows;
  std::vector<std::int64_t> arrays(
      static_cast<std::size_t>(xgrammar::traversal_bytes(tiny_round::shape)) / 8);
  std::vector<std::uint32_t> bitmask(n, ~0u);
  auto s = tiny.draft();
  if (s) s = begin_grammar(tiny.round, tiny.batch, arrays.data());
  if (!s) return report(s, false);
  fill_bitmask(arrays.data(), arrays.data() + n, 0, 4, bitmask.data());

  // The target would say 2, 4, 5; where it may not say 4, 3 is its next best.
  constexpr std::int32_t next[] = {2, 3, 4, 5, 5, 0, 7, 0};
  std::vector<float> logits(n * 8, 0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    logits[i * 8 + std::size_t(next[arrays[2 * n + i]])] = 9;
    logits[i * 8 + 3] += 1;
  }
  s = accept_with_grammar(tiny.round, tiny.batch, {logits.data(), ddtree::dtype::f32},
                          bitmask.data());
  std::printf("accepted:");
  for (int u = 0; s && u <= tiny.round.accepted_.num_accepted[0]; ++u) {
    std::printf(" %d", tiny.round.accepted_.token[u]);
  }
  std::printf("\n");
  return report(s, tiny.round.accepted_.token[0] == 2 && tiny.round.accepted_.token[1] == 3);
}
