#pragma once

#include <barrier>
#include <functional>

namespace tiny_lm {

/// Work on rows first..last-1; `sync` is reached by all parts the same number of times.
using row_work = std::function<void(int first, int last, std::barrier<>& sync)>;

/// Splits `rows` over at most `threads` threads, each of which runs the whole forward pass on its
/// own rows: layers meet only where a row reads what others wrote, the KV cache. `work` must not
/// throw.
void split_rows(int rows, int threads, row_work const& work);

}  // namespace tiny_lm
