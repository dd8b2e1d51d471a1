#include "tokenizer.hpp"

#include "json_file.hpp"

#include <charconv>
#include <limits>

namespace tiny_lm {
namespace {

constexpr std::int32_t first_byte_id = 4;     // after <pad> <bos> <eos> <mask>
constexpr std::int32_t first_merge_id = 260;  // after the 256 bytes

enum class byte_class { newline, space, digit, letter, punctuation };

byte_class class_of(char c) {
  auto const byte = static_cast<unsigned char>(c);
  if (byte == '\n') return byte_class::newline;
  if (byte == ' ') return byte_class::space;
  if (byte >= '0' && byte <= '9') return byte_class::digit;
  bool const is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
  return is_letter || byte == '_' || byte >= 0x80 ? byte_class::letter : byte_class::punctuation;
}

std::size_t run_end(std::string_view text, std::size_t at, byte_class kind) {
  while (at < text.size() && class_of(text[at]) == kind) ++at;
  return at;
}

/// End of one digit, or of a run of letters or of punctuation.
std::size_t unit_end(std::string_view text, std::size_t at) {
  byte_class const kind = class_of(text[at]);
  return kind == byte_class::digit ? at + 1 : run_end(text, at, kind);
}

/// Spaces before a word: all but the last stand alone, the last one joins the word.
std::size_t spaces_end(std::string_view text, std::size_t at) {
  std::size_t const end = run_end(text, at, byte_class::space);
  if (end == text.size() || class_of(text[end]) == byte_class::newline) return end;
  return end - at >= 2 ? end - 1 : unit_end(text, end);
}

std::size_t piece_end(std::string_view text, std::size_t at) {
  switch (class_of(text[at])) {
    case byte_class::newline:  // with the indentation of the next line
      return run_end(text, run_end(text, at, byte_class::newline), byte_class::space);
    case byte_class::space: return spaces_end(text, at);
    default: return unit_end(text, at);
  }
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::string from_hex(std::string const& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

}  // namespace

tokenizer::tokenizer(std::filesystem::path const& path) {
  auto const json = read_json(path);
  naming_file(path, [&] {
    for (auto const& hex : json.at("tokens")) tokens_.push_back(from_hex(hex));
    std::int32_t rank = 0;
    for (auto const& pair : json.at("merges"))
      merge_rank_[pair_key(pair.at(0), pair.at(1))] = rank++;
  });
  if (tokens_.size() != first_merge_id + merge_rank_.size())
    throw std::runtime_error(path.string() + ": tokens and merges do not fit together");
}

std::vector<std::int32_t> tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = piece_end(text, at);
    append_piece(text.substr(at, end - at), ids);
    at = end;
  }
  return ids;
}

void tokenizer::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> part;
  for (char c : piece) part.push_back(first_byte_id + static_cast<unsigned char>(c));
  for (;;) {
    auto best = std::numeric_limits<std::int32_t>::max();
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < part.size(); ++i) {
      auto const found = merge_rank_.find(pair_key(part[i], part[i + 1]));
      if (found == merge_rank_.end() || found->second >= best) continue;
      best = found->second;
      best_at = i;
    }
    if (best == std::numeric_limits<std::int32_t>::max()) break;
    part[best_at] = first_merge_id + best;
    part.erase(part.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  ids.insert(ids.end(), part.begin(), part.end());
}

std::string tokenizer::decode(std::vector<std::int32_t> const& ids) const {
  std::string text;
  for (std::int32_t id : ids) text += tokens_.at(static_cast<std::size_t>(id));
  return text;
}

}  // namespace tiny_lm
