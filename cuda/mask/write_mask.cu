// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"
#include "mask/mask.hpp"
#include "mask/units.cuh"
#include "rules/mask.hpp"
#include "rules/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int threads = 256;
constexpr int blocks_per_multiprocessor = 4;  // 64 registers: enough to spill none
constexpr int units_per_thread = 8;
constexpr index_t units_per_piece = index_t{threads} * units_per_thread;
constexpr index_t max_blocks = 0x7fffffff;

struct mask_params {
  support::write_mask_call call;
  std::uint32_t masked;    // bits of a masked column
  index_t row_units;       // of 16 bytes: at most what a row overlaps
  index_t request_pieces;  // pieces of a request, of units_per_piece each
  index_t row_step;        // rows, and units of a row, from one unit of a thread to the next
  index_t unit_step;
};

/// What a row of the mask shows: a run of the context, and nodes of the tree. What the call says
/// stays where kernel parameters are, out of the registers.
struct visible_row {
  support::write_mask_call const& call;
  index_t first_node;  // of the request, in the arrays of the tree
  index_t i;
  index_t tree_column;
  rules::column_span context;

  __device__ visible_row(support::write_mask_call const& c, index_t b, index_t row,
                         index_t cache_len)
      : call(c),
        first_node(b * c.shape.width()),
        i(row),
        tree_column(rules::tree_column(c.out, cache_len)) {
    index_t const depth = c.out.window > 0 ? c.tree.depth[first_node + i] : 0;
    context = rules::visible_context(c.out, cache_len, depth);
  }

  /// Visibility of 32 columns from `first` on.
  __device__ std::uint32_t columns(index_t first) const {
    std::uint32_t const in_context =
        rules::low_bits(context.end - first) & ~rules::low_bits(context.begin - first);
    // Node 0 may stand at any column, so that the nodes straddle two words of `ancestors`.
    index_t const word = (first - tree_column) >> 5;
    int const shift = static_cast<int>((first - tree_column) & 31);
    std::uint32_t const low = nodes(word) >> shift;
    return in_context | low | (shift == 0 ? 0u : nodes(word + 1) << (32 - shift));
  }

 private:
  __device__ std::uint32_t nodes(index_t word) const {
    index_t const words = call.shape.words();
    if (word < 0 || word >= words) return 0;
    std::uint32_t const bits = call.tree.ancestors[(first_node + i) * words + word] &
                               rules::low_bits(call.shape.width() - word * 32);
    return call.out.window > 0 ? in_window(word, bits) : bits;
  }

  __device__ std::uint32_t in_window(index_t word, std::uint32_t bits) const {
    std::int32_t const* const depth = call.tree.depth + first_node;
    index_t const window = rules::held_window(call.out.window);
    std::uint32_t inside = 0;
    for (std::uint32_t rest = bits; rest != 0; rest &= rest - 1) {
      int const bit = __ffs(static_cast<int>(rest)) - 1;
      if (index_t{depth[i]} - depth[word * 32 + bit] < window) inside |= 1u << bit;
    }
    return inside;
  }
};

// An element type says which elements of a row are written, and what a unit from element e on
// holds; of elements that are not written it may say anything.

/// A bit per column.
struct bit_elements {
  using type = std::uint32_t;
  index_t row_columns;

  __device__ rules::column_span written(rules::column_span columns) const {
    if (columns.begin == columns.end) return {0, 0};
    return {columns.begin / 32, (columns.end - 1) / 32 + 1};
  }
  __device__ uint4 unit(visible_row const& row, index_t e) const {
    return {word(row, e), word(row, e + 1), word(row, e + 2), word(row, e + 3)};
  }

 private:
  __device__ type word(visible_row const& row, index_t e) const {
    return row.columns(e * 32) & rules::low_bits(row_columns - e * 32);
  }
};

/// An element per column.
template <class Columns>
struct column_elements {
  using type = typename Columns::type;
  Columns of_columns;

  __device__ rules::column_span written(rules::column_span columns) const { return columns; }
  __device__ uint4 unit(visible_row const& row, index_t e) const {
    return of_columns.unit(row.columns(e));
  }
};

/// Writes the `number`th aligned 16 bytes that the written elements of a row overlap.
template <class Elements>
__device__ void write_unit(Elements const& elements, visible_row const& row,
                           rules::column_span written, typename Elements::type* out,
                           index_t number) {
  using type = typename Elements::type;
  constexpr int per_unit = elements_of_unit<type>;
  auto const address = reinterpret_cast<std::uintptr_t>(out + written.begin);
  auto const before = static_cast<index_t>(address % unit_bytes / sizeof(type));
  index_t const first = written.begin - before + number * per_unit;
  if (first >= written.end) return;
  index_t const begin = first > written.begin ? 0 : written.begin - first;
  index_t const end = first + per_unit < written.end ? per_unit : written.end - first;
  store_elements(out + first, elements.unit(row, first), static_cast<int>(begin),
                 static_cast<int>(end));
}

