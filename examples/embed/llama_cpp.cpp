// SPDX-License-Identifier: Apache-2.0
// The calls of one round around llama_decode; docs/embed/llama_cpp.md says where they go.
#include "ddtree/formats/llama_cpp.hpp"

#include "ddtree/ddtree.hpp"

#include "tiny_round.hpp"

// What this example needs of llama.h: its batch, and names for the calls on the cache, which print.
struct llama_batch {
  std::int32_t n_tokens;
  std::int32_t* token;
  float* embd;
  std::int32_t* pos;
  std::int32_t* n_seq_id;
  std::int32_t** seq_id;
  std::int8_t* logits;
};
static void llama_memory_seq_cp(int from, int to, int, int) {
  std::printf("seq_cp %d to %d\n", from, to);
}
static void llama_memory_seq_rm(int seq, int begin, int) {
  std::printf("seq_rm %d from %d\n", seq, begin);
}

namespace {

namespace llama_cpp = ddtree::formats::llama_cpp;

constexpr llama_cpp::sequence_ids ids{16};  // n_seq_max / parallel requests

// A round's rows, all in host memory, sized once.
struct rows {
  explicit rows(ddtree::round_shape const& s)
      : n(static_cast<std::size_t>(s.batch * s.width())),
        row_offset(static_cast<std::size_t>(s.batch) + 1),
        token(n),
        pos(n),
        n_seq_id(n),
        seq_id(n),
        logits(n),
        list(static_cast<std::size_t>(llama_cpp::seq_id_capacity(s, ids))),
        num_nodes(static_cast<std::size_t>(s.batch)),
        num_sequences(num_nodes.size()) {}

  llama_cpp::batch_arrays view() {
    return {row_offset.data(), token.data(), pos.data(),       n_seq_id.data(),     seq_id.data(),
            logits.data(),     list.data(),  num_nodes.data(), num_sequences.data()};
  }

  std::size_t n;
  std::vector<std::int32_t> row_offset, token, pos, n_seq_id;
  std::vector<std::int32_t*> seq_id;
  std::vector<std::int8_t> logits;
  std::vector<std::int32_t> list, num_nodes, num_sequences;
};

// Before llama_decode: the batch, and the context for every sequence that it uses.
ddtree::status make_batch(ddtree::decoding_round& round, ddtree::batch_view const& batch, rows& r,
                          llama_batch* out) {
  auto const s = llama_cpp::write_batch(round.ctx, round.shape, batch, round.tree, ids, r.view());
  if (!s) return s;
  for (int b = 0; b < round.shape.batch; ++b) {
    int const main = b * ids.per_request;
    for (int k = 1; k < r.num_sequences[std::size_t(b)]; ++k) {
      llama_memory_seq_cp(main, main + k, -1, -1);
    }
  }
  *out = {r.row_offset.back(), r.token.data(),  nullptr,        r.pos.data(),
          r.n_seq_id.data(),   r.seq_id.data(), r.logits.data()};
  round.tree.num_nodes = r.num_nodes.data();  // a tree with too many leaves was cut
  return {};
}

// After it: acceptance on the logits of the rows, then what remains of the sequences.
ddtree::status commit(ddtree::decoding_round const& round, ddtree::batch_view const& batch, rows& r,
                      float const* llama_logits, std::int32_t* cache_len) {
  ddtree::logits_view logits{llama_logits, ddtree::dtype::f32};
  logits.row_offset = r.row_offset.data();
  if (auto s = round.accept(batch, logits); !s) return s;
  std::vector<std::int32_t> winner(r.num_nodes.size()), end(r.num_nodes.size());
  auto const s = llama_cpp::write_commit(round.ctx, round.shape, batch, round.accepted_, ids,
                                         r.view(), {winner.data(), end.data()});
  if (!s) return s;
  for (std::size_t b = 0; b < winner.size(); ++b) {
    int const main = static_cast<int>(b) * ids.per_request;
    for (int seq = main; seq < main + r.num_sequences[b]; ++seq) {
      if (seq != winner[b]) llama_memory_seq_rm(seq, 0, -1);
    }
    llama_memory_seq_rm(winner[b], end[b], -1);
    if (winner[b] == main) continue;
    llama_memory_seq_cp(winner[b], main, -1, -1);
    llama_memory_seq_rm(winner[b], 0, -1);
  }
  return round.commit(batch, {}, cache_len);
}

}  // namespace

int main() {
  tiny_round tiny;
  rows r(tiny_round::shape);
  llama_batch batch{};
  auto s = tiny.draft();
  if (s) s = make_batch(tiny.round, tiny.batch, r, &batch);
  // llama_decode(ctx, batch): the target only looks at a row's own token here.
  constexpr std::int32_t next[] = {2, 3, 4, 5, 5, 0, 7, 0};
  std::vector<float> logits(r.n * 8, 0.0f);
  for (std::size_t row = 0; s && row < std::size_t(batch.n_tokens); ++row) {
    logits[row * 8 + std::size_t(next[batch.token[row]])] = 9;
  }
  if (s) s = commit(tiny.round, tiny.batch, r, logits.data(), tiny.cache_len);
  if (!s) return report(s, false);
  std::printf("%d rows, %d sequences; the cache has %d tokens now\n", batch.n_tokens,
              r.num_sequences[0], tiny.cache_len[0]);
  return report(s, tiny.cache_len[0] == 14 && tiny.round.accepted_.bonus[0] == 0);
}
