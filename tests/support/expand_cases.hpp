// SPDX-License-Identifier: Apache-2.0
// One call of expand, or of expand_shard on every rank and expand_merge: its rows as bits, how they
// stand in memory, and the comparison with the oracle on every variant.
#pragma once

#include "ddtree/expand.hpp"

#include "oracle/expand.hpp"
#include "support/buffer.hpp"
#include "support/catch.hpp"
#include "support/contexts.hpp"
#include "support/ids.hpp"
#include "support/trees.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ddtree_test {

using ddtree::dtype;
using ddtree::index_t;

inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float decode(dtype type, std::uint32_t bits) {
  if (type == dtype::f16) return oracle::expand::decode_f16(bits);
  return type == dtype::bf16 ? oracle::expand::decode_bf16(bits) : oracle::expand::decode_f32(bits);
}

/// A float as an element near it (towards zero, but for f16, which is exact or rounded).
inline std::uint32_t encode(dtype type, float x) {
  if (type == dtype::f32) return bits_of(x);
  if (type == dtype::bf16) return bits_of(x) >> 16 | (std::isnan(x) ? 0x40u : 0u);
  std::uint32_t const sign = std::signbit(x) ? 0x8000u : 0u;
  if (std::isnan(x)) return 0x7e00u;
  if (std::fabs(x) > 65504.0f) return sign | (std::isinf(x) ? 0x7c00u : 0x7bffu);
  int const exponent = std::max(x == 0.0f ? -14 : std::ilogb(x), -14);
  auto const fraction =
      static_cast<std::uint32_t>(std::lrint(std::ldexp(std::fabs(x), 10 - exponent)));
  return sign | ((static_cast<std::uint32_t>(exponent + 14) << 10) + fraction);
}

struct expand_case {
  ddtree::round_shape shape;
  dtype type = dtype::f32;
  std::vector<std::vector<std::uint32_t>> rows;  // [batch * depth][draft ids], elements as bits
  index_t columns = 0;                           // draft.vocab; 0 = leave it to the library
  index_t row_stride = 0;
  index_t batch_stride = 0;
  index_t shift = 0;  // elements between the memory's begin and row 0
  dtype id_type = dtype::i32;
  std::optional<std::vector<std::int64_t>> row_offset;
  std::optional<std::vector<std::int64_t>> request;
  std::optional<std::vector<std::int64_t>> cache_len;
  std::optional<std::vector<std::int64_t>> vocab_map;
  float temperature = 1.0f;
  std::vector<float> temperature_by_request;  // empty = not bound
  std::vector<float> bias;                    // empty = not bound

  std::size_t row_count() const { return sized(shape.batch * shape.depth); }

  void set_row(index_t row, std::vector<float> const& x) {
    rows.resize(row_count());
    auto& bits = rows[sized(row)];
    bits.clear();
    for (float const value : x) bits.push_back(encode(type, value));
  }
  std::vector<float> row(index_t i) const {
    std::vector<float> x;
    for (std::uint32_t const bits : rows[sized(i)]) x.push_back(decode(type, bits));
    return x;
  }

  /// The row of the per-request arrays, -1 = inactive.
  std::int64_t request_of(index_t b) const {
    std::int64_t const r = request ? (*request)[sized(b)] : b;
    if (r < 0 || r >= shape.request_rows()) return -1;
    if (cache_len && ((*cache_len)[sized(r)] < 0 || (*cache_len)[sized(r)] > (1ll << 40)))
      return -1;
    return r;
  }
  index_t first_row_of(index_t b) const {
    if (row_offset) return (*row_offset)[sized(b)];
    return b * (batch_stride != 0 ? batch_stride : shape.depth);
  }
};

/// Rows of N(0, 2.5).
inline void set_random_rows(expand_case& c, std::uint32_t seed, index_t columns = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  for (index_t row = 0; row < c.shape.batch * c.shape.depth; ++row) {
    std::vector<float> x(sized(columns != 0 ? columns : c.shape.vocab));
    for (float& value : x) value = normal(engine);
    c.set_row(row, x);
  }
}

struct expand_result {
  std::vector<ddtree::token_t> token;
  std::vector<std::uint32_t> log_prob_bits;
  std::vector<std::uint32_t> flags;

