// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: no device. Nothing but the first two is ever called.
#include "support/gpu.hpp"

#include <stdexcept>

namespace bench::gpu {

bool available() { return false; }
std::string why_not() { return "a build without CUDA"; }

namespace {
[[noreturn]] void fail() { throw std::logic_error(why_not()); }
}  // namespace

ddtree::context context() { fail(); }
std::vector<std::pair<std::string, std::string>> description() { fail(); }
std::size_t l2_bytes() { fail(); }
int multiprocessors() { fail(); }
void* allocate(std::size_t) { fail(); }
void release(void*) {}
void copy(void*, void const*, std::size_t) { fail(); }
void fill_logits(void*, logit_rows const&) { fail(); }
void set_logits(void*, ddtree::dtype, std::vector<ddtree::index_t> const&, float) { fail(); }
void gather(void*, void const*, ddtree::index_t, ddtree::index_t, ddtree::index_t) { fail(); }
launch_time time_launches(std::function<void(int)> const&, int) { fail(); }
roof const& roofs() { fail(); }

}  // namespace bench::gpu
