// SPDX-License-Identifier: Apache-2.0
// Every (backend, variant) pair that a test runs over.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/variants.hpp"

#include "support/device.hpp"

#include <deque>
#include <string>
#include <vector>

namespace ddtree_test {

struct named_context {
  std::string name;
  ddtree::context ctx;
};

/// The contexts that a whole round runs over: no variant is forced.
inline std::vector<ddtree::context> round_contexts() {
  if (tested_backend() == ddtree::backend_kind::cuda) return {cuda_context()};
  return {ddtree::context::cpu(1), ddtree::context::cpu(3)};
}

/// A context for each variant of the operation, forced by name, in the backend that this run of the
/// tests is about; the CPU with one thread and with several. A test that loops over it covers
/// variants that do not exist yet.
inline std::vector<named_context> contexts_for(ddtree::operation op) {
  static std::deque<std::string> texts;  // with_variant keeps the pointer
  std::vector<ddtree::variant_info> all(ddtree::variants(tested_backend(), nullptr, 0));
  (void)ddtree::variants(tested_backend(), all.data(), all.size());
  std::vector<named_context> found;
  for (auto const& v : all) {
    if (v.op != op) continue;
    texts.push_back(std::string(ddtree::name(op)) + "=" + v.name);
    for (ddtree::context const& ctx : round_contexts()) {
      std::string const backend = ctx.backend == ddtree::backend_kind::cpu ? "cpu/" : "cuda/";
      found.push_back({backend + v.name + "/threads:" + std::to_string(ctx.threads),
                       ctx.with_variant(texts.back().c_str())});
    }
  }
  return found;
}

}  // namespace ddtree_test
