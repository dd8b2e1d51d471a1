#pragma once

#include "ddtree/ddtree.hpp"

#include "drafter.hpp"
#include "paged_cache.hpp"
#include "statistics.hpp"
#include "target.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tiny_lm {

using ids_t = std::vector<std::int32_t>;

enum class mode {
  plain,  // one token a round
  chain,  // DFlash: the drafter's most probable token at each depth
  tree,   // DDTree
};

struct decode_options {
  mode how = mode::tree;
  int budget = 64;  // of a tree; a chain has one node a depth
  int top_k = 64;
  float temperature = 0.0f;  // 0 = greedy
  float top_p = 1.0f;
  int max_new_tokens = 128;
  int batch = 8;    // requests that are decoded together
  int threads = 2;  // of the model
  // Stop lists and length limits end a walk inside the library. Without them a round commits what
  // the target confirms, and the output is cut afterwards; the text is the same.
  bool cut_walks = true;
  char const* variant = nullptr;  // see ddtree::context::with_variant
};

struct request {
  ids_t prompt;
  std::uint64_t seed = 1;
};

/// What one request got.
struct generation {
  ids_t tokens;                // up to and with <eos>, at most max_new_tokens
  std::vector<bool> drafted;   // by token: an accepted draft, not the target's own bonus
  std::vector<int> committed;  // by drafted round: accepted nodes and the root
};

/// A round as an observer sees it, after the walk and before the commit.
struct round_view {
  std::size_t request;
  int round;           // 0 = the request's first that drafts
  std::int32_t start;  // S
  ddtree::decoding_round const& arrays;
  ddtree::index_t row;  // of the batch
};
using round_observer = std::function<void(round_view const&)>;
using progress_callback = std::function<void(std::size_t finished, long tokens)>;

/// A serving engine in small: continuous batching over a paged KV cache. Requests join and leave
/// between rounds; every round is the same calls with the same shape.
class engine {
 public:
  /// The model must outlive the engine.
  engine(model const& weights, decode_options const& options);

  /// Decodes all requests, `batch` of them at a time; results are in their order.
  std::vector<generation> run(std::span<request const> requests,
                              progress_callback const& progress = {});

  void observe(round_observer observer) { observer_ = std::move(observer); }
  statistics const& stats() const { return stats_; }

 private:
  /// A request while it is decoded.
  struct sequence {
    explicit sequence(model_config const& config) : context(config) {}

    draft_context context;
    std::size_t request = 0;
    int rounds = 0;  // that drafted
  };

  void admit(std::span<request const> requests);
  void prefill(sequence& joined, std::size_t row, ids_t const& prompt);
  void draft();
  void verify();
  void accept();
  void commit();
  void emit(sequence& of, std::size_t row);
  void count_round(sequence& of, std::size_t row);
  ddtree::batch_view batch() const { return {cache_len_.data(), row_request_.data()}; }
  ddtree::kv_cache kv();

  model const& model_;
  decode_options options_;
  target target_;
  drafter drafter_;
  paged_cache cache_;
  statistics stats_;
  round_observer observer_;

  // What an engine keeps for the library: by row of the batch, or by request of the pool. Here the
  // two are the same, so that a free row is one whose request is -1.
  std::vector<std::int32_t> row_request_, cache_len_, root_, budget_, remaining_, capacity_;
  std::vector<std::int64_t> seed_;
  std::vector<float> temperature_, top_p_;
  std::vector<std::int32_t> tokens_, positions_, slots_, first_row_;
  std::vector<std::uint32_t> mask_;
  std::vector<float> draft_logits_, logits_, features_;
  std::vector<ddtree::kv_tensor> kv_tensors_;
  std::vector<unsigned char> round_memory_;
  ddtree::decoding_round round_;

  std::vector<sequence> sequences_;  // by row
  std::vector<generation> results_;
  std::size_t next_ = 0, finished_ = 0;
};

}  // namespace tiny_lm
