#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tiny_lm {

/// Runs `read` and puts the file's name in front of whatever JSON error comes out of it.
template <class Read>
auto naming_file(std::filesystem::path const& path, Read&& read) {
  try {
    return read();
  } catch (nlohmann::json::exception const& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

inline std::ifstream open_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened");
  return file;
}

inline nlohmann::json read_json(std::filesystem::path const& path) {
  auto file = open_file(path);
  return naming_file(path, [&] { return nlohmann::json::parse(file); });
}

}  // namespace tiny_lm
