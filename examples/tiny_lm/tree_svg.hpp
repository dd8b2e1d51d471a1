#pragma once

#include "engine.hpp"

#include <string>

namespace tiny_lm {

/// One round's tree as an SVG picture: tokens as text, log weight below, the accepted path marked.
std::string draw_tree(tokenizer const& text, round_view const& round);

}  // namespace tiny_lm
