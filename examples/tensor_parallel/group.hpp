// SPDX-License-Identifier: Apache-2.0
// The ranks of a group, and how they play their rounds.
#pragma once

#include "rank.hpp"

#include <memory>
#include <vector>

using group = std::vector<std::unique_ptr<rank>>;

/// One after the other on one GPU, or on the CPU, with copies in place of the all-gather.
group play_in_turn(int ranks, int rounds);

/// Whether so many ranks can have a GPU each, and NCCL between them.
bool can_play_apart(int ranks);
/// A thread and a GPU for each.
group play_apart(int ranks, int rounds);
