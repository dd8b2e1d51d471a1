// SPDX-License-Identifier: Apache-2.0
// Spreads independent pieces of work over threads of the CPU backend.
#pragma once

#include "ddtree/views.hpp"

namespace ddtree {
inline namespace v0 {
namespace support {

/// Upper bound of the threads a call uses, whatever the context asks for.
inline constexpr std::int32_t max_threads = 256;

/// How many workers share that many pieces.
constexpr index_t count_workers(std::int32_t threads, index_t pieces) {
  index_t const most = threads < 1 ? 1 : threads < max_threads ? threads : max_threads;
  return most < pieces ? most : pieces;
}

using parallel_body = void (*)(void* closure, index_t piece, std::int32_t worker);

/// Runs body(closure, piece, worker) for every piece in [0, pieces) and returns when all are done.
/// `worker` is in [0, threads): no two pieces run with the same worker at once. Where the system
/// gives no further thread the caller's own does the work.
void run_parallel(std::int32_t threads, index_t pieces, parallel_body body, void* closure) noexcept;

/// The same for a callable (index_t piece, std::int32_t worker).
template <class Body>
void parallel_for(std::int32_t threads, index_t pieces, Body body) noexcept {
  run_parallel(
      threads, pieces,
      [](void* closure, index_t piece, std::int32_t worker) {
        (*static_cast<Body*>(closure))(piece, worker);
      },
      &body);
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
