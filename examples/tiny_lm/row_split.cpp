#include "row_split.hpp"

#include <algorithm>
#include <thread>
#include <vector>

namespace tiny_lm {

void split_rows(int rows, int threads, row_work const& work) {
  constexpr int fewest_rows = 4;  // what the matrix product works on at a time
  int const parts = std::clamp(rows / fewest_rows, 1, std::max(threads, 1));
  std::barrier<> sync(parts);
  auto const run = [&](int part) { work(rows * part / parts, rows * (part + 1) / parts, sync); };

  std::vector<std::jthread> others;
  for (int part = 1; part < parts; ++part) others.emplace_back(run, part);
  run(0);
}

}  // namespace tiny_lm
