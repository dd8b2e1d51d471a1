#pragma once

#include "engine.hpp"

#include <iosfwd>
#include <string>
#include <vector>

namespace tiny_lm {

/// Name of a mode: plain, chain, tree.
char const* name(mode m);

/// Prints the prompt's text and the generated one, accepted drafts in colour where asked for.
void print_text(std::ostream& out, tokenizer const& text, std::string const& prompt,
                generation const& generated, bool colour);

/// One mode's run, for the table.
struct run_summary {
  mode how;
  statistics stats;
  bool same_as_plain;
};

/// Rounds, tokens per round, acceptance by depth and time by stage, a row per run.
void print_table(std::ostream& out, std::vector<run_summary> const& runs);

}  // namespace tiny_lm
