// SPDX-License-Identifier: Apache-2.0
// Parts of the names of series.
#pragma once

#include "ddtree/views.hpp"

#include "support/logit.hpp"

#include <initializer_list>
#include <string>
#include <utility>

namespace bench {

/// "batch:64/budget:64".
inline std::string labels(std::initializer_list<std::pair<char const*, ddtree::index_t>> values) {
  std::string text;
  for (auto const& [name, value] : values) {
    if (!text.empty()) text += '/';
    text.append(name).append(":").append(std::to_string(value));
  }
  return text;
}

inline std::string label(ddtree::dtype type) {
  return type == ddtree::dtype::f32 ? "dtype:f32" : "dtype:bf16";
}

/// N(0, 2.5) goes without saying.
inline std::string suffix(logit_kind kind) {
  return kind == logit_kind::normal ? "" : std::string("/input:") + name(kind);
}

}  // namespace bench
