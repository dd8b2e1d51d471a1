// SPDX-License-Identifier: Apache-2.0
/// @file views.hpp
/// The shapes and views that every call shares. They own nothing and describe the caller's memory.
#ifndef DDTREE_VIEWS_HPP
#define DDTREE_VIEWS_HPP

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {

/// Sizes, strides, offsets: always 64 bits.
using index_t = std::int64_t;
/// A token id in [0, vocab), or a documented -1.
using token_t = std::int32_t;
/// A node's row in its request's tree, in [0, width), or a documented -1.
using node_t = std::int32_t;

/// Element types of the buffers a caller hands over.
enum class dtype : std::int32_t { u8 = 0, i32 = 1, i64 = 2, f32 = 3, f16 = 4, bf16 = 5 };

/// Limits; beyond them a call returns `invalid_argument`.
inline constexpr index_t max_batch = 65535;
inline constexpr std::int32_t max_depth = 31;
inline constexpr std::int32_t max_top_k = 1024;
inline constexpr std::int32_t max_budget = 2047;
inline constexpr index_t max_vocab = index_t{1} << 22;

/// The extents of a round. Host values: they fix the launch, so that a captured graph keeps them.
/// Every call checks all of them, also those that it does not use.
struct round_shape {
  /// Rows of requests in the call, 0..65,535. Dead rows are marked in `batch_view::request`.
  index_t batch = 1;
  /// The target's vocabulary, 1..4,194,304: every token id written lies in [0, vocab).
  index_t vocab = 0;
  /// L, drafted positions per round, 0..31 (block size - 1).
  std::int32_t depth = 15;
  /// Candidates kept per position, 1..1024. May exceed the vocabulary.
  std::int32_t top_k = 64;
  /// Drafted nodes at most, without the root, 0..2047.
  std::int32_t budget = 64;
  /// Rows of the per-request arrays (the engine's request pool); 0 = batch.
  index_t requests = 0;

  /// Verify rows per request: the root and the drafted nodes.
  constexpr index_t width() const noexcept { return index_t{budget} + 1; }
  /// 32-bit words of a row of ancestor bits.
  constexpr index_t words() const noexcept { return (width() + 31) / 32; }
  /// Rows of the per-request arrays.
  constexpr index_t request_rows() const noexcept { return requests == 0 ? batch : requests; }
};

/// A piece of the caller's memory. Any alignment; the contents are arbitrary at entry and nothing
/// in it survives the call. It serves one stream at a time.
struct workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Integers to read, int32 or int64, [n] or [n, m]. Null data = the parameter is off.
struct ids_in {
  void const* data = nullptr;
  dtype type = dtype::i32;
  /// Elements from one row of [n, m] to the next; 0 = dense. For [n] it is not used.
  index_t stride = 0;

  constexpr ids_in() noexcept = default;
  constexpr ids_in(std::nullptr_t) noexcept {}
  constexpr ids_in(std::int32_t const* ids) noexcept : data(ids), type(dtype::i32) {}
  constexpr ids_in(std::int64_t const* ids) noexcept : data(ids), type(dtype::i64) {}
  constexpr ids_in(void const* ids, dtype t, index_t row_stride = 0) noexcept
      : data(ids), type(t), stride(row_stride) {}
};

/// Integers to write, int32 or int64, [n] or [n, m]. Null data = not wanted. Of a value that int32
/// cannot hold, an int32 array gets the low 32 bits.
struct ids_out {
  void* data = nullptr;
  dtype type = dtype::i32;
  /// Elements from one row of [n, m] to the next; 0 = dense. For [n] it is not used.
  index_t stride = 0;

  constexpr ids_out() noexcept = default;
  constexpr ids_out(std::nullptr_t) noexcept {}
  constexpr ids_out(std::int32_t* ids) noexcept : data(ids), type(dtype::i32) {}
  constexpr ids_out(std::int64_t* ids) noexcept : data(ids), type(dtype::i64) {}
  constexpr ids_out(void* ids, dtype t, index_t row_stride = 0) noexcept
      : data(ids), type(t), stride(row_stride) {}

  constexpr operator ids_in() const noexcept { return {data, type, stride}; }
};

/// Which request stands in each row of the batch, and how long its cache is. Device values: they
/// may change between replays of a captured graph.
///
/// A row is *inactive* where `request[b]` is outside [0, requests) (write -1), or where `cache_len`
/// is bound and its entry is outside [0, 2^40]. Nothing of an inactive request is read but these
/// two entries; no cache, state or table is touched; its tree is the root alone with token 0 and
/// its `num_accepted` is -1.
struct batch_view {
  /// [requests], S: tokens committed to the KV cache, before the root. Calls that say so need it.
  ids_in cache_len = {};
  /// [batch], the row of each request in the per-request arrays. Null = b.
  ids_in request = {};
};

/// Logits to read. Row (b, i) starts at ((row_offset ? row_offset[b] : b * batch_stride) + i) *
/// row_stride elements. Any alignment that the element type allows. How many rows there are is not
/// said, so row_offset is trusted (where the request is active; otherwise it is not read).
struct logits_view {
  void const* data = nullptr;
  /// f32, f16 or bf16.
  dtype type = dtype::f32;
  /// Columns of a row; 0 = shape.vocab. Columns from shape.vocab on (padding) are never read.
  index_t vocab = 0;
  /// Elements from row to row; 0 = vocab.
  index_t row_stride = 0;
  /// Rows from request to request; 0 = dense (depth for draft logits, width for target logits).
  index_t batch_stride = 0;
  /// [batch], first row of each request in a packed buffer; null = b * batch_stride.
  ids_in row_offset = {};
};

/// Byte rows to copy, addressed as in `logits_view`; for calls that move hidden states.
struct rows_view {
  void* data = nullptr;
  /// Bytes of a row.
  index_t row_bytes = 0;
  /// Bytes from row to row; 0 = row_bytes.
  index_t row_stride_bytes = 0;
  /// Rows from request to request; 0 = width.
  index_t batch_stride = 0;
  /// [batch], first row of each request in a packed buffer; null = b * batch_stride.
  ids_in row_offset = {};
};

/// A block table or slot list: where slot numbers of a request stand in the KV tensors.
///
/// Slot s of request r is row s % page_size of page ((entry & entry_mask) * entry_scale), with
/// entry = entries[r, s / page_size]. Without entries the cache is contiguous: page r, row s.
struct kv_table {
  /// [requests, columns], int32 or int64; null = contiguous, page_size rows per request. Written
  /// only by `compact_kv` where `index_only` is set. A stride is at least `columns`.
  ids_out entries = {};
  /// Pages a request may have: columns of a row of entries that may be read.
  index_t columns = 0;
  /// Slots per page.
  index_t page_size = 1;
  /// Bits of an entry that name the page (others are the engine's marks). An entry that is outside
  /// [0, 2^40] after masking names none.
  std::int64_t entry_mask = -1;
  /// Pages per entry unit, 1..1,048,576.
  std::int64_t entry_scale = 1;
  /// `compact_kv` permutes the entries instead of moving rows; page_size must be 1.
  bool index_only = false;
};

/// A range of a rank's columns: columns [local_begin, local_begin + count) of its logits are the
/// ids [global_begin, global_begin + count).
struct vocab_range {
  index_t local_begin = 0;
  index_t count = 0;
  index_t global_begin = 0;
};

/// The columns that a rank of a tensor-parallel group holds: up to two ranges (base vocabulary and
/// added tokens), count 0 = unused. Columns outside them are never read. Over all ranks every id
/// must occur once.
struct vocab_ranges {
  vocab_range range[2] = {};
};

/// One rank's contribution to a merge, to be gathered by the engine.
struct shard_out {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// The gathered contributions of all ranks, rank after rank.
struct shard_in {
  void const* data = nullptr;
  index_t ranks = 1;
  /// Bytes from one rank's contribution to the next; 0 = as many as one rank wrote.
  index_t rank_stride_bytes = 0;
};

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_VIEWS_HPP
