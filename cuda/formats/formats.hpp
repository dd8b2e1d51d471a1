// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/status.hpp"

namespace ddtree {
inline namespace v0 {
namespace cuda {

/// Enqueues a job of src/formats as one kernel. Instantiated in the file of its engine.
template <class Job>
status run_format(context const& ctx, Job const& job) noexcept;

}  // namespace cuda
}  // namespace v0
}  // namespace ddtree
