// SPDX-License-Identifier: Apache-2.0
// The backend that a test program runs over, and its memory. DDTREE_TEST_BACKEND chooses it: "cpu"
// (also where unset) or "cuda".
#pragma once

#include "ddtree/context.hpp"

#include <cstddef>

namespace ddtree_test {

/// The chosen backend.
ddtree::backend_kind tested_backend();

/// Whether this build and this machine can run the CUDA backend.
bool has_cuda_device();

/// A context of device 0 on a non-blocking stream of its own.
ddtree::context cuda_context();

/// Memory that a context's backend and the host can both access: tests look at arrays where they
/// are. Never null.
void* allocate(ddtree::context const& ctx, std::size_t bytes);
void release(ddtree::context const& ctx, void* memory);

/// Waits for what was enqueued; throws what it failed with.
void wait_for(ddtree::context const& ctx);

}  // namespace ddtree_test
