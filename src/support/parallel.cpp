// SPDX-License-Identifier: Apache-2.0
// The one object of the library that allocates, through std::thread, and only for more than one
// thread.
#include "support/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace ddtree {
inline namespace v0 {
namespace support {

void run_parallel(std::int32_t threads, index_t pieces, parallel_body body,
                  void* closure) noexcept {
  std::atomic<index_t> next{0};
  auto const work = [&](std::int32_t worker) {
    for (index_t piece = next++; piece < pieces; piece = next++) body(closure, piece, worker);
  };
  auto const helpers =
      static_cast<std::int32_t>(std::min<index_t>(std::min(threads, max_threads), pieces)) - 1;
  std::thread pool[max_threads];
  std::int32_t started = 0;
  try {
    for (; started < helpers; ++started) pool[started] = std::thread(work, started + 1);
  } catch (...) {
    // No thread to be had: those that started and this one share the work.
  }
  work(0);
  for (std::int32_t i = 0; i < started; ++i) pool[i].join();
}

}  // namespace support
}  // namespace v0
}  // namespace ddtree
