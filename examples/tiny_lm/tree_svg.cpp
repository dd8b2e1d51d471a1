#include "tree_svg.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

namespace tiny_lm {
namespace {

constexpr int column_width = 120;
constexpr int row_height = 40;
constexpr int margin = 30;

struct point {
  double x = 0, y = 0;
};

/// The token's bytes as XML text: white space made visible, bytes that are no text as dots.
std::string label(tokenizer const& text, std::int32_t token) {
  std::string out;
  for (char const c : text.decode({token})) {
    switch (c) {
      case ' ': out += "\u00b7"; break;
      case '\n': out += "\u21b5"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c > ' ' && c < 127 ? c : '.';
    }
  }
  return out.empty() ? "(special)" : out;
}

/// Columns that the label takes: every byte of the token is shown as one.
std::size_t label_columns(tokenizer const& text, std::int32_t token) {
  std::size_t const bytes = text.decode({token}).size();
  return bytes == 0 ? std::string_view("(special)").size() : bytes;
}

/// The arrays of one request's tree.
struct tree_rows {
  explicit tree_rows(round_view const& round) {
    auto const& t = round.arrays.tree;
    auto const at = round.row * round.arrays.shape.width();
    token = t.token + at;
    parent = t.parent + at;
    depth = t.depth + at;
    log_weight = t.log_weight + at;
    first_child = t.first_child + at;
    next_sibling = t.next_sibling + at;
    num_nodes = t.num_nodes[round.row];
  }

  std::int32_t const* token;
  std::int32_t const* parent;
  std::int32_t const* depth;
  float const* log_weight;
  std::int32_t const* first_child;
  std::int32_t const* next_sibling;
  std::int32_t num_nodes;
};

/// Leaves get a line each, from top to bottom in rank order; a parent stands beside its first
/// child.
double place(tree_rows const& tree, std::int32_t node, double next_line, std::vector<point>& at) {
  double line = next_line;
  for (auto child = tree.first_child[node]; child >= 0; child = tree.next_sibling[child]) {
    line = place(tree, child, line, at);
  }
  auto& own = at[static_cast<std::size_t>(node)];
  own.x = margin + tree.depth[node] * column_width;
  own.y = margin + next_line * row_height;
  return std::max(line, next_line + 1);
}

std::vector<bool> accepted_nodes(round_view const& round, std::int32_t num_nodes) {
  std::vector<bool> accepted(static_cast<std::size_t>(num_nodes));
  auto const* path = round.arrays.accepted_.path + round.row * (round.arrays.shape.depth + 1);
  for (int i = 0; i <= round.arrays.accepted_.num_accepted[round.row]; ++i) {
    accepted[static_cast<std::size_t>(path[i])] = true;
  }
  return accepted;
}

/// The line from a node's parent to it.
void draw_edge(std::ostream& svg, tokenizer const& text, tree_rows const& tree,
               std::vector<point> const& at, std::size_t node, bool accepted) {
  auto const parent = static_cast<std::size_t>(tree.parent[node]);
  double const label_end =
      at[parent].x + 8.0 * static_cast<double>(label_columns(text, tree.token[parent])) + 4;
  double const fork = std::max(label_end, at[parent].x + column_width - 24);
  svg << "<path d=\"M" << label_end << ' ' << at[parent].y << " H" << fork << " L" << at[node].x - 6
      << ' ' << at[node].y << "\" fill=\"none\" stroke=\"" << (accepted ? "#1a7f37" : "#b0b0b0")
      << "\" stroke-width=\"" << (accepted ? 2.5 : 1) << "\"/>\n";
}

}  // namespace

std::string draw_tree(tokenizer const& text, round_view const& round) {
  tree_rows const tree(round);
  auto const nodes = static_cast<std::size_t>(tree.num_nodes);
  std::vector<point> at(nodes);
  double const lines = place(tree, 0, 0, at);
  auto const accepted = accepted_nodes(round, tree.num_nodes);
  int const depth = *std::max_element(tree.depth, tree.depth + tree.num_nodes);

  std::ostringstream svg;
  svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
      << 2 * margin + (depth + 1) * column_width << "\" height=\""
      << 2 * margin + lines * row_height << "\" font-family=\"monospace\" font-size=\"13\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (bool const accepted_ones : {false, true}) {  // these on top
    for (std::size_t i = 1; i < nodes; ++i) {
      if (accepted[i] == accepted_ones) draw_edge(svg, text, tree, at, i, accepted_ones);
    }
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%.2f", static_cast<double>(tree.log_weight[i]));
    svg << "<text x=\"" << at[i].x << "\" y=\"" << at[i].y + 4 << "\""
        << (accepted[i] ? " fill=\"#1a7f37\" font-weight=\"bold\"" : "") << '>'
        << label(text, tree.token[i]) << "</text><text x=\"" << at[i].x << "\" y=\"" << at[i].y + 17
        << "\" font-size=\"9\" fill=\"#808080\">" << weight << "</text>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

}  // namespace tiny_lm