  bool operator==(expand_result const&) const = default;
  float log_prob(std::size_t i) const {
    float x = 0.0f;
    std::memcpy(&x, &log_prob_bits[i], sizeof x);
    return x;
  }
};

/// Rows in memory, everything between and after them NaN or huge: a column that must not be read
/// shows in the flags or in the sum.
class logits_memory {
 public:
  logits_memory(ddtree::context const& ctx, dtype type, index_t elements)
      : type_(type),
        element_(type == dtype::f32 ? 4 : 2),
        host_(sized(elements) * element_),
        device_(ctx, host_.size()) {
    float const huge = type == dtype::f16 ? 65504.0f : oracle::expand::largest;
    float const traps[] = {std::numeric_limits<float>::quiet_NaN(), huge};
    for (index_t i = 0; i < elements; ++i) put(i, encode(type, traps[i % 2]));
  }

  void put(index_t at, std::uint32_t bits) {
    auto const half = static_cast<std::uint16_t>(bits);
    void const* const from = type_ == dtype::f32 ? static_cast<void const*>(&bits) : &half;
    std::memcpy(host_.data() + sized(at) * element_, from, element_);
  }
  /// Where an element stands for the call; after the last `put`.
  void const* bind(index_t at) {
    device_.assign(host_);
    return device_.data() + sized(at) * element_;
  }
  bool intact() const { return device_.intact() && device_.values() == host_; }

 private:
  dtype type_;
  std::size_t element_;
  std::vector<unsigned char> host_;
  buffer<unsigned char> device_;
};

/// The arrays of a case that are neither logits nor results.
struct expand_arguments {
  expand_arguments(ddtree::context const& ctx, expand_case const& c)
      : row_offset(ctx, c.id_type, c.row_offset),
        request(ctx, c.id_type, c.request),
        cache_len(ctx, c.id_type, c.cache_len),
        vocab_map(ctx, c.id_type, c.vocab_map),
        temperature(ctx, c.temperature_by_request),
        bias(ctx, c.bias) {
    batch.request = request.view();
    batch.cache_len = cache_len.view();
    options.temperature = c.temperature;
    if (temperature.size() != 0) options.temperature_by_request = temperature.data();
    options.vocab_map = vocab_map.view();
    if (c.vocab_map) options.draft_vocab = static_cast<index_t>(c.vocab_map->size());
    if (bias.size() != 0) options.bias = bias.data();
  }
  bool intact() const {
    return row_offset.intact() && request.intact() && cache_len.intact() && vocab_map.intact() &&
           temperature.intact() && bias.intact();
  }

  optional_ids row_offset;
  optional_ids request;
  optional_ids cache_len;
  optional_ids vocab_map;
  buffer<float> temperature;
  buffer<float> bias;
  ddtree::batch_view batch;
  ddtree::expand_options options;
};

inline expand_result take(candidate_buffers& out) {
  REQUIRE(out.intact());
  expand_result result{out.token.values(), {}, out.flags.values()};
  for (float const x : out.log_prob.values()) result.log_prob_bits.push_back(bits_of(x));
  return result;
}

/// Lays the ids of `ranges` of all active rows out, in columns [local_begin, local_begin + count).
inline logits_memory lay_out(ddtree::context const& ctx, expand_case const& c, index_t row_stride,
                             ddtree::vocab_ranges const& ranges) {
  index_t rows = 0;
  for (index_t b = 0; b < c.shape.batch; ++b) {
    if (c.request_of(b) >= 0) rows = std::max(rows, c.first_row_of(b) + c.shape.depth);
  }
  logits_memory memory(ctx, c.type, c.shift + rows * row_stride + 3);
  for (index_t row = 0; row < c.shape.batch * c.shape.depth; ++row) {
    index_t const b = row / c.shape.depth;
    if (c.request_of(b) < 0) continue;
    auto const& bits = c.rows[sized(row)];
    index_t const begin = c.shift + (c.first_row_of(b) + row % c.shape.depth) * row_stride;
    for (ddtree::vocab_range const& range : ranges.range) {
      for (index_t i = 0; i < range.count; ++i) {
        memory.put(begin + range.local_begin + i, bits[sized(range.global_begin + i)]);
      }
    }
  }
  return memory;
}

