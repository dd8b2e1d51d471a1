// SPDX-License-Identifier: Apache-2.0
// The best k of a stream of candidates, by (logit descending, id ascending).
#pragma once

#include "cpu/logits.hpp"
#include "rules/dtype_convert.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace ddtree {
inline namespace v0 {
namespace cpu {

/// Holds candidates as rules::candidate_key until there are more than 2k of them, then drops all
/// but the best k, the last of which is the threshold for those to come. So a random row puts a few
/// times k candidates away, and the worst one (ascending) costs a constant time per candidate.
class top_k_selection {
 public:
  /// Keys of storage that a selection of k needs.
  static constexpr index_t capacity(index_t k) { return 2 * k + packet_maxima::packet_size; }

  top_k_selection(std::uint64_t* storage, index_t k) : keys_(storage), k_(k) {}

  /// Adds a sanitised chunk of the ids first_id, first_id + 1, ... -inf is left out. Ids must
  /// ascend from chunk to chunk: then a logit that only equals the threshold comes too late.
  void add(logits_chunk const& x, packet_maxima const& max, index_t first_id) {
    float const threshold = threshold_;
    for (index_t j = 0; j < packet_maxima::count; ++j) {
      if (max.value[j] > threshold) add_packet(x, j, first_id);
    }
  }

  /// Adds one candidate, in any order.
  void add(std::uint64_t key) {
    put(key);
    if (count_ > 2 * k_) keep_best();
  }

  /// The keys of the best candidates, best first: k of them, or as many as there were.
  std::span<std::uint64_t const> finish() {
    if (count_ > k_) keep_best();
    std::sort(keys_, keys_ + count_, std::greater<>());
    return {keys_, static_cast<std::size_t>(count_)};
  }

 private:
  void add_packet(logits_chunk const& x, index_t packet, index_t first_id) {
    for (index_t i = packet; i < logits_chunk::size; i += packet_maxima::count) {
      put(rules::candidate_key(x.value[i], static_cast<std::uint32_t>(first_id + i)));
    }
    if (count_ > 2 * k_) keep_best();
  }

  void put(std::uint64_t key) {
    // Without a branch, which would often be mispredicted.
    keys_[count_] = key;
    count_ += key > threshold_key_ ? 1 : 0;
  }

  /// Drops all but k candidates, of which there are more.
  void keep_best() {
    std::nth_element(keys_, keys_ + k_ - 1, keys_ + count_, std::greater<>());
    count_ = k_;
    threshold_key_ = keys_[k_ - 1];
    threshold_ = rules::candidate_logit(threshold_key_);
  }

  std::uint64_t* keys_;
  index_t k_;
  index_t count_ = 0;
  // Nothing that is not above these is among the best k.
  std::uint64_t threshold_key_ = rules::candidate_key(rules::minus_infinity, 0);
  float threshold_ = rules::minus_infinity;
};

}  // namespace cpu
}  // namespace v0
}  // namespace ddtree
