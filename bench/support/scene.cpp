// SPDX-License-Identifier: Apache-2.0
#include "support/scene.hpp"

#include "support/gpu.hpp"

#include <cstring>
#include <new>

namespace bench {

namespace {

void fill_on_host(void* data, logit_rows const& r) {
  for (ddtree::index_t row = 0; row < r.rows; ++row) {
    ddtree::index_t const begin = row * r.vocab;
    for (ddtree::index_t c = 0; c < r.vocab; ++c) {
      store_logit(data, r.type, begin + c, logit_at(r, row, c));
    }
    for (int j = 0; r.kind == logit_kind::peaked && j < raised_tokens; ++j) {
      store_logit(data, r.type, begin + raised_column(r, row, j), raised_logit(r, row, j));
    }
  }
}

}  // namespace

scene::~scene() {
  for (void* const memory : memory_) is_on_gpu() ? gpu::release(memory) : ::operator delete(memory);
}

void* scene::bytes(std::size_t count) {
  std::size_t const some = count == 0 ? 1 : count;
  void* const memory = is_on_gpu() ? gpu::allocate(some) : ::operator new(some);
  memory_.push_back(memory);
  if (!is_on_gpu()) std::memset(memory, 0, some);
  return memory;
}

void* scene::logits(logit_rows const& rows) {
  void* const data = bytes(sized(rows.rows * rows.vocab * bytes_of(rows.type)));
  is_on_gpu() ? gpu::fill_logits(data, rows) : fill_on_host(data, rows);
  return data;
}

void scene::set_logits(void* data, ddtree::dtype type, std::vector<ddtree::index_t> const& at,
                       float value) {
  if (is_on_gpu()) return gpu::set_logits(data, type, at, value);
  for (ddtree::index_t const i : at) store_logit(data, type, i, value);
}

void scene::write(void* to, void const* from, std::size_t count) {
  if (count == 0) return;
  is_on_gpu() ? gpu::copy(to, from, count) : static_cast<void>(std::memcpy(to, from, count));
}

void scene::read(void* to, void const* from, std::size_t count) const {
  if (count == 0) return;
  is_on_gpu() ? gpu::copy(to, from, count) : static_cast<void>(std::memcpy(to, from, count));
}

}  // namespace bench
