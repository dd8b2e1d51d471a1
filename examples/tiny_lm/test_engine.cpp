// The library in an engine, with a real model pair: every mode gives the tokens of plain decoding,
// and rounds go as the model's reference implementation recorded them.

#include "engine.hpp"
#include "json_file.hpp"
#include "prompts.hpp"
#include "support/catch.hpp"

namespace {

using namespace tiny_lm;  // NOLINT: a test of one small namespace

std::filesystem::path const folder = DDTREE_TINY_LM_MODEL;

model const& weights() {
  static model const loaded = load_model(folder);
  return loaded;
}

std::vector<prompt> const& prompts() {
  static auto const loaded = load_prompts(folder / "prompts.jsonl");
  return loaded;
}

std::vector<request> requests_of(std::size_t count) {
  std::vector<request> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back({prompts()[i].ids, i + 1});
  return out;
}

decode_options options_of(mode how) {
  decode_options options;
  options.how = how;
  return options;
}

std::vector<ids_t> tokens_of(std::vector<generation> const& all) {
  std::vector<ids_t> out;
  for (auto const& one : all) out.push_back(one.tokens);
  return out;
}

std::vector<ids_t> decode(decode_options const& options, std::span<request const> requests) {
  return tokens_of(engine(weights(), options).run(requests));
}

}  // namespace

TEST_CASE("chain and tree give the tokens of plain decoding, which are the recorded ones",
          "[model]") {
  auto const golden = read_json(folder / "golden.json");
  std::vector<ids_t> recorded;
  for (auto const& entry : golden["ar"]) recorded.push_back(entry["ids"].get<ids_t>());
  auto const requests = requests_of(prompts().size());
  REQUIRE(requests.size() == 32);
  for (mode const how : {mode::plain, mode::chain, mode::tree}) {
    CAPTURE(static_cast<int>(how));
    CHECK(decode(options_of(how), requests) == recorded);
  }
}

TEST_CASE("with a seed, chain and tree draw the tokens that plain decoding draws", "[model]") {
  auto const requests = requests_of(8);  // seeds 1 to 8
  auto options = options_of(mode::plain);
  options.temperature = 0.8f;
  options.top_p = 0.95f;
  auto const plain = decode(options, requests);
  auto const greedy = decode(options_of(mode::plain), requests);
  CHECK(plain != greedy);
  for (mode const how : {mode::chain, mode::tree}) {
    CAPTURE(static_cast<int>(how));
    options.how = how;
    CHECK(decode(options, requests) == plain);
  }
}

TEST_CASE("a round commits as many tokens as the reference recorded", "[model]") {
  auto const golden = read_json(folder / "golden.json");
  for (auto const& entry : golden["rounds"]) {
    request const one{prompts()[entry["prompt_index"].get<std::size_t>()].ids, 1};
    CAPTURE(entry["id"].get<std::string>());
    for (mode const how : {mode::chain, mode::tree}) {
      auto options = options_of(how);
      options.cut_walks = false;
      auto const got = engine(weights(), options).run({&one, 1});
      CHECK(got[0].committed ==
            entry[how == mode::chain ? "chain" : "ddtree64"].get<std::vector<int>>());
    }
  }
}

TEST_CASE("the first trees are the recorded ones, node for node", "[model]") {
  auto const trace = read_json(folder / "golden.json")["trace"];
  request const one{prompts()[trace["prompt_index"].get<std::size_t>()].ids, 1};
  auto options = options_of(mode::tree);
  options.budget = options.top_k = trace["budget"].get<int>();
  options.cut_walks = false;
  engine running(weights(), options);
  std::size_t compared = 0;
  running.observe([&](round_view const& round) {
    auto const n = static_cast<std::size_t>(round.round);
    if (n >= trace["rounds"].size()) return;
    auto const& expected = trace["rounds"][n];
    auto const& tree = round.arrays.tree;
    CAPTURE(n);
    CHECK(round.start == expected["start"].get<int>());
    CHECK(tree.token[0] == expected["bonus"].get<int>());
    REQUIRE(tree.num_nodes[0] == options.budget + 1);
    for (std::size_t i = 0; i < expected["tree"].size(); ++i) {
      CAPTURE(i);
      CHECK(std::vector{tree.token[i + 1], tree.parent[i + 1], tree.depth[i + 1]} ==
            expected["tree"][i].get<std::vector<int>>());
    }
    auto const path = expected["accepted_nodes"].get<std::vector<int>>();
    REQUIRE(round.arrays.accepted_.num_accepted[0] + 1 == static_cast<int>(path.size()));
    CHECK(std::equal(path.begin(), path.end(), round.arrays.accepted_.path));
    CHECK(round.arrays.accepted_.bonus[0] == expected["next_bonus"].get<int>());
    ++compared;
  });
  auto const got = running.run({&one, 1});
  CHECK(compared == 4);
  CHECK(got[0].committed == trace["accepted"].get<std::vector<int>>());
}

TEST_CASE("a request's tokens do not depend on the batch it is decoded in", "[model]") {
  auto const requests = requests_of(5);
  auto options = options_of(mode::tree);
  options.temperature = 0.8f;
  options.max_new_tokens = 48;
  options.batch = 1;
  auto const alone = decode(options, requests);
  options.batch = 3;  // rows are taken over by waiting requests
  options.threads = 1;
  CHECK(decode(options, requests) == alone);
}

TEST_CASE("one prompt of 32 tokens in every mode", "[short]") {
  auto const requests = requests_of(1);
  for (float const temperature : {0.0f, 0.8f}) {
    auto options = options_of(mode::plain);
    options.max_new_tokens = 32;
    options.temperature = temperature;
    auto const plain = decode(options, requests);
    REQUIRE(plain[0].size() == 32);
    for (mode const how : {mode::chain, mode::tree}) {
      options.how = how;
      CHECK(decode(options, requests) == plain);
    }
  }
}
