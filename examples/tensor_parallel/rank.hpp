// SPDX-License-Identifier: Apache-2.0
// One rank of a tensor-parallel group: it holds a shard of the logits and some heads of the KV
// cache, and everything else, the tree and the walk, as every other rank does.
#pragma once

#include "ddtree/ddtree.hpp"

#include "memory.hpp"
#include "vocabulary.hpp"

#include <cstdint>
#include <vector>

/// What a rank sends to all, and what it has from all. An all-gather of bytes stands between.
struct exchange_buffers {
  exchange_buffers(ddtree::context const& ctx, std::size_t contribution, ddtree::index_t how_many)
      : sent(ctx, contribution), all(ctx, contribution * static_cast<std::size_t>(how_many)) {}

  array<unsigned char> sent, all;
};

/// The three parts of a round, each up to where the group exchanges something. Failures throw.
class rank {
 public:
  rank(ddtree::context const& ctx, int index, int ranks);

  /// The drafter over its columns, expand_shard; then `draft` is exchanged.
  void propose();
  /// expand_merge, build_tree, the target over its columns, accept_shard; then `target`.
  void verify();
  /// accept_merge, compact_kv, advance.
  void commit();

  ddtree::context const& ctx() const { return ctx_; }

  exchange_buffers draft, target;

  // What should be the same on every rank, over all rounds.
  std::uint64_t trees = 0, blocks = 0;
  // And also whatever the number of ranks: log-probs differ in their last bits, tokens do not.
  std::uint64_t tokens = 0;
  ddtree::index_t accepted = 0;
  /// Whether each KV row of this rank's heads is where its token is in the sequence.
  bool cache_is_right = true;

 private:
  struct kv_row {
    std::int32_t token, position, head, unused;
  };

  void write_draft_logits();
  void write_target_logits();
  void write_tree_to_cache();
  void check_cache(std::size_t request, std::size_t before);
  void take(std::vector<std::int32_t> const& num_accepted,
            std::vector<ddtree::token_t> const& path);
  ddtree::kv_cache cache_view();

  ddtree::context ctx_;
  int index_, ranks_;
  vocabulary cut_;
  ddtree::vocab_ranges mine_;

  array<float> draft_logits_, target_logits_;
  array<kv_row> cache_;
  array<ddtree::kv_tensor> tensor_;
  array<std::int32_t> cache_len_, request_;
  array<ddtree::token_t> root_;
  array<std::int32_t> token_, position_, slot_;
  array<float> temperature_;
  array<std::int32_t> top_k_;
  array<std::int64_t> seed_;
  array<unsigned char> memory_, scratch_;
  ddtree::decoding_round round_;
  ddtree::batch_view batch_;
  ddtree::sampling how_;
  ddtree::accept_options options_;

  std::vector<std::vector<ddtree::token_t>> sequence_;  // by request: what its cache holds
};
