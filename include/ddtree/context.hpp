// SPDX-License-Identifier: Apache-2.0
/// @file context.hpp
/// Where a call runs: backend, device, stream.
#ifndef DDTREE_CONTEXT_HPP
#define DDTREE_CONTEXT_HPP

#include <cstddef>
#include <cstdint>

struct CUstream_st;  // what a cudaStream_t points to; no CUDA header is needed to name one

namespace ddtree {
inline namespace v0 {

/// A CUDA stream, always named: neither `0` nor `nullptr` converts, so the legacy default stream
/// is never meant by accident. It does not own the stream.
class stream_view {
 public:
  /// From a `cudaStream_t`.
  constexpr stream_view(CUstream_st* stream) noexcept : stream_(stream) {}
  stream_view(int) = delete;
  stream_view(std::nullptr_t) = delete;

  constexpr CUstream_st* get() const noexcept { return stream_; }

 private:
  CUstream_st* stream_;
};

/// The implementation that a context names.
enum class backend_kind : std::int32_t { cpu = 0, cuda = 1 };

/// Where and how a call runs. A value: copy it freely, it owns nothing.
///
/// Every pointer given to a call must be accessible from the context's backend: host memory for
/// `cpu`, device memory (or managed or mapped host memory) of `device` for `cuda`.
struct context {
  backend_kind backend = backend_kind::cpu;
  /// CUDA device ordinal. It is made current for the call and the caller's is restored.
  std::int32_t device = 0;
  /// CPU threads that rows and requests are spread over. Results do not depend on it.
  std::int32_t threads = 1;
  /// CUDA stream that a call enqueues on.
  CUstream_st* stream = nullptr;
  /// Variants to force, or null; see `with_variant`.
  char const* variant = nullptr;

  /// The CPU backend. The work is done when the call returns. With more than one thread a call
  /// starts `threads - 1` of them and joins them: the one place where the library allocates.
  static constexpr context cpu(int threads = 1) noexcept {
    context c;
    c.threads = threads;
    return c;
  }

  /// The CUDA backend: calls enqueue on `stream` of `device` and return. Without kernels for it
  /// in this build, calls return `unsupported_device`.
  static constexpr context cuda(int device, stream_view stream) noexcept {
    context c;
    c.backend = backend_kind::cuda;
    c.device = device;
    c.stream = stream.get();
    return c;
  }

  /// The same context with variants forced: a comma-separated list of `operation=variant`, such
  /// as "expand=cpu,accept=lazy". An operation is one of the five floors (`expand`, `build`,
  /// `mask`, `accept`, `compact`) or one call (`accept_sampled`), which takes precedence. Calls
  /// that the list does not name choose as usual; of two entries for one operation the later
  /// counts. A variant that no call of the floor has gives `invalid_argument`; one that cannot run
  /// the call gives `unsupported`; nothing is enqueued then. The text is not copied: it must
  /// outlive the context. Null clears it.
  constexpr context with_variant(char const* text) const noexcept {
    context c = *this;
    c.variant = text;
    return c;
  }
};

}  // namespace v0
}  // namespace ddtree

#endif  // DDTREE_CONTEXT_HPP
