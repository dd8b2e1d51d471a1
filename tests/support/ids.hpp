// SPDX-License-Identifier: Apache-2.0
// An optional array of ids in a context's memory, int32 or int64.
#pragma once

#include "ddtree/views.hpp"

#include "support/buffer.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ddtree_test {

class optional_ids {
 public:
  /// Not bound: the views are null.
  explicit optional_ids(ddtree::context const& ctx)
      : type_(ddtree::dtype::i32), i32_(ctx, 0), i64_(ctx, 0) {}

  optional_ids(ddtree::context const& ctx, ddtree::dtype type,
               std::optional<std::vector<std::int64_t>> const& values, ddtree::index_t stride = 0)
      : bound_(values.has_value()),
        type_(type),
        stride_(stride),
        i32_(ctx, bound_ && type == ddtree::dtype::i32 ? values->size() : 0),
        i64_(ctx, bound_ && type == ddtree::dtype::i64 ? values->size() : 0) {
    if (!bound_) return;
    if (type == ddtree::dtype::i64) {
      i64_.assign(*values);
    } else {
      i32_.assign(std::vector<std::int32_t>(values->begin(), values->end()));
    }
  }

  ddtree::ids_out view() {
    if (!bound_) return {};
    if (type_ == ddtree::dtype::i64) return {i64_.data(), type_, stride_};
    return {i32_.data(), type_, stride_};
  }

  std::vector<std::int64_t> values() const {
    if (type_ == ddtree::dtype::i64) return i64_.values();
    auto const narrow = i32_.values();
    return {narrow.begin(), narrow.end()};
  }

  bool intact() const { return i32_.intact() && i64_.intact(); }

 private:
  bool bound_ = false;
  ddtree::dtype type_;
  ddtree::index_t stride_ = 0;
  buffer<std::int32_t> i32_;
  buffer<std::int64_t> i64_;
};

}  // namespace ddtree_test
