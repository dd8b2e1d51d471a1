// SPDX-License-Identifier: Apache-2.0
/// @file llama_cpp.hpp
/// llama.cpp's batches: a tree as sequences that share cells, and the sequence that remains.
///
/// Every leaf of a tree is a sequence, a node belongs to the sequences of the leaves below it, and
/// the cache shows a query the cells that share its sequence at no later position: exactly the
/// node's ancestors. Nothing is copied in the cache, neither before nor after.
///
/// llama_batch and the cache's calls are of the host, so these calls take CPU contexts alone and a
/// tree in host memory: docs/embed/llama_cpp.md says how it gets there. They do their work at once.
#ifndef DDTREE_FORMATS_LLAMA_CPP_HPP
#define DDTREE_FORMATS_LLAMA_CPP_HPP

#include "ddtree/context.hpp"
#include "ddtree/export.h"
#include "ddtree/mask.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {
namespace llama_cpp {

/// LLAMA_MAX_SEQ: n_seq_max is at most this.
inline constexpr std::int32_t max_sequences = 256;

/// Sequences of each request. Request r has the ids r * per_request + 0, 1, ...; the first is its
/// main sequence, which holds the context between rounds.
struct sequence_ids {
  /// 1..256. A tree with more leaves is cut to its longest best-first prefix that has no more.
  std::int32_t per_request = 1;
};

/// Entries of batch_arrays::seq_id that always suffice.
constexpr index_t seq_id_capacity(round_shape const& shape, sequence_ids ids) noexcept {
  return shape.batch * ids.per_request * (index_t{shape.depth} + 1);
}

/// The members of a llama_batch, rows of all requests without a gap; [rows] has room for batch *
/// width. None is null.
struct batch_arrays {
  /// [batch + 1], first row of each request; the last is n_tokens. The row_offset of a
  /// `logits_view` over llama_get_logits.
  std::int32_t* row_offset = nullptr;
  /// [rows].
  std::int32_t* token = nullptr;
  /// [rows], S + depth.
  std::int32_t* pos = nullptr;
  /// [rows], sequences of each row.
  std::int32_t* n_seq_id = nullptr;
  /// [rows], where those of each row stand in seq_id_list, ascending.
  std::int32_t** seq_id = nullptr;
  /// [rows], 1: every row's logits are wanted.
  std::int8_t* logits = nullptr;
  /// [seq_id_capacity], sequences row after row.
  std::int32_t* seq_id_list = nullptr;
  /// [batch], nodes of each tree that are in the batch, 0 for an inactive request. Acceptance must
  /// know: give it the tree with this as its num_nodes.
  std::int32_t* num_nodes = nullptr;
  /// [batch], sequences that each request uses.
  std::int32_t* num_sequences = nullptr;
};

/// Writes the batch of a verify step. Inactive requests have no row.
///
/// Before llama_decode the context must belong to every sequence: llama_memory_seq_cp from the main
/// one to the others (metadata, with a unified cache).
///
/// @param shape  batch, depth, budget, requests are used.
/// @param batch  cache_len is needed.
/// @param tree   token, parent, num_nodes are used. A node whose parent is no row before it, or
/// that
///               is deeper than shape.depth, ends its tree.
/// @return `invalid_argument`; `unsupported` where the context is not the CPU's.
DDTREE_API status write_batch(context const& ctx, round_shape const& shape, batch_view const& batch,
                              draft_tree const& tree, sequence_ids ids,
                              batch_arrays const& out) noexcept;

/// What remains of each request's sequences.
struct commit_arrays {
  /// [batch], sequence that holds the accepted path; -1 = inactive. The main one where it does.
  std::int32_t* winner = nullptr;
  /// [batch], first position that is not committed, S + num_accepted + 1; -1 = inactive.
  std::int32_t* end = nullptr;
};

/// Says what to commit. Then per request: llama_memory_seq_rm of every sequence but the winner,
/// seq_rm of the winner from `end` on, and, where the winner is not the main sequence, seq_cp to
/// the main one and seq_rm of the winner.
///
/// @param path  path and num_accepted are used. A path whose last node was not in the batch commits
///              the root alone.
/// @param in    as write_batch left it: row_offset, seq_id, num_nodes are used.
/// @return as write_batch.
DDTREE_API status write_commit(context const& ctx, round_shape const& shape,
                               batch_view const& batch, accepted const& path, sequence_ids ids,
                               batch_arrays const& in, commit_arrays const& out) noexcept;

/// Columns of ggml's attention mask for this many cells: a multiple of 256 with flash attention,
/// otherwise of 32.
constexpr index_t padded_cells(index_t cells, bool flash_attention) noexcept {
  index_t const unit = flash_attention ? 256 : 32;
  return (cells + unit - 1) / unit * unit;
}

/// ggml's own attention mask, for graphs that hold their cache in order (cell = slot number): rows
/// of `cells` columns, 0 or -inf, f16 with flash attention and f32 without. `write_mask` writes it.
///
/// Versions that pad the rows to 32 or 64 keep what they have in the rows behind `width`; or choose
/// width as the multiple, padding rows of a tree being sound.
inline mask_view make_kq_mask(void* data, bool flash_attention, index_t cells) noexcept {
  mask_view mask;
  mask.data = data;
  mask.kind = mask_kind::additive;
  mask.type = flash_attention ? dtype::f16 : dtype::f32;
  mask.region = mask_columns::full;
  mask.columns = cells;
  return mask;
}

}  // namespace llama_cpp
}  // namespace formats
}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_FORMATS_LLAMA_CPP_HPP
