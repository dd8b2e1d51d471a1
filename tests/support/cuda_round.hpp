// SPDX-License-Identifier: Apache-2.0
// A whole round over a scene, as an engine captures it, and the same on the CPU. Needs CUDA.
#pragma once

#include "ddtree/ddtree.hpp"

#include "oracle/compact.hpp"
#include "support/catch.hpp"
#include "support/cuda_scene.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddtree_test {

/// The three steps of a round. Its arrays are the scene's outputs, so that they are compared and
/// have canaries; the scratch is its own.
class scene_round {
 public:
  scene_round(scene& s, bool sampled) : s_(s), sampled_(sampled) {
    ddtree::round_options options;
    options.log_prob = true;
    options.build = s.build();
    options.verify.table = s.paging;
    REQUIRE(ddtree::decoding_round::create(s.ctx, s.shape, s.round_memory.as_workspace(), &round_,
                                           options));
    round_.candidates_ = s.candidates_out.view();
    round_.tree = s.tree_out.view();
    round_.accepted_ = s.accepted_out.view(true);
  }

  /// Everything from the draft's logits to the new cache lengths.
  void enqueue() const {
    REQUIRE(round_.draft(s_.batch(), s_.draft_view, s_.root.data, s_.inputs, s_.mask_view));
    finish();
  }

  /// On the CPU: the candidates, then (after `take_log_probs`) the rest.
  void expand() const {
    REQUIRE(ddtree::expand(s_.ctx, s_.shape, s_.batch(), s_.draft_view, round_.candidates_,
                           round_.scratch));
  }
  void enqueue_from_candidates() const {
    REQUIRE(ddtree::build_tree(s_.ctx, s_.shape, s_.batch(), round_.candidates_, s_.root.data,
                               round_.tree, round_.scratch, round_.options.build));
    REQUIRE(ddtree::write_mask(s_.ctx, s_.shape, s_.batch(), round_.tree, s_.mask_view));
    REQUIRE(ddtree::write_verify_inputs(s_.ctx, s_.shape, s_.batch(), round_.tree, s_.inputs,
                                        round_.options.verify));
    finish();
  }

 private:
  void finish() const {
    REQUIRE(round_.accept(s_.batch(), s_.target_view, sampled_ ? s_.how() : ddtree::sampling{}));
    REQUIRE(round_.commit(s_.batch(), s_.cache(), s_.cache_len.data));
  }

  scene& s_;
  bool sampled_;
  ddtree::decoding_round round_;
};

/// Runs the CPU's round over the inputs that a GPU's round had, from the GPU's log-probs on.
/// Returns the array in which the GPU's results differ, "" where none does.
inline std::string difference_from_cpu(scene& gpu, scene& cpu, bool sampled) {
  scene_round const round(cpu, sampled);
  round.expand();
  if (!std::equal(gpu.candidates_out.token.begin(), gpu.candidates_out.token.end(),
                  cpu.candidates_out.token.begin())) {
    return "candidates.token";
  }
  auto const& log_prob = cpu.candidates_out.log_prob;
  for (std::size_t i = 0; i < log_prob.size; ++i) {
    float const own = gpu.candidates_out.log_prob.host[i];
    if (!is_close(own, log_prob.host[i])) return "candidates.log_prob";
    log_prob.host[i] = own;
  }
  round.enqueue_from_candidates();
  return gpu.memory.difference(cpu.memory);
}

/// What the cache of a scene holds after a commit: the oracle moves the rows of the accepted nodes
/// of live requests, and everything else stays. `lengths` are those before the commit.
inline oracle::bytes committed(scene const& s, oracle::bytes const& before,
                               std::vector<std::int64_t> const& lengths) {
  std::vector<oracle::cache_tensor> tensors;
  for (ddtree::index_t t = 0; t < scene::tensors; ++t) {
    auto const& k = s.kv_tensors.host[t];
    tensors.push_back({t * s.tensor_bytes(), k.page_stride, k.token_stride, k.head_stride, k.pages,
                       k.heads, k.row_bytes, 0});
  }
  oracle::page_table table;
  table.page_size = scene::page_size;
  for (std::size_t r = 0; r < s.requests(); ++r) {
    auto const begin = s.table.begin() + static_cast<std::ptrdiff_t>(r * sized(s.columns));
    table.rows.emplace_back(begin, begin + s.columns);
  }
  std::vector<oracle::walk> walks;
  for (std::size_t b = 0; b < sized(s.shape.batch); ++b) {
    std::int32_t const n = s.accepted_out.num_accepted.host[b];
    if (n < 0) continue;
    auto const request = s.request.host[b];
    auto const* const path = s.accepted_out.path.host + b * sized(s.shape.depth + 1);
    walks.push_back({request, lengths[sized(request)], {path, path + n + 1}});
  }
  return oracle::compact_cache(before, tensors, {table}, walks);
}

}  // namespace ddtree_test
