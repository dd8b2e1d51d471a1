#include "report.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>

namespace tiny_lm {
namespace {

constexpr char accepted_colour[] = "\033[32m";
constexpr char plain_colour[] = "\033[0m";

void print_counts(std::ostream& out, std::vector<run_summary> const& runs) {
  out << "mode    requests' rounds   tokens   tokens/round   equal to plain\n";
  for (auto const& run : runs) {
    auto const& s = run.stats;
    double const per_round = s.rounds == 0 ? 0.0 : double(s.tokens) / double(s.rounds);
    out << std::left << std::setw(8) << name(run.how) << std::right << std::setw(16) << s.rounds
        << std::setw(9) << s.tokens << std::setw(15) << std::fixed << std::setprecision(2)
        << per_round << std::setw(17) << (run.same_as_plain ? "yes" : "NO") << '\n';
  }
}

/// "drafted" and "accepted" nodes by depth, for the modes that draft.
void print_depths(std::ostream& out, std::vector<run_summary> const& runs) {
  std::size_t depths = 0;
  for (auto const& run : runs) depths = std::max(depths, run.stats.drafted.size());
  if (depths == 0) return;
  out << "\nnodes by depth  ";
  for (std::size_t d = 1; d <= depths; ++d) out << std::setw(6) << d;
  for (auto const& run : runs) {
    if (run.stats.drafted.empty()) continue;
    out << '\n' << std::left << std::setw(16) << (std::string(name(run.how)) + " drafted");
    for (long n : run.stats.drafted) out << std::right << std::setw(6) << n;
    out << '\n' << std::left << std::setw(16) << (std::string(name(run.how)) + " accepted");
    for (long n : run.stats.accepted) out << std::right << std::setw(6) << n;
  }
  out << '\n';
}

void print_times(std::ostream& out, std::vector<run_summary> const& runs) {
  out << "\nmilliseconds  prefill    draft     tree   verify   accept   commit    total   "
         "tokens/s\n";
  for (auto const& run : runs) {
    auto const& t = run.stats.time;
    out << std::left << std::setw(12) << name(run.how) << std::right << std::setprecision(1);
    for (double s : {t.prefill, t.draft, t.tree, t.verify, t.accept, t.commit, t.total()}) {
      out << std::setw(9) << s * 1e3;
    }
    double const rate = t.total() > 0 ? double(run.stats.tokens) / t.total() : 0.0;
    out << std::setw(11) << rate << '\n';
  }
}

}  // namespace

char const* name(mode m) {
  switch (m) {
    case mode::plain: return "plain";
    case mode::chain: return "chain";
    case mode::tree: return "tree";
  }
  return "?";
}

void print_text(std::ostream& out, tokenizer const& text, std::string const& prompt,
                generation const& generated, bool colour) {
  out << prompt;
  for (std::size_t i = 0; i < generated.tokens.size(); ++i) {
    std::string const piece = text.decode({generated.tokens[i]});
    if (colour && generated.drafted[i]) {
      out << accepted_colour << piece << plain_colour;
    } else {
      out << piece;
    }
  }
  out << "\n\n";
}

void print_table(std::ostream& out, std::vector<run_summary> const& runs) {
  print_counts(out, runs);
  print_depths(out, runs);
  print_times(out, runs);
}

}  // namespace tiny_lm
