#include "safetensors.hpp"

#include "json_file.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tiny_lm {
namespace {

constexpr std::size_t prefix_bytes = 8;  // the header's length, little-endian

std::uint64_t little_endian(unsigned char const* bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < prefix_bytes; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

float widen_bf16(unsigned char const* bytes) {
  return std::bit_cast<float>(std::uint32_t{bytes[0]} << 16 | std::uint32_t{bytes[1]} << 24);
}

std::string to_string(std::vector<std::int64_t> const& shape) {
  std::string text = "[";
  for (auto extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

}  // namespace

safetensors::safetensors(std::filesystem::path const& path) : file_(path.string()) {
  auto stream = open_file(path);
  data_.assign(std::istreambuf_iterator<char>(stream), {});
  if (data_.size() < prefix_bytes) fail("shorter than its length prefix");
  std::uint64_t const header_bytes = little_endian(data_.data());
  if (header_bytes > data_.size() - prefix_bytes) fail("header reaches past the end of the file");

  auto const header_begin = data_.begin() + prefix_bytes;
  auto const header_end = header_begin + static_cast<std::ptrdiff_t>(header_bytes);
  auto const header =
      naming_file(path, [&] { return nlohmann::json::parse(header_begin, header_end); });
  data_.erase(data_.begin(), header_end);

  naming_file(path, [&] {
    for (auto const& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      if (tensor.at("dtype") != "BF16") fail(name + " is not BF16");
      auto const& offsets = tensor.at("data_offsets");
      add_entry(name, {tensor.at("shape"), offsets.at(0), offsets.at(1)});
    }
  });
}

void safetensors::add_entry(std::string const& name, entry tensor) {
  if (tensor.begin > tensor.end || tensor.end > data_.size()) fail(name + " lies outside the file");
  std::uint64_t bytes = sizeof(std::uint16_t);
  for (auto extent : tensor.shape) {
    // Stopping at the file's size keeps the product from overflowing.
    if (extent < 0 || (extent > 0 && bytes > data_.size() / static_cast<std::uint64_t>(extent)))
      fail(name + " has an impossible shape");
    bytes *= static_cast<std::uint64_t>(extent);
  }
  if (bytes != tensor.end - tensor.begin) fail(name + " has more or fewer bytes than its shape");
  entries_.emplace(name, std::move(tensor));
}

std::vector<float> safetensors::read(std::string const& name,
                                     std::initializer_list<std::int64_t> shape) const {
  auto const found = entries_.find(name);
  if (found == entries_.end()) fail("no tensor " + name);
  entry const& tensor = found->second;
  if (!std::ranges::equal(tensor.shape, shape))
    fail(name + " has shape " + to_string(tensor.shape) + ", expected " + to_string(shape));

  std::vector<float> values((tensor.end - tensor.begin) / sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = widen_bf16(data_.data() + tensor.begin + 2 * i);
  return values;
}

void safetensors::fail(std::string const& what) const {
  throw std::runtime_error(file_ + ": " + what);
}

}  // namespace tiny_lm
