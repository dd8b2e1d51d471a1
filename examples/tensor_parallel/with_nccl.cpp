// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <exception>
#include <nccl.h>
#include <stdexcept>
#include <thread>

namespace {

void check(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}

/// One per GPU, in the order of the ranks.
class communicators {
 public:
  explicit communicators(int ranks) : all_(static_cast<std::size_t>(ranks)) {
    check(ncclCommInitAll(all_.data(), ranks, nullptr));
  }
  communicators(communicators const&) = delete;
  communicators& operator=(communicators const&) = delete;
  ~communicators() {
    for (ncclComm_t comm : all_) (void)ncclCommDestroy(comm);
  }
  ncclComm_t operator[](int rank) const { return all_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<ncclComm_t> all_;
};

/// On the rank's own stream, between the kernels before and behind it.
void gather(rank const& r, exchange_buffers const& buffers, ncclComm_t comm) {
  check(ncclAllGather(buffers.sent.data(), buffers.all.data(), buffers.sent.bytes(), ncclUint8,
                      comm, r.ctx().stream));
}

void play(rank& r, int rounds, ncclComm_t comm) {
  for (int round = 0; round < rounds; ++round) {
    r.propose();
    gather(r, r.draft, comm);
    r.verify();
    gather(r, r.target, comm);
    r.commit();
  }
}

}  // namespace

bool can_play_apart(int ranks) { return ranks > 1 && ranks <= count_gpus(); }

group play_apart(int ranks, int rounds) {
  group all;
  for (int i = 0; i < ranks; ++i) all.push_back(std::make_unique<rank>(context_on(i), i, ranks));
  communicators const comms(ranks);
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    // A rank that fails leaves the others waiting for it: the exception ends the program.
    threads.emplace_back(play, std::ref(*all[static_cast<std::size_t>(i)]), rounds, comms[i]);
  }
  for (auto& thread : threads) thread.join();
  return all;
}
