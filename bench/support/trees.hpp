// SPDX-License-Identifier: Apache-2.0
// Candidates and trees as drafters' logits give them.
#pragma once

#include "ddtree/tree.hpp"

#include "support/logit.hpp"
#include "support/scene.hpp"

#include <vector>

namespace bench {

/// Candidates of logits of a kind, rounded to bf16: ties are as frequent as they are in practice.
/// Requests differ, and so do batches.
ddtree::candidates draw_candidates(scene& s, ddtree::round_shape const& shape, logit_kind kind,
                                   int batch_number);

/// Arrays to build trees in.
ddtree::draft_tree tree_arrays(scene& s, ddtree::round_shape const& shape);

/// Trees of peaked candidates.
ddtree::draft_tree draw_trees(scene& s, ddtree::round_shape const& shape);

/// Drafted nodes that the target of a benchmark accepts, where a tree is that deep.
inline constexpr int accepted_nodes = 6;
/// A logit that wins, drawn or not.
inline constexpr float winning_logit = 40.0f;

/// The elements of dense target logits, [batch, width, vocab], that must win for a walk to accept
/// `accepted_nodes`: at each node mostly the best child, now and then another. A walk visits the
/// rows of these elements and one more.
std::vector<ddtree::index_t> draw_walks(scene const& s, ddtree::round_shape const& shape,
                                        ddtree::draft_tree const& trees);

}  // namespace bench
