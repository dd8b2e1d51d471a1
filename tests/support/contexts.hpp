// SPDX-License-Identifier: Apache-2.0
// Every (backend, variant) pair that a test runs over.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ddtree/context.hpp"
#include "ddtree/variants.hpp"

namespace ddtree_test {

struct named_context {
  std::string name;
  ddtree::context ctx;
};

/// A context per variant of the operation, each forced by name, and one CPU context with several
/// threads. A test that loops over it covers variants that do not exist yet.
inline std::vector<named_context> contexts_for(ddtree::operation op) {
  static std::deque<std::string> texts;  // with_variant keeps the pointer
  std::vector<ddtree::variant_info> all(ddtree::variants(ddtree::backend_kind::cpu, nullptr, 0));
  (void)ddtree::variants(ddtree::backend_kind::cpu, all.data(), all.size());
  std::vector<named_context> found;
  for (auto const& v : all) {
    if (v.op != op) continue;
    texts.push_back(std::string(ddtree::name(op)) + "=" + v.name);
    for (int const threads : {1, 3}) {
      found.push_back({"cpu/" + std::string(v.name) + "/threads:" + std::to_string(threads),
                       ddtree::context::cpu(threads).with_variant(texts.back().c_str())});
    }
  }
  return found;
}

}  // namespace ddtree_test
