// SPDX-License-Identifier: Apache-2.0
// A case of an operation becomes one series for each variant in this build, of either backend.
#pragma once

#include "ddtree/status.hpp"
#include "ddtree/variants.hpp"

#include "support/scene.hpp"

#include <functional>
#include <string>

namespace bench {

/// The least that must move: every input read once, every output written once.
struct traffic {
  double read = 0, written = 0;
};

/// A call over a scene's arrays, with its copy-th inputs, copy < scene.copies.
struct work {
  traffic bytes;
  std::function<ddtree::status(int copy)> call;
};

/// Where a case is worth its time.
enum class place { cpu, gpu, both };

struct benchmark_case {
  place where = place::both;
  /// Behind the operation and the variant: "dtype:bf16/rows:960/vocab:151936/k:64".
  std::string name;
  ddtree::round_shape shape;
  /// Bytes of one copy that a call touches. On a GPU copies of more than 300 MB in all take turns
  /// ("cold"), where that needs not too many, and one that stays in the L2 cache ("hot").
  double copy_bytes = 0;
  std::function<work(scene&)> make;
  /// What a copy holds, where that is more: some variants read it all.
  double held_bytes = 0;
};

/// Adds a series for each variant of the operation.
void add(ddtree::operation op, benchmark_case const& c);

/// Adds a series for each backend, for what consists of several operations, with the variants that
/// DDTREE_VARIANT names.
void add_composite(std::string const& op, benchmark_case const& c);

/// Adds a series for something that is compared with an operation.
void add_peer(ddtree::operation op, std::string const& variant, ddtree::backend_kind backend,
              benchmark_case const& c);

}  // namespace bench
