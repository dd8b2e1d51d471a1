// SPDX-License-Identifier: Apache-2.0
// The calls of one round in SGLang's worker; docs/embed/sglang.md says where they go.
#include "ddtree/formats/sglang.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

namespace {

namespace sglang = ddtree::formats::sglang;

// The worker's tensors, as SGLang allocates them: data pointers, all of them in device memory.
struct worker_tensors {
  std::int64_t* draft_token;            // [bs * n]
  std::int64_t* positions;              // [bs * n]
  std::int64_t* retrieve_index;         // [bs, n]
  std::int64_t* retrieve_next_token;    // [bs, n]
  std::int64_t* retrieve_next_sibling;  // [bs, n]
  std::uint8_t* custom_mask;            // bool, from the attention backend
  ddtree::index_t custom_mask_bytes;
  std::int64_t* mask_indptr;    // [bs + 1]
  std::int64_t* out_cache_loc;  // [bs * n]
  std::int32_t* predict;        // [bs * n]
  std::int32_t* accept_index;   // [bs, spec_steps + 1]
  std::int32_t* accept_num;     // [bs]
  std::int64_t* tgt_cache_loc;  // [bs * (spec_steps + 1)]
  std::int64_t* src_cache_loc;
};

// In place of build_tree_kernel_efficient, on the stream of the draft.
ddtree::status build_verify_input(ddtree::decoding_round const& round,
                                  ddtree::batch_view const& batch, worker_tensors const& t) {
  sglang::verify_buffers out;
  out.draft_token = t.draft_token;
  out.positions = t.positions;
  out.retrieve_index = t.retrieve_index;
  out.retrieve_next_token = t.retrieve_next_token;
  out.retrieve_next_sibling = t.retrieve_next_sibling;
  out.custom_mask = t.custom_mask;
  out.custom_mask_bytes = t.custom_mask_bytes;
  out.mode = sglang::tree_mask::full;
  out.mask_indptr = t.mask_indptr;
  return sglang::write_verify_buffers(round.ctx, round.shape, batch, round.tree, {}, out);
}

// In place of verify_tree_greedy, once the target's logits (or its tokens, as here) are there; then
// token_to_kv_pool.move_kv_cache(tgt_cache_loc, src_cache_loc).
ddtree::status verify(ddtree::decoding_round const& round, ddtree::batch_view const& batch,
                      ddtree::ids_in target_predict, worker_tensors const& t) {
  if (auto s = round.accept_tokens(batch, target_predict); !s) return s;
  sglang::accept_buffers out;
  out.predicts = t.predict;
  out.accept_index = t.accept_index;
  out.accept_token_num = t.accept_num;
  out.tgt_cache_loc = t.tgt_cache_loc;
  out.src_cache_loc = t.src_cache_loc;
  return sglang::write_accept_buffers(round.ctx, round.shape, batch, round.accepted_,
                                      t.out_cache_loc, out);
}

}  // namespace

int main() {
  tiny_round tiny;
  constexpr std::size_t n = tiny_round::rows;
  constexpr std::size_t steps = tiny_round::shape.depth + 1;
  std::vector<std::int64_t> draft_token(n), positions(n), index(n), next(n), sibling(n), indptr(2);
  std::vector<std::int64_t> slots(n), tgt(steps), src(steps);
  std::vector<std::int32_t> predict(n), accept_index(steps), accept_num(1);
  std::vector<std::uint8_t> mask(n * (10 + n));
  for (std::size_t i = 0; i < n; ++i) slots[i] = static_cast<std::int64_t>(100 + i);
  worker_tensors const t{draft_token.data(),
                         positions.data(),
                         index.data(),
                         next.data(),
                         sibling.data(),
                         mask.data(),
                         ddtree::index_t(n * (10 + n)),
                         indptr.data(),
                         slots.data(),
                         predict.data(),
                         accept_index.data(),
                         accept_num.data(),
                         tgt.data(),
                         src.data()};

  auto s = tiny.draft();
  if (s) s = build_verify_input(tiny.round, tiny.batch, t);
  std::vector<std::int32_t> target;
  if (s) target = tiny.target_tokens();
  if (s) s = verify(tiny.round, tiny.batch, target.data(), t);

  // SGLang's own reading: the tokens after the accepted rows.
  std::vector<std::int32_t> output;
  for (std::size_t r = 0; s && r < steps && accept_index[r] >= 0; ++r) {
    output.push_back(predict[static_cast<std::size_t>(accept_index[r])]);
    std::printf("row %d, then token %d; slot %d to %d\n", int(accept_index[r]), int(output.back()),
                int(src[r]), int(tgt[r]));
  }
  return report(s, output == std::vector<std::int32_t>{2, 4, 5, 0});
}
