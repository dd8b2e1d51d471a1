// SPDX-License-Identifier: Apache-2.0
// CUDA events around the replays of a captured graph. One launch is too short for events, whose
// resolution is about half a microsecond.
#include "support/cuda_check.hpp"
#include "support/gpu.hpp"

#include <algorithm>

namespace bench::gpu {

namespace {

constexpr int least_launches = 20, most_launches = 160;
constexpr double replay_us = 400;  // what a replay should take: its start is noise
constexpr int warm_ups = 3, least_replays = 5, most_replays = 30;
constexpr double patience_us = 0.5e6;

class event {
 public:
  event() { check(cudaEventCreate(&event_)); }
  event(event const&) = delete;
  event& operator=(event const&) = delete;
  ~event() { (void)cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class graph {
 public:
  graph(std::function<void(int)> const& enqueue, int launches) : launches_(launches) {
    cudaStream_t const stream = context().stream;
    cudaGraph_t captured = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    try {
      for (int i = 0; i < launches; ++i) enqueue(i);
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &captured);
      (void)cudaGraphDestroy(captured);
      throw;
    }
    check(cudaStreamEndCapture(stream, &captured));
    cudaError_t const error = cudaGraphInstantiate(&instance_, captured, 0);
    (void)cudaGraphDestroy(captured);
    check(error);
  }
  graph(graph const&) = delete;
  graph& operator=(graph const&) = delete;
  ~graph() { (void)cudaGraphExecDestroy(instance_); }

  /// Microseconds per launch of one replay.
  double replay() {
    cudaStream_t const stream = context().stream;
    check(cudaEventRecord(begin_.get(), stream));
    check(cudaGraphLaunch(instance_, stream));
    check(cudaEventRecord(end_.get(), stream));
    check(cudaEventSynchronize(end_.get()));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    return ms * 1000.0 / launches_;
  }

 private:
  int launches_;
  cudaGraphExec_t instance_ = nullptr;
  event begin_, end_;
};

int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Enough launches for a replay of `replay_us`.
int launches_for(std::function<void(int)> const& enqueue, int copies) {
  graph trial(enqueue, least_launches);
  (void)trial.replay();
  double const wanted = replay_us / std::max(trial.replay(), 0.1);
  int const launches = static_cast<int>(std::clamp<double>(wanted, least_launches, most_launches));
  return round_up(launches, copies);
}

}  // namespace

launch_time time_launches(std::function<void(int)> const& enqueue, int copies) {
  launch_time result;
  result.launches = launches_for(enqueue, copies);
  graph timed(enqueue, result.launches);
  for (int i = 0; i < warm_ups; ++i) (void)timed.replay();
  std::vector<double> us;
  double spent = 0;
  while (us.size() < least_replays || (us.size() < most_replays && spent < patience_us)) {
    us.push_back(timed.replay());
    spent += us.back() * result.launches;
  }
  std::sort(us.begin(), us.end());
  result.replays = static_cast<int>(us.size());
  result.median = us[us.size() / 2];
  result.p10 = us[us.size() / 10];
  result.p90 = us[us.size() * 9 / 10];
  return result;
}

}  // namespace bench::gpu
