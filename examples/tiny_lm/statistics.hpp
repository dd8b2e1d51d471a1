#pragma once

#include <chrono>
#include <vector>

namespace tiny_lm {

/// Seconds spent in each stage of decoding.
struct stage_times {
  double prefill = 0, draft = 0, tree = 0, verify = 0, accept = 0, commit = 0;

  double total() const { return prefill + draft + tree + verify + accept + commit; }
};

/// Adds the time of a scope to a stage.
class stage_timer {
 public:
  explicit stage_timer(double& stage) : stage_(stage), start_(clock::now()) {}
  ~stage_timer() { stage_ += std::chrono::duration<double>(clock::now() - start_).count(); }
  stage_timer(stage_timer const&) = delete;
  stage_timer& operator=(stage_timer const&) = delete;

 private:
  using clock = std::chrono::steady_clock;
  double& stage_;
  clock::time_point start_;
};

/// Counts over all requests of a run.
struct statistics {
  long rounds = 0;                      // of a request, so that a batch of 8 counts 8
  long tokens = 0;                      // emitted, each request's first included
  std::vector<long> drafted, accepted;  // nodes by depth, from depth 1 on
  stage_times time;
};

}  // namespace tiny_lm