inline expand_result run_expand(ddtree::context const& ctx, expand_case const& c) {
  index_t const present = c.rows.empty() ? 0 : static_cast<index_t>(c.rows[0].size());
  index_t const columns = c.columns != 0 ? c.columns : c.shape.vocab;
  index_t const row_stride = c.row_stride != 0 ? c.row_stride : columns;
  logits_memory memory = lay_out(ctx, c, row_stride, {{{0, present, 0}, {}}});
  expand_arguments arguments(ctx, c);
  candidate_buffers out(ctx, c.shape);
  buffer<unsigned char> scratch(ctx, ddtree::expand_workspace_bytes(ctx, c.shape));

  ddtree::logits_view draft{memory.bind(c.shift), c.type};
  draft.vocab = c.columns;
  draft.row_stride = c.row_stride;
  draft.batch_stride = c.batch_stride;
  draft.row_offset = arguments.row_offset.view();
  ddtree::status const s = ddtree::expand(ctx, c.shape, arguments.batch, draft, out.view(),
                                          scratch.as_workspace(), arguments.options);
  REQUIRE(s.message == std::string());
  REQUIRE(s.code == ddtree::errc::ok);
  REQUIRE(memory.intact());
  REQUIRE(arguments.intact());
  REQUIRE(scratch.intact());
  return take(out);
}

/// The same over shards: `ranks` says which columns of which ids each rank holds, `columns` how
/// many columns it has. Contributions stand `gap` bytes apart, a multiple of 16.
inline expand_result run_shards(ddtree::context const& ctx, expand_case const& c,
                                std::vector<ddtree::vocab_ranges> const& ranks, index_t columns,
                                std::size_t gap = 0) {
  std::size_t const bytes = ddtree::expand_shard_bytes(c.shape);
  expand_arguments arguments(ctx, c);
  std::vector<unsigned char> gathered((bytes + gap) * ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    index_t const row_stride = c.row_stride != 0 ? c.row_stride : columns;
    logits_memory memory = lay_out(ctx, c, row_stride, ranks[rank]);
    buffer<unsigned char> contribution(ctx, bytes);
    buffer<unsigned char> scratch(ctx, ddtree::expand_shard_workspace_bytes(ctx, c.shape));
    ddtree::logits_view shard{memory.bind(c.shift), c.type};
    shard.vocab = columns;
    shard.row_stride = c.row_stride;
    shard.batch_stride = c.batch_stride;
    shard.row_offset = arguments.row_offset.view();
    ddtree::status const s = ddtree::expand_shard(ctx, c.shape, arguments.batch, shard, ranks[rank],
                                                  {contribution.data(), bytes},
                                                  scratch.as_workspace(), arguments.options);
    REQUIRE(s.message == std::string());
    REQUIRE(memory.intact());
    REQUIRE(contribution.intact());
    REQUIRE(scratch.intact());
    auto const values = contribution.values();
    std::memcpy(gathered.data() + rank * (bytes + gap), values.data(), bytes);
  }
  buffer<unsigned char> all(ctx, gathered);
  candidate_buffers out(ctx, c.shape);
  auto const count = static_cast<index_t>(ranks.size());
  buffer<unsigned char> scratch(ctx, ddtree::expand_merge_workspace_bytes(ctx, c.shape, count));
  ddtree::shard_in in{all.data(), count, gap == 0 ? 0 : static_cast<index_t>(bytes + gap)};
  ddtree::status const s = ddtree::expand_merge(ctx, c.shape, arguments.batch, in, out.view(),
                                                scratch.as_workspace(), arguments.options);
  REQUIRE(s.message == std::string());
  REQUIRE(all.intact());
  REQUIRE(arguments.intact());
  REQUIRE(scratch.intact());
  return take(out);
}

/// What the oracle says of a row of an active request.
inline oracle::expand::row expected_row(expand_case const& c, index_t b, index_t i) {
  auto const request = sized(c.request_of(b));
  oracle::expand::rule how;
  how.vocab = c.shape.vocab;
  how.top_k = c.shape.top_k;
  how.temperature =
      c.temperature_by_request.empty() ? c.temperature : c.temperature_by_request[request];
  if (c.vocab_map) how.vocab_map = *c.vocab_map;
  if (!c.bias.empty()) {
    auto const begin = c.bias.begin() + i * c.shape.top_k;
    how.bias.assign(begin, begin + c.shape.top_k);
  }
  return oracle::expand::expand_row(c.row(b * c.shape.depth + i), how);
}

