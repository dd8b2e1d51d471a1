// SPDX-License-Identifier: Apache-2.0
// The arrays of a scene in a context's memory, a GPU's own for CUDA, each with an image on the
// host: a test writes the images, uploads them all, and compares all of them after a call with
// those of another backend. Arrays stay where they are, as a captured graph needs. Needs CUDA.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include "support/buffer.hpp"
#include "support/device_array.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace ddtree_test {

/// What a test does with an array.
enum class role {
  input,    // set by the test; equal in both backends before and after, written by calls or not
  output,   // filled before each run; equal in both backends after it
  close,    // floats, filled as outputs are; within 1e-5 of the other backend's
  scratch,  // filled as outputs are; not compared
  own,      // set by the test for each context, such as an array of pointers; not compared
};

/// An array where the context has it, and its image.
template <class T>
struct placed {
  T* data = nullptr;
  T* host = nullptr;
  std::size_t size = 0;

  ddtree::workspace as_workspace() const { return {data, size * sizeof(T)}; }
  T* begin() const { return host; }
  T* end() const { return host + size; }
};

inline bool is_close(float a, float b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;
  return std::fabs(a - b) <= 1e-5f * std::max(1.0f, std::fabs(b));
}

class memory_set {
 public:
  explicit memory_set(ddtree::context const& ctx) : ctx_(ctx) {}
  memory_set(memory_set const&) = delete;
  memory_set& operator=(memory_set const&) = delete;
  ~memory_set() {
    if (!is_on_device()) return;
    for (slice const& s : slices_) (void)cudaFree(s.memory);
  }

  template <class T>
  placed<T> take(char const* name, std::size_t count, role what) {
    slices_.push_back({name, what, nullptr, {}});
    slice& s = slices_.back();
    s.image.assign(count * sizeof(T) + 2 * canary_bytes, canary_byte);
    std::fill(s.begin(), s.end(), poison_byte);
    s.memory = s.image.data();
    if (is_on_device()) {
      void* memory = nullptr;
      check_cuda(cudaMalloc(&memory, s.image.size()));
      s.memory = static_cast<unsigned char*>(memory);
    }
    return {reinterpret_cast<T*>(s.memory + canary_bytes), reinterpret_cast<T*>(s.begin()), count};
  }

  /// Fills what calls write.
  void fill_outputs(unsigned char byte) {
    for (slice& s : slices_) {
      if (s.what == role::input || s.what == role::own) continue;
      std::fill(s.begin(), s.end(), byte);
    }
  }
  /// Fills workspaces with the bytes that `next` gives.
  template <class Next>
  void fill_scratch(Next const& next) {
    for (slice& s : slices_) {
      if (s.what == role::scratch) std::generate(s.begin(), s.end(), next);
    }
  }
  /// The bytes of all that is compared.
  std::vector<unsigned char> results() const {
    std::vector<unsigned char> all;
    for (slice const& s : slices_) {
      if (s.what == role::scratch || s.what == role::own) continue;
      all.insert(all.end(), s.begin(), s.end());
    }
    return all;
  }
  /// Takes the inputs of a set that was laid out alike.
  void copy_inputs(memory_set const& from) {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].what != role::input) continue;
      std::copy(from.slices_[i].image.begin(), from.slices_[i].image.end(),
                slices_[i].image.begin());
    }
  }

  /// Takes the inputs of a set of batch 1 for every row of a batch; arrays by request are as they
  /// are.
  void copy_first_row(memory_set const& one, std::size_t batch) {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].what != role::input) continue;
      slice const& from = one.slices_[i];
      auto const size = from.end() - from.begin();
      auto const copies = static_cast<std::size_t>(slices_[i].end() - slices_[i].begin()) /
                          static_cast<std::size_t>(size);
      if (copies != 1 && copies != batch) continue;  // contributions of several ranks
      for (std::size_t b = 0; b < copies; ++b) {
        std::copy(from.begin(), from.end(),
                  slices_[i].begin() + static_cast<std::ptrdiff_t>(b) * size);
      }
    }
  }

  /// Calls `see(role, where it stands, bytes)` for every array.
  template <class See>
  void for_each(See const& see) const {
    for (slice const& s : slices_) {
      see(s.what, s.memory + canary_bytes, s.image.size() - 2 * canary_bytes);
    }
  }

  /// Images to memory. Waits.
  void upload() { copy(cudaMemcpyHostToDevice); }
  /// Memory to images, after all that was enqueued.
  void download() { copy(cudaMemcpyDeviceToHost); }

  /// The array whose image or canaries are not what `expected` has; "" where there is none.
  std::string difference(memory_set const& expected) const {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      std::string const where = slices_[i].difference(expected.slices_[i]);
      if (!where.empty()) return where;
    }
    return "";
  }
  /// The array that was written outside of; "" where there is none.
  std::string overrun() const {
    for (slice const& s : slices_) {
      if (!s.intact()) return s.name + ": canary";
    }
    return "";
  }

 private:
  struct slice {
    std::string name;
    role what;
    unsigned char* memory;
    std::vector<unsigned char> image;  // with the canaries

    unsigned char* begin() { return image.data() + canary_bytes; }
    unsigned char* end() { return image.data() + image.size() - canary_bytes; }
    unsigned char const* begin() const { return image.data() + canary_bytes; }
    unsigned char const* end() const { return image.data() + image.size() - canary_bytes; }

    bool intact() const {
      auto const is_canary = [](unsigned char byte) { return byte == canary_byte; };
      return std::all_of(image.data(), begin(), is_canary) &&
             std::all_of(end(), image.data() + image.size(), is_canary);
    }

    std::string difference(slice const& expected) const {
      if (!intact() || !expected.intact()) return name + ": canary";
      if (what == role::scratch || what == role::own) return "";
      if (what == role::close) return distance(expected);
      auto const at = std::mismatch(begin(), end(), expected.begin(), expected.end()).first;
      return at == end() ? "" : name + ": byte " + std::to_string(at - begin());
    }

    std::string distance(slice const& expected) const {
      std::size_t const count = static_cast<std::size_t>(end() - begin()) / sizeof(float);
      for (std::size_t i = 0; i < count; ++i) {
        float a = 0, b = 0;
        std::memcpy(&a, begin() + i * sizeof a, sizeof a);
        std::memcpy(&b, expected.begin() + i * sizeof b, sizeof b);
        if (!is_close(a, b)) {
          return name + "[" + std::to_string(i) + "]: " + std::to_string(a) + ", not " +
                 std::to_string(b);
        }
      }
      return "";
    }
  };

  bool is_on_device() const { return ctx_.backend == ddtree::backend_kind::cuda; }

  void copy(cudaMemcpyKind kind) {
    if (!is_on_device()) return;
    for (slice& s : slices_) {
      bool const up = kind == cudaMemcpyHostToDevice;
      check_cuda(cudaMemcpyAsync(up ? s.memory : s.image.data(), up ? s.image.data() : s.memory,
                                 s.image.size(), kind, ctx_.stream));
    }
    check_cuda(cudaStreamSynchronize(ctx_.stream));
  }

  ddtree::context ctx_;
  std::deque<slice> slices_;
};

}  // namespace ddtree_test
