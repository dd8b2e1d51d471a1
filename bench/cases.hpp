// SPDX-License-Identifier: Apache-2.0
// The cases of each operation, one file each.
#pragma once

namespace bench {

void add_expand_cases();
void add_build_cases();
void add_mask_cases();
void add_accept_cases();
void add_compact_cases();
void add_round_cases();
void add_shard_cases();

}  // namespace bench