/// Blocks take pieces of requests in turn; a piece is a run of units, row after row.
template <class Elements>
__device__ void write_pieces(mask_params const& p, Elements const& elements) {
  using type = typename Elements::type;
  support::write_mask_call const& call = p.call;
  index_t const width = call.shape.width();
  index_t const pieces = call.shape.batch * p.request_pieces;
  for (index_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    index_t const b = piece / p.request_pieces;
    rules::batch_row const request = rules::find_row(call.batch, call.shape.request_rows(), b);
    index_t const cache_len = request.active ? request.cache_len : 0;
    rules::column_span const written =
        elements.written(rules::written_columns(call.out, width, cache_len));
    index_t const first = (piece - b * p.request_pieces) * units_per_piece + threadIdx.x;
    index_t i = first / p.row_units;
    index_t unit = first - i * p.row_units;
    for (int k = 0; k < units_per_thread && i < width; ++k) {
      type* const out =
          static_cast<type*>(call.out.data) + b * call.out.batch_stride + i * call.out.row_stride;
      write_unit(elements, visible_row(call, b, i, cache_len), written, out, unit);
      i += p.row_step;
      unit += p.unit_step;
      if (unit >= p.row_units) {
        unit -= p.row_units;
        ++i;
      }
    }
  }
}

__global__ __launch_bounds__(threads, blocks_per_multiprocessor) void write_bits_kernel(
    mask_params const p) {
  bool const is_tree = p.call.out.region == mask_columns::tree;
  write_pieces(p, bit_elements{is_tree ? p.call.shape.width() : p.call.out.columns});
}

__global__ __launch_bounds__(threads, blocks_per_multiprocessor) void write_bytes_kernel(
    mask_params const p) {
  write_pieces(p, column_elements<byte_columns>{});
}

template <class Type>
__global__ __launch_bounds__(threads, blocks_per_multiprocessor) void write_values_kernel(
    mask_params const p) {
  write_pieces(p, column_elements<value_columns<Type>>{{p.masked}});
}

/// Elements of a row that the call writes at most, whatever the cache length.
index_t most_elements(support::write_mask_call const& call) {
  mask_view const& out = call.out;
  bool const is_bits = out.kind == mask_kind::bits;
  index_t const width = call.shape.width();
  if (out.region == mask_columns::tree) return is_bits ? call.shape.words() : width;
  // A word more where the columns begin within one.
  index_t const recent = rules::recent_reach(width, out.window) + width + (is_bits ? 32 : 0);
  bool const is_held = out.region == mask_columns::recent && recent < out.columns;
  index_t const columns = is_held ? recent : out.columns;
  return is_bits ? columns / 32 + (columns % 32 != 0 ? 1 : 0) : columns;
}

status launch_mask(void (*kernel)(mask_params const), support::write_mask_call const& call,
                   index_t element_bytes, std::uint32_t masked) {
  // Two more than full units: one where the row begins within a unit, one where it ends.
  index_t const row_units = most_elements(call) / (unit_bytes / element_bytes) + 2;
  index_t const request_units = call.shape.width() * row_units;
  index_t const request_pieces = (request_units + units_per_piece - 1) / units_per_piece;
  index_t const pieces = call.shape.batch * request_pieces;
  mask_params const params{
      call, masked, row_units, request_pieces, threads / row_units, threads % row_units};
  return launch(call.ctx, kernel, {pieces < max_blocks ? pieces : max_blocks, threads, 0}, params);
}

}  // namespace

status write_mask(support::write_mask_call const& call) noexcept {
  mask_view const& out = call.out;
  std::uint32_t const masked = out.type == dtype::f32
                                   ? rules::float_bits(out.masked_value)
                                   : rules::masked_bits(out.type, out.masked_value);
  if (is_tree_block(call)) return write_tree_block(call, masked);
  if (out.kind == mask_kind::bits) return launch_mask(write_bits_kernel, call, 4, masked);
  if (out.kind == mask_kind::boolean) return launch_mask(write_bytes_kernel, call, 1, masked);
  if (out.type == dtype::f32) {
    return launch_mask(write_values_kernel<std::uint32_t>, call, 4, masked);
  }
  return launch_mask(write_values_kernel<std::uint16_t>, call, 2, masked);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
