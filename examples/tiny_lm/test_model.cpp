// The model half: tokenizer, first draft, and that a token's logits have the same bits in a tree,
// in a prefill and decoded plainly.

#include "drafter.hpp"
#include "json_file.hpp"
#include "prompts.hpp"
#include "support/catch.hpp"
#include "target.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tiny_lm {
namespace {

using ids_t = std::vector<std::int32_t>;

std::filesystem::path const folder = DDTREE_TINY_LM_MODEL;

model const& weights() {
  static model const loaded = load_model(folder);
  return loaded;
}

/// The first round that the reference recorded, and its prompt.
struct recorded_round {
  recorded_round() {
    auto const trace = read_json(folder / "golden.json").at("trace");
    prompt = load_prompts(folder / "prompts.jsonl").at(trace.at("prompt_index"));
    round = trace.at("rounds").at(0);
  }

  tiny_lm::prompt prompt;
  nlohmann::json round;
};

std::int32_t argmax(std::span<float const> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

struct pass {
  std::vector<float> logits, features;
};

/// One sequence in a cache of its own.
class session {
 public:
  session(model const& weights, int threads)
      : weights_(weights), target_(weights, threads), cache_(weights.config.target, 1, 70, 70) {}

  pass run(std::vector<target_row> const& rows) {
    for (auto const& row : rows) cache_.reserve(0, row.slot + 1);
    pass out{std::vector<float>(rows.size() * size(weights_.config.vocab)),
             std::vector<float>(rows.size() * size(weights_.config.feature_width()))};
    target_.forward(rows, cache_, out.logits, out.features);
    return out;
  }

  pass run_text(ids_t const& ids, int first_position) {
    std::vector<target_row> rows;
    for (std::int32_t id : ids)
      rows.push_back(causal_row(0, id, first_position + static_cast<int>(rows.size())));
    return run(rows);
  }

  std::span<float const> logits(pass const& of, std::size_t row) const {
    return std::span(of.logits).subspan(row * size(weights_.config.vocab),
                                        size(weights_.config.vocab));
  }

 private:
  static std::size_t size(int value) { return static_cast<std::size_t>(value); }

  model const& weights_;
  target target_;
  paged_cache cache_;
};

/// Rows of the golden tree: node 0 is the bonus token, the others name parent and depth.
std::vector<target_row> tree_rows(nlohmann::json const& golden,
                                  std::vector<std::vector<std::uint32_t>>& ancestors) {
  std::int32_t const start = golden.at("start");
  ancestors = {{1, 0}};
  std::vector<target_row> rows{{0, golden.at("bonus"), start, start, start, {}}};
  for (auto const& [token, parent, depth] :
       golden.at("tree").get<std::vector<std::array<std::int32_t, 3>>>()) {
    auto const node = static_cast<std::int32_t>(rows.size());
    auto words = ancestors[static_cast<std::size_t>(parent)];
    words[static_cast<std::size_t>(node / 32)] |= 1u << node % 32;
    ancestors.push_back(words);
    rows.push_back({0, token, start + depth, start + node, start, {}});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].visible = ancestors[i];
  return rows;
}

}  // namespace

TEST_CASE("prompts encode to their ids and decode to their text") {
  for (auto const& each : load_prompts(folder / "prompts.jsonl")) {
    CAPTURE(each.id);
    auto ids = weights().text.encode(each.text);
    ids.insert(ids.begin(), weights().config.bos);
    CHECK(ids == each.ids);
    CHECK(weights().text.decode(ids) == each.text);
  }
}

TEST_CASE("the first draft has the recorded candidates and log-probabilities") {
  recorded_round const golden;
  auto const prefill = session(weights(), 2).run_text(golden.prompt.ids, 0);
  drafter const draft(weights(), 2);
  draft_context context(weights().config);
  draft.add_context(context, prefill.features);
  auto const vocab = static_cast<std::size_t>(weights().config.vocab);
  std::vector<float> logits(static_cast<std::size_t>(weights().config.draft_depth()) * vocab);
  draft_request const request[] = {{&context, golden.round.at("bonus")}};
  draft.draft(request, logits);

  auto const& top_ids = golden.round.at("top_ids");
  REQUIRE(top_ids.size() == 15);
  for (std::size_t depth = 0; depth < top_ids.size(); ++depth) {
    auto const row = std::span(logits).subspan(depth * vocab, vocab);
    ids_t order(vocab);
    std::iota(order.begin(), order.end(), 0);
    auto const logit = [&](std::int32_t id) { return row[static_cast<std::size_t>(id)]; };
    std::ranges::stable_sort(order, std::greater{}, logit);
    double sum = 0;
    for (float value : row) sum += std::exp(double{value});
    for (std::size_t rank = 0; rank < top_ids[depth].size(); ++rank) {
      CAPTURE(depth, rank);
      CHECK(order[rank] == top_ids[depth][rank].get<int>());
      double const log_prob = double{logit(order[rank])} - std::log(sum);
      double const recorded = golden.round.at("top_logprobs")[depth][rank].get<double>();
      CHECK(std::abs(log_prob - recorded) < 1e-4);
    }
  }
}

TEST_CASE("a row has the same bits in a prefill, in a tree and alone") {
  recorded_round const golden;
  session tree(weights(), 2), plain(weights(), 1);
  auto const at_once = tree.run_text(golden.prompt.ids, 0);
  for (std::size_t i = 0; i < golden.prompt.ids.size(); ++i) {
    CAPTURE(i);
    auto const alone = plain.run_text({golden.prompt.ids[i]}, static_cast<int>(i));
    CHECK(std::ranges::equal(plain.logits(alone, 0), tree.logits(at_once, i)));
  }

  std::vector<std::vector<std::uint32_t>> ancestors;
  auto const rows = tree_rows(golden.round, ancestors);
  auto const nodes = tree.run(rows);
  auto const path = golden.round.at("accepted_nodes").get<std::vector<std::size_t>>();
  for (std::size_t node : path) {
    CAPTURE(node);
    auto const alone = plain.run_text({rows[node].token}, rows[node].position);
    CHECK(std::ranges::equal(plain.logits(alone, 0), tree.logits(nodes, node)));
  }
  CHECK(argmax(tree.logits(nodes, path.back())) == golden.round.at("next_bonus").get<int>());
}

}  // namespace tiny_lm