/// The first rank whose log-prob is not what the oracle says, rises, or is above 0; -1 = none.
inline int first_wrong(std::vector<float> const& got, oracle::expand::row const& want) {
  float before = 0.0f;
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    bool const same = got[rank] == static_cast<float>(want.log_prob[rank]);  // infinities
    bool const near = std::fabs(got[rank] - want.log_prob[rank]) <= want.tolerance;
    if (!(same || near) || !(got[rank] <= before)) return static_cast<int>(rank);
    before = got[rank];
  }
  return -1;
}

inline void require_expected(expand_case const& c, expand_result const& got) {
  auto const top_k = sized(c.shape.top_k);
  for (index_t b = 0; b < c.shape.batch; ++b) {
    std::uint32_t flags = 0;
    for (index_t i = 0; i < c.shape.depth; ++i) {
      CAPTURE(b, i);
      oracle::expand::row want;
      want.token.assign(top_k, 0);
      want.log_prob.assign(top_k, -std::numeric_limits<long double>::infinity());
      if (c.request_of(b) >= 0) want = expected_row(c, b, i);
      auto const at = sized(b * c.shape.depth + i) * top_k;
      std::vector<ddtree::token_t> const token(
          got.token.begin() + static_cast<index_t>(at),
          got.token.begin() + static_cast<index_t>(at + top_k));
      std::vector<float> log_prob;
      for (std::size_t rank = 0; rank < top_k; ++rank) log_prob.push_back(got.log_prob(at + rank));
      REQUIRE(token == want.token);
      int const wrong = first_wrong(log_prob, want);
      if (wrong >= 0) {
        auto const rank = sized(wrong);
        CAPTURE(rank, log_prob[rank], want.log_prob[rank], want.tolerance);
        FAIL("wrong log-prob");
      }
      if (want.met_nan) flags |= ddtree::flag::draft_nan;
      if (want.met_bad_id) flags |= ddtree::flag::id_out_of_range;
    }
    CAPTURE(b);
    REQUIRE(got.flags[sized(b)] == flags);
  }
}

inline ddtree::round_shape expand_shape(index_t batch, index_t vocab, int depth, int top_k) {
  ddtree::round_shape shape;
  shape.batch = batch;
  shape.vocab = vocab;
  shape.depth = depth;
  shape.top_k = top_k;
  return shape;
}

/// One request of one row.
inline expand_case one_row(std::vector<float> const& x, int top_k, dtype type = dtype::f32) {
  expand_case c;
  c.shape = expand_shape(1, static_cast<index_t>(x.size()), 1, top_k);
  c.type = type;
  c.set_row(0, x);
  return c;
}

/// Runs a case on every variant; the results must be as the oracle says. Returns the first.
inline expand_result check_everywhere(expand_case const& c) {
  std::vector<expand_result> results;
  for (auto const& [name, ctx] : contexts_for(ddtree::operation::expand)) {
    CAPTURE(name);
    results.push_back(run_expand(ctx, c));
    require_expected(c, results.back());
  }
  REQUIRE(!results.empty());
  return results.front();
}

/// Runs a case over shards on every variant; ids as the oracle says. Returns the first result.
inline expand_result check_shards(expand_case const& c,
                                  std::vector<ddtree::vocab_ranges> const& ranks, index_t columns,
                                  std::size_t gap = 0) {
  std::vector<expand_result> results;
  for (auto const& [name, ctx] : contexts_for(ddtree::operation::expand_shard)) {
    CAPTURE(name);
    results.push_back(run_shards(ctx, c, ranks, columns, gap));
    require_expected(c, results.back());
  }
  REQUIRE(!results.empty());
  return results.front();
}

/// The vocabulary cut into as many even ranges as there are ranks.
inline std::vector<ddtree::vocab_ranges> even_split(index_t vocab, index_t ranks) {
  std::vector<ddtree::vocab_ranges> split;
  for (index_t rank = 0; rank < ranks; ++rank) {
    index_t const begin = vocab * rank / ranks;
    split.push_back({{{0, vocab * (rank + 1) / ranks - begin, begin}, {}}});
  }
  return split;
}

}  // namespace ddtree_test
