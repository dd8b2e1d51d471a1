#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tiny_lm {

/// Byte-level BPE. Text is cut into pieces by byte class; merges never cross a piece.
class tokenizer {
 public:
  explicit tokenizer(std::filesystem::path const& path);

  /// Ids of the text alone: <bos> is the caller's to put in front.
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// The concatenated bytes of the ids; special ids have none.
  std::string decode(std::vector<std::int32_t> const& ids) const;

 private:
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::vector<std::string> tokens_;                             // bytes by id
  std::unordered_map<std::uint64_t, std::int32_t> merge_rank_;  // by (left id, right id)
};

}  // namespace tiny_lm
