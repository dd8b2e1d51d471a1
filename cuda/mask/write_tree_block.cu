// SPDX-License-Identifier: Apache-2.0
// A mask of the tree alone whose rows follow each other without a gap: one run of memory, whatever
// the width, of which only the two ends are not whole units.
#include "common/launch.hpp"
#include "mask/mask.hpp"
#include "mask/units.cuh"
#include "rules/mask.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {
namespace {

constexpr int threads = 256;
constexpr int units_per_thread = 4;
constexpr int units_per_block = threads * units_per_thread;

struct block_params {
  std::uint32_t const* ancestors;
  void* out;
  index_t elements;  // of all rows
  int head;          // elements of the first unit that come before the first row
  int row_elements;
  std::uint32_t inverse;  // 2^32 / row_elements, rounded up
  int width;
  int words;
  std::uint32_t masked;
};

/// The bits of the rows from some row on.
struct ancestor_rows {
  std::uint32_t const* first;
  int width;
  int words;

  /// Bits past the width may be set.
  __device__ std::uint32_t raw(int row, int at) const { return __ldg(first + (row * words + at)); }

  __device__ std::uint32_t word(int row, int at) const {
    return raw(row, at) & rules::low_bits(width - at * 32);
  }

  /// `count` columns from `column` on, which may go on in the rows behind.
  __device__ std::uint32_t columns(int row, int column, int count) const {
    int const at = column >> 5;
    int const next = at + 1 < words ? at + 1 : at;
    std::uint32_t const bits = __funnelshift_r(raw(row, at), raw(row, next), column & 31);
    int have = width - column;
    if (have >= count) return bits;
    std::uint32_t joined = bits & rules::low_bits(have);
    for (; have < count; have += width) joined |= word(++row, 0) << have;
    return joined;
  }
};

/// The words of the rows themselves.
struct bit_words {
  using type = std::uint32_t;

  __device__ type element(ancestor_rows const& rows, int row, int word) const {
    return rows.word(row, word);
  }

  __device__ uint4 unit(ancestor_rows const& rows, int row, int word) const {
    std::uint32_t bits[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      bits[k] = rows.word(row, word);
      ++word;
      if (word == rows.words) {
        word = 0;
        ++row;
      }
    }
    return {bits[0], bits[1], bits[2], bits[3]};
  }
};

template <class Columns>
struct column_values {
  using type = typename Columns::type;
  Columns columns;

  __device__ type element(ancestor_rows const& rows, int row, int column) const {
    return static_cast<type>(columns.unit(rows.columns(row, column, 1)).x);
  }
  __device__ uint4 unit(ancestor_rows const& rows, int row, int column) const {
    return columns.unit(rows.columns(row, column, elements_of_unit<type>));
  }
};

/// One block per units_per_block units, exact grid.
template <class Elements>
__device__ void write_units(block_params const& p, Elements const& elements) {
  using type = typename Elements::type;
  constexpr int per_unit = elements_of_unit<type>;
  index_t const first = index_t{blockIdx.x} * units_per_block * per_unit - p.head;
  index_t const row = (first > 0 ? first : 0) / p.row_elements;
  // From here on 32 bits do: elements behind the first one of this row.
  auto const skipped = static_cast<int>(first - row * p.row_elements);
  index_t const left = p.elements - row * p.row_elements;
  type* const out = static_cast<type*>(p.out) + row * p.row_elements;
  ancestor_rows const rows{p.ancestors + row * p.words, p.width, p.words};
  auto const unit_at = [&](int at) {
    auto const below = static_cast<int>(__umulhi(static_cast<std::uint32_t>(at), p.inverse));
    return elements.unit(rows, below, at - below * p.row_elements);
  };
  int const own = skipped + static_cast<int>(threadIdx.x) * per_unit;
  constexpr int step = threads * per_unit;
  if (skipped >= 0 && skipped + units_per_thread * step <= left) {
    // All loads before the first store.
    uint4 unit[units_per_thread];
#pragma unroll
    for (int k = 0; k < units_per_thread; ++k) unit[k] = unit_at(own + k * step);
#pragma unroll
    for (int k = 0; k < units_per_thread; ++k) {
      *reinterpret_cast<uint4*>(out + own + k * step) = unit[k];
    }
    return;
  }
  for (int k = 0; k < units_per_thread; ++k) {
    int const at = own + k * step;
    if (at >= 0 && at + per_unit <= left) {
      *reinterpret_cast<uint4*>(out + at) = unit_at(at);
      continue;
    }
    int const end = at + per_unit < left ? at + per_unit : static_cast<int>(left);
    for (int e = at > 0 ? at : 0; e < end; ++e) {
      out[e] = elements.element(rows, e / p.row_elements, e % p.row_elements);
    }
  }
}

__global__ __launch_bounds__(threads) void write_bit_block_kernel(block_params const p) {
  write_units(p, bit_words{});
}

__global__ __launch_bounds__(threads) void write_byte_block_kernel(block_params const p) {
  write_units(p, column_values<byte_columns>{});
}

template <class Type>
__global__ __launch_bounds__(threads) void write_value_block_kernel(block_params const p) {
  write_units(p, column_values<value_columns<Type>>{{p.masked}});
}

template <class Type>
status launch_block(void (*kernel)(block_params const), support::write_mask_call const& call,
                    std::uint32_t masked) {
  mask_view const& out = call.out;
  index_t const row_elements = out.row_stride;
  auto const address = reinterpret_cast<std::uintptr_t>(out.data);
  auto const head = static_cast<index_t>(address % unit_bytes / sizeof(Type));
  index_t const elements = call.shape.batch * call.shape.width() * row_elements;
  constexpr index_t per_block = index_t{units_per_block} * elements_of_unit<Type>;
  block_params const params{call.tree.ancestors,
                            out.data,
                            elements,
                            static_cast<int>(head),
                            static_cast<int>(row_elements),
                            static_cast<std::uint32_t>(((index_t{1} << 32) - 1) / row_elements + 1),
                            static_cast<int>(call.shape.width()),
                            static_cast<int>(call.shape.words()),
                            masked};
  return launch(call.ctx, kernel, {(elements + head + per_block - 1) / per_block, threads, 0},
                params);
}

}  // namespace

bool is_tree_block(support::write_mask_call const& call) noexcept {
  mask_view const& out = call.out;
  index_t const width = call.shape.width();
  index_t const row = out.kind == mask_kind::bits ? call.shape.words() : width;
  bool const is_dense =
      out.row_stride == row && (out.batch_stride == width * row || call.shape.batch == 1);
  // A row of one element has no inverse of 32 bits.
  return out.region == mask_columns::tree && out.window == 0 && is_dense && row > 1;
}

status write_tree_block(support::write_mask_call const& call, std::uint32_t masked) noexcept {
  mask_view const& out = call.out;
  if (out.kind == mask_kind::bits) {
    return launch_block<std::uint32_t>(write_bit_block_kernel, call, masked);
  }
  if (out.kind == mask_kind::boolean) {
    return launch_block<std::uint8_t>(write_byte_block_kernel, call, masked);
  }
  if (out.type == dtype::f32) {
    return launch_block<std::uint32_t>(write_value_block_kernel<std::uint32_t>, call, masked);
  }
  return launch_block<std::uint16_t>(write_value_block_kernel<std::uint16_t>, call, masked);
}

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
