// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

namespace {

void gather(group const& ranks, exchange_buffers rank::*buffers) {
  for (auto const& to : ranks) {
    unsigned char* at = (to.get()->*buffers).all.data();
    for (auto const& from : ranks) {
      auto const& sent = (from.get()->*buffers).sent;
      copy(from->ctx(), at, sent.data(), sent.bytes());
      at += sent.bytes();
    }
  }
}

}  // namespace

group play_in_turn(int ranks, int rounds) {
  group all;
  for (int i = 0; i < ranks; ++i) all.push_back(std::make_unique<rank>(context_on(0), i, ranks));
  for (int round = 0; round < rounds; ++round) {
    for (auto const& r : all) r->propose();
    gather(all, &rank::draft);
    for (auto const& r : all) r->verify();
    gather(all, &rank::target);
    for (auto const& r : all) r->commit();
  }
  return all;
}
