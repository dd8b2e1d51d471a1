// Decodes prompts with a small real model pair: plainly, as a chain, as a tree.

#include "engine.hpp"
#include "prompts.hpp"
#include "report.hpp"
#include "tree_svg.hpp"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <unistd.h>

namespace tiny_lm {
namespace {

struct arguments {
  std::filesystem::path folder = DDTREE_TINY_LM_MODEL;
  std::vector<std::string> prompts;
  int first = 8;  // shipped prompts, where none is given
  std::vector<mode> modes = {mode::plain, mode::chain, mode::tree};
  decode_options decode;
  std::uint64_t seed = 1;
  std::filesystem::path svg;
  int svg_round = 0;
  bool demo = false;
};

std::vector<prompt> choose_prompts(arguments const& args, model const& weights) {
  std::vector<prompt> chosen;
  for (auto const& text : args.prompts) {
    prompt p{"command line", "", text, weights.text.encode(text)};
    p.ids.insert(p.ids.begin(), weights.config.bos);
    chosen.push_back(std::move(p));
  }
  if (!chosen.empty()) return chosen;
  chosen = load_prompts(args.folder / "prompts.jsonl");
  chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(args.first)));
  return chosen;
}

/// A line that says how far a long run is; on a terminal only, and gone when the run ends.
class progress_line {
 public:
  progress_line(mode how, std::size_t requests) : how_(how), requests_(requests) {}
  ~progress_line() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }
  void operator()(std::size_t finished, long tokens) {
    if (isatty(STDERR_FILENO) == 0) return;
    shown_ = true;
    std::cerr << '\r' << name(how_) << ": " << finished << " of " << requests_ << " requests, "
              << tokens << " tokens\033[K" << std::flush;
  }

 private:
  mode how_;
  std::size_t requests_;
  bool shown_ = false;
};

struct outcome {
  std::vector<generation> generated;
  run_summary summary;
};

outcome decode(arguments const& args, model const& weights, std::vector<request> const& requests,
               mode how, std::string* picture) {
  decode_options options = args.decode;
  options.how = how;
  engine running(weights, options);
  if (picture != nullptr) {
    running.observe([&](round_view const& round) {
      if (round.request == 0 && round.round == args.svg_round) {
        *picture = draw_tree(weights.text, round);
      }
    });
  }
  progress_line line(how, requests.size());
  auto generated = running.run(requests, std::ref(line));
  return {std::move(generated), {how, running.stats(), false}};
}

bool equal_tokens(std::vector<generation> const& a, std::vector<generation> const& b) {
  return std::ranges::equal(a, b, {}, &generation::tokens, &generation::tokens);
}

/// Decodes all prompts in every mode and prints what came out. Returns whether all modes agree.
bool run(arguments const& args, model const& weights) {
  auto const prompts = choose_prompts(args, weights);
  std::vector<request> requests;
  for (auto const& p : prompts) requests.push_back({p.ids, args.seed + requests.size()});

  auto const plain = decode(args, weights, requests, mode::plain, nullptr);
  std::vector<outcome> all;
  std::string picture;
  for (mode const how : args.modes) {
    bool const drawn = how == args.modes.back() && !args.svg.empty();
    all.push_back(how == mode::plain
                      ? plain
                      : decode(args, weights, requests, how, drawn ? &picture : nullptr));
    all.back().summary.same_as_plain = equal_tokens(all.back().generated, plain.generated);
  }

  bool const colour = isatty(STDOUT_FILENO) != 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    print_text(std::cout, weights.text, prompts[i].text, all.back().generated[i], colour);
  }
  std::vector<run_summary> rows;
  bool same = true;
  for (auto const& one : all) {
    rows.push_back(one.summary);
    same = same && one.summary.same_as_plain;
  }
  print_table(std::cout, rows);
  if (!args.svg.empty()) {
    if (picture.empty()) throw std::runtime_error("--svg: there was no such round to draw");
    if (!(std::ofstream(args.svg) << picture)) {
      throw std::runtime_error("--svg: cannot write " + args.svg.string());
    }
  }
  return same;
}

/// Eight shipped prompts at temperature 0, and one at 0.8.
bool run_demo(arguments args, model const& weights) {
  args.decode.temperature = 0.0f;
  bool const greedy = run(args, weights);
  std::cout << "\nOne prompt at temperature 0.8, top-p 0.95, seed " << args.seed << ":\n\n";
  args.first = 1;
  args.decode.temperature = 0.8f;
  args.decode.top_p = 0.95f;
  return run(args, weights) && greedy;
}

void add_options(CLI::App& app, arguments& args) {
  std::map<std::string, std::vector<mode>> const modes{
      {"plain", {mode::plain}},
      {"chain", {mode::chain}},
      {"tree", {mode::tree}},
      {"all", {mode::plain, mode::chain, mode::tree}}};
  app.add_flag("--demo", args.demo, "Eight shipped prompts at temperature 0, one at 0.8");
  app.add_option("--model", args.folder, "Folder of the model")->check(CLI::ExistingDirectory);
  app.add_option("--prompt", args.prompts, "Text to continue; may be given several times");
  app.add_option("--prompts", args.first, "How many of the shipped prompts")
      ->check(CLI::Range(1, 32));
  app.add_option_function<std::string>(
         "--mode", [&args, modes](std::string const& m) { args.modes = modes.at(m); },
         "plain, chain, tree or all (default)")
      ->check(CLI::IsMember({"plain", "chain", "tree", "all"}));
  app.add_option("--budget", args.decode.budget, "Nodes of a tree")->check(CLI::Range(0, 2047));
  app.add_option("--top-k", args.decode.top_k, "Candidates per position of a tree")
      ->check(CLI::Range(1, 1024));
  app.add_option("--temperature", args.decode.temperature, "0 = greedy")
      ->check(CLI::Range(0.0f, 100.0f));
  app.add_option("--top-p", args.decode.top_p, "Share of the probability that is sampled from")
      ->check(CLI::Range(0.0f, 1.0f));
  app.add_option("--seed", args.seed, "Of the first prompt; the next has the next");
  app.add_option("--max-new-tokens", args.decode.max_new_tokens)->check(CLI::Range(1, 1000));
  app.add_option("--batch", args.decode.batch, "Prompts decoded together")
      ->check(CLI::Range(1, 64));
  app.add_option("--threads", args.decode.threads)->check(CLI::Range(1, 256));
  app.add_option("--svg", args.svg, "Draw a round's tree of the first prompt to this file");
  app.add_option("--svg-round", args.svg_round, "Which round, from 0 on")
      ->check(CLI::NonNegativeNumber);
}

int main(int argc, char** argv) {
  arguments args;
  args.decode.variant = std::getenv("DDTREE_VARIANT");
  CLI::App app{"Decodes text with a small model pair: plainly, as a chain, as a tree of drafts."};
  app.option_defaults()->always_capture_default();
  add_options(app, args);
  CLI11_PARSE(app, argc, argv);

  bool same = false;
  try {
    auto const weights = load_model(args.folder);
    same = args.demo ? run_demo(args, weights) : run(args, weights);
  } catch (std::exception const& error) {
    std::cerr << "ddtree_tiny_lm: " << error.what() << '\n';
    return 2;
  }
  std::cout << "\ntokens equal plain decoding: " << (same ? "yes" : "NO") << '\n';
  return same ? 0 : 1;
}

}  // namespace
}  // namespace tiny_lm

int main(int argc, char** argv) { return tiny_lm::main(argc, argv); }
