// SPDX-License-Identifier: Apache-2.0
// A job writes an engine's buffers, unit by unit. What a unit holds is written once, for host and
// device; run_cpu.hpp and cuda/formats/run.cuh share the units out. A job is a struct with
//
//   using sums                    what is added up over the requests before one; sums<0> = nothing
//   struct request                what the units of a request share
//   index_t requests() const      the batch, and one more where something follows the last request
//   index_t most_units() const    units of a request, roughly: it fixes the launch, not the work
//   sums extent(b) const          what request b adds, b < batch
//   request open(b, before) const
//   index_t units(request) const
//   void write(request, unit) const
//
// Units of one job write disjoint places and read none that another writes.
#pragma once

#include "ddtree/views.hpp"

#include "rules/hd.hpp"
#include "rules/views.hpp"

#include <cstddef>
#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace formats {

template <std::size_t N>
struct sums {
  static constexpr std::size_t count = N;
  index_t at[N] = {};

  friend DDTREE_HD sums operator+(sums a, sums const& b) {
    for (std::size_t i = 0; i < N; ++i) a.at[i] += b.at[i];
    return a;
  }
};
template <>
struct sums<0> {
  static constexpr std::size_t count = 0;
};

/// Stores where the array is wanted.
DDTREE_HD inline void put(ids_out const& ids, index_t i, index_t value) {
  if (ids.data != nullptr) rules::store_id(ids, i, value);
}

/// Copies a node's value to entry (b, i), where the array is wanted; `from` may be null otherwise.
DDTREE_HD inline void put_node(ids_out const& ids, index_t b, index_t i, std::int32_t const* from,
                               index_t node) {
  if (ids.data != nullptr) rules::store_id(ids, b * ids.stride + i, from[node]);
}

DDTREE_HD constexpr index_t smaller(index_t a, index_t b) noexcept { return a < b ? a : b; }
DDTREE_HD constexpr index_t larger(index_t a, index_t b) noexcept { return a < b ? b : a; }
/// a / b, a >= 0, rounded up; b may be as large as an index can be.
DDTREE_HD constexpr index_t divide_up(index_t a, index_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Bytes or elements of one request as they enter a sum. No buffer holds more, and the sum over a
/// batch cannot overflow, whatever the cache lengths are.
DDTREE_HD constexpr index_t held_extent(index_t extent) noexcept {
  return smaller(extent, index_t{1} << 46);
}

}  // namespace formats
}  // namespace v0
}  // namespace ddtree
