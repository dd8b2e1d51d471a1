#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tiny_lm {

struct prompt {
  std::string id, source, text;
  std::vector<std::int32_t> ids;  // <bos> first
};

/// Reads a JSON-lines file of prompts.
std::vector<prompt> load_prompts(std::filesystem::path const& path);

}  // namespace tiny_lm
