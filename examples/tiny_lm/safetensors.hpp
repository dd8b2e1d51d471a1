#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace tiny_lm {

/// A safetensors file of BF16 tensors, read whole; every offset is checked when it is opened.
class safetensors {
 public:
  explicit safetensors(std::filesystem::path const& path);

  /// The tensor widened to fp32, row-major. Throws, naming file and tensor, when it is absent or
  /// its shape is another one.
  std::vector<float> read(std::string const& name, std::initializer_list<std::int64_t> shape) const;

 private:
  struct entry {
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;  // bytes in data_
  };

  [[noreturn]] void fail(std::string const& what) const;
  void add_entry(std::string const& name, entry tensor);

  std::string file_;
  std::map<std::string, entry> entries_;
  std::vector<unsigned char> data_;
};

}  // namespace tiny_lm
