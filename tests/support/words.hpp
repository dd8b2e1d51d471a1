// SPDX-License-Identifier: Apache-2.0
// A whole tree or acceptance as one array of 32-bit words, so that one comparison sees every bit of
// every result; and logits of a hash, which threads can make in any order.
#pragma once

#include "ddtree/tree.hpp"
#include "ddtree/views.hpp"

#include "rules/dtype_convert.hpp"
#include "support/device_array.hpp"
#include "support/trees.hpp"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace ddtree_test {

using words = std::vector<std::uint32_t>;

inline int threads_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// The arrays of a draft_tree one after the other: seven of [batch, width], the ancestors, and two
/// of [batch].
class tree_words {
 public:
  tree_words(ddtree::context const& ctx, ddtree::round_shape const& shape)
      : nodes_(sized(shape.batch * shape.width())),
        bits_(nodes_ * sized(shape.words())),
        batch_(sized(shape.batch)),
        all_(ctx, 7 * nodes_ + bits_ + 2 * batch_) {}
  tree_words(ddtree::context const& ctx, ddtree::round_shape const& shape, words const& values)
      : nodes_(sized(shape.batch * shape.width())),
        bits_(nodes_ * sized(shape.words())),
        batch_(sized(shape.batch)),
        all_(ctx, values) {}

  ddtree::draft_tree view() {
    return {at<ddtree::token_t>(0), at<ddtree::node_t>(1), at<std::int32_t>(2),
            at<std::int32_t>(3),    at<float>(4),          at<ddtree::node_t>(5),
            at<ddtree::node_t>(6),  at<std::uint32_t>(7),  after_bits<std::int32_t>(0),
            after_bits<std::uint32_t>(1)};
  }
  words values() const { return all_.values(); }

  /// Which array word i belongs to, and where it stands there.
  std::string place(std::size_t i) const {
    static char const* const names[] = {"token",      "parent",      "depth",        "rank",
                                        "log_weight", "first_child", "next_sibling", "ancestors",
                                        "num_nodes",  "flags"};
    std::size_t const sizes[] = {nodes_, nodes_, nodes_, nodes_, nodes_,
                                 nodes_, nodes_, bits_,  batch_, batch_};
    std::size_t array = 0;
    while (array < 9 && i >= sizes[array]) i -= sizes[array++];
    return std::string(names[array]) + "[" + std::to_string(i) + "]";
  }

 private:
  template <class T>
  T* at(std::size_t array) {
    return reinterpret_cast<T*>(all_.data() + array * nodes_);
  }
  template <class T>
  T* after_bits(std::size_t array) {
    return reinterpret_cast<T*>(all_.data() + 7 * nodes_ + bits_ + array * batch_);
  }

  std::size_t nodes_, bits_, batch_;
  device_array<std::uint32_t> all_;
};

/// The arrays of an `accepted` one after the other, log_prob last.
class accepted_words {
 public:
  accepted_words(ddtree::context const& ctx, ddtree::round_shape const& shape)
      : rows_(sized(shape.batch * (index_of(shape.depth) + 1))),
        batch_(sized(shape.batch)),
        all_(ctx, 3 * rows_ + 3 * batch_) {}

  ddtree::accepted view() {
    return {at<ddtree::node_t>(0),
            at<std::int32_t>(2 * rows_),
            at<ddtree::token_t>(rows_),
            at<ddtree::token_t>(2 * rows_ + batch_),
            at<float>(2 * rows_ + 3 * batch_),
            at<std::uint32_t>(2 * rows_ + 2 * batch_)};
  }
  /// All but log_prob.
  words exact() const {
    words all = all_.values();
    all.resize(2 * rows_ + 3 * batch_);
    return all;
  }
  std::vector<float> log_probs() const {
    words const all = all_.values();
    std::vector<float> out(rows_);
    if (rows_ != 0) std::memcpy(out.data(), &all[2 * rows_ + 3 * batch_], rows_ * sizeof(float));
    return out;
  }

 private:
  static ddtree::index_t index_of(std::int32_t n) { return n; }
  template <class T>
  T* at(std::size_t word) {
    return reinterpret_cast<T*>(all_.data() + word);
  }

  std::size_t rows_, batch_;
  device_array<std::uint32_t> all_;
};

/// SplitMix64's finaliser.
inline std::uint64_t hash(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Nearly normal: the sum of four uniform variates.
inline float hashed_logit(std::uint64_t seed, std::uint64_t i, float deviation) {
  std::uint64_t const h = hash(seed + i * 0x632be59bd9b4e019u);
  std::uint64_t const sum =
      (h & 0xffff) + ((h >> 16) & 0xffff) + ((h >> 32) & 0xffff) + (h >> 48);
  return (static_cast<float>(sum) - 131070.0f) * (deviation / 37837.0f);
}

/// Work on 0..count-1, spread over the machine's threads.
template <class Work>
void on_all_threads(std::size_t count, Work const& work) {
  std::atomic<std::size_t> next{0};
  auto const run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads_here(); ++t) others.emplace_back(run);
  run();
  for (auto& thread : others) thread.join();
}

inline std::size_t element_bytes(ddtree::dtype type) { return type == ddtree::dtype::f32 ? 4 : 2; }

inline void store_logit(unsigned char* to, ddtree::dtype type, float x) {
  if (type == ddtree::dtype::f32) {
    std::memcpy(to, &x, sizeof x);
  } else {
    std::uint16_t const half = type == ddtree::dtype::f16 ? ddtree::rules::float_to_f16(x)
                                                          : ddtree::rules::float_to_bf16(x);
    std::memcpy(to, &half, sizeof half);
  }
}

/// Rows of logits as elements of a type. Some rows are all equal, hold NaN and infinities, or
/// nothing but -inf. `change(row, values)` may write to a row.
template <class Change>
std::vector<unsigned char> hashed_rows(std::uint64_t seed, std::size_t rows, std::size_t vocab,
                                       ddtree::dtype type, float deviation, Change const& change) {
  std::size_t const size = element_bytes(type);
  std::vector<unsigned char> out(rows * vocab * size);
  on_all_threads(rows, [&](std::size_t row) {
    std::vector<float> x(vocab);
    std::uint64_t const own = hash(seed ^ hash(row));
    for (std::size_t i = 0; i < vocab; ++i) x[i] = hashed_logit(own, i, deviation);
    std::uint64_t const kind = own % 100;
    if (kind == 0) x.assign(vocab, 0.75f);
    if (kind == 1) x.assign(vocab, -std::numeric_limits<float>::infinity());
    if (kind == 2) x[own / 100 % vocab] = std::numeric_limits<float>::quiet_NaN();
    if (kind == 3) x[own / 100 % vocab] = std::numeric_limits<float>::infinity();
    if (kind == 4) {
      for (std::size_t i = 0; i < vocab; i += 2) x[i] = -std::numeric_limits<float>::infinity();
    }
    change(row, x);
    for (std::size_t i = 0; i < vocab; ++i) store_logit(&out[(row * vocab + i) * size], type, x[i]);
  });
  return out;
}

}  // namespace ddtree_test
