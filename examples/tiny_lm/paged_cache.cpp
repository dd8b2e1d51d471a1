#include "paged_cache.hpp"

#include <numeric>
#include <stdexcept>

namespace tiny_lm {

paged_cache::paged_cache(transformer_shape const& shape, int sequences, int columns, int pages)
    : sequences_(sequences), columns_(columns), pages_(pages) {
  auto const rows = static_cast<std::size_t>(pages) * page_size;
  std::vector<float> const tensor(rows * static_cast<std::size_t>(shape.kv_width()));
  keys_.assign(static_cast<std::size_t>(shape.layers), tensor);
  values_ = keys_;
  block_table_.assign(static_cast<std::size_t>(sequences) * static_cast<std::size_t>(columns), -1);
  free_pages_.resize(static_cast<std::size_t>(pages));
  std::iota(free_pages_.begin(), free_pages_.end(), 0);
}

std::size_t paged_cache::entry(int sequence, int column) const {
  if (sequence < 0 || sequence >= sequences_ || column < 0 || column >= columns_)
    throw std::out_of_range("paged_cache: outside the block table");
  return static_cast<std::size_t>(sequence) * static_cast<std::size_t>(columns_) +
         static_cast<std::size_t>(column);
}

void paged_cache::reserve(int sequence, int slots) {
  for (int column = 0; column * page_size < slots; ++column) {
    std::int32_t& page = block_table_[entry(sequence, column)];
    if (page >= 0) continue;
    if (free_pages_.empty()) throw std::runtime_error("paged_cache: no page left");
    page = free_pages_.back();
    free_pages_.pop_back();
  }
}

void paged_cache::release(int sequence) {
  for (int column = 0; column < columns_; ++column) {
    std::int32_t& page = block_table_[entry(sequence, column)];
    if (page >= 0) free_pages_.push_back(page);
    page = -1;
  }
}

std::int32_t paged_cache::row(int sequence, int slot) const {
  if (slot < 0) throw std::out_of_range("paged_cache: negative slot");
  std::int32_t const page = block_table_[entry(sequence, slot / page_size)];
  if (page < 0) throw std::out_of_range("paged_cache: slot without a page");
  return page * page_size + slot % page_size;
}

}  // namespace tiny_lm
