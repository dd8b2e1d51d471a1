// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"
#include "ddtree/views.hpp"

#include <cstdint>

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Where the flags of a call begin, before its rows add theirs: each request with those that came
/// in, an inactive one with 0.
struct begin_flags_call {
  round_shape shape;
  batch_view batch;
  std::uint32_t* flags = nullptr;  // [batch]
  /// [sources, batch], rows `source_stride_bytes` apart.
  std::uint32_t const* source = nullptr;
  index_t sources = 0;
  index_t source_stride_bytes = 0;
};

status begin_flags(context const& ctx, begin_flags_call const& call) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
