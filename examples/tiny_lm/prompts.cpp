#include "prompts.hpp"

#include "json_file.hpp"

namespace tiny_lm {

std::vector<prompt> load_prompts(std::filesystem::path const& path) {
  auto file = open_file(path);
  std::vector<prompt> prompts;
  naming_file(path, [&] {
    for (std::string line; std::getline(file, line);) {
      auto const json = nlohmann::json::parse(line);
      prompts.push_back({json.at("id"), json.at("source"), json.at("text"), json.at("ids")});
    }
  });
  return prompts;
}

}  // namespace tiny_lm
