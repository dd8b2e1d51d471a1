// SPDX-License-Identifier: Apache-2.0
// The memory of a case: arrays where its context can access them, released with the scene.
#pragma once

#include "ddtree/context.hpp"
#include "ddtree/views.hpp"

#include "support/logit.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace bench {

inline std::size_t sized(ddtree::index_t n) { return static_cast<std::size_t>(n); }

class scene {
 public:
  /// @param how_many  copies of its inputs that a case should make, for calls to take turns.
  scene(ddtree::context const& where, int how_many) : ctx(where), copies(how_many) {}
  scene(scene const&) = delete;
  scene& operator=(scene const&) = delete;
  ~scene();

  /// Zeroed.
  void* bytes(std::size_t count);
  template <class T>
  T* array(ddtree::index_t count) {
    return static_cast<T*>(bytes(sized(count) * sizeof(T)));
  }
  template <class T>
  T* array(std::vector<T> const& values) {
    T* const memory = array<T>(static_cast<ddtree::index_t>(values.size()));
    write(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  /// The same value `count` times.
  template <class T>
  T* filled(ddtree::index_t count, T value) {
    return array(std::vector<T>(sized(count), value));
  }
  ddtree::workspace scratch(std::size_t count) { return {bytes(count), count}; }

  template <class T>
  std::vector<T> values(T const* memory, ddtree::index_t count) const {
    std::vector<T> out(sized(count));
    read(out.data(), memory, out.size() * sizeof(T));
    return out;
  }

  /// Dense rows of logits.
  void* logits(logit_rows const& rows);
  /// Sets some of them.
  void set_logits(void* data, ddtree::dtype type, std::vector<ddtree::index_t> const& at,
                  float value);

  /// Something to print beside the time.
  void note(std::string const& name, double value) { notes[name] = value; }

  ddtree::context const ctx;
  int const copies;
  std::map<std::string, double> notes;

 private:
  bool is_on_gpu() const { return ctx.backend == ddtree::backend_kind::cuda; }
  void write(void* to, void const* from, std::size_t count);
  void read(void* to, void const* from, std::size_t count) const;

  std::vector<void*> memory_;
};

}  // namespace bench
