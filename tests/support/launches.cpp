// SPDX-License-Identifier: Apache-2.0
// The linker has every launch of the library go through here. With DDTREE_KERNEL_LOG=FILE the names
// of all kernels launched are added to FILE at the end; gpu_check.sh holds them against
// tests/kernels.txt.
#include "support/launches.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

namespace {

class kernel_log {
 public:
  void note(void const* kernel) {
    if (file_ == nullptr) return;
    std::lock_guard const lock(mutex_);
    kernels_.insert(kernel);
  }

  ~kernel_log() {
    std::FILE* const out = file_ != nullptr ? std::fopen(file_, "a") : nullptr;
    if (out == nullptr) return;
    for (void const* const kernel : kernels_) write(out, kernel);
    std::fclose(out);
  }

 private:
  static void write(std::FILE* out, void const* kernel) {
    char const* mangled = nullptr;
    if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) return;
    int failed = 0;
    char* const name = abi::__cxa_demangle(mangled, nullptr, nullptr, &failed);
    std::fprintf(out, "%s\n", failed == 0 ? name : mangled);
    std::free(name);
  }

  char const* const file_ = std::getenv("DDTREE_KERNEL_LOG");
  std::mutex mutex_;
  std::set<void const*> kernels_;
};

kernel_log& log() {
  static kernel_log instance;
  return instance;
}

std::atomic<bool> overlap_allowed = true;
std::atomic<std::size_t> overlapping = 0;

bool overlaps(cudaLaunchAttribute const& a) {
  return a.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
         a.val.programmaticStreamSerializationAllowed != 0;
}

}  // namespace

namespace ddtree_test {

without_overlap::without_overlap() { overlap_allowed = false; }
without_overlap::~without_overlap() { overlap_allowed = true; }

std::size_t count_overlapping_launches() { return overlapping; }

}  // namespace ddtree_test

extern "C" {

cudaError_t __real_cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* kernel,
                                       void** arguments);

cudaError_t __wrap_cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* kernel,
                                       void** arguments) {
  log().note(kernel);
  cudaLaunchAttribute* const end = config->attrs + config->numAttrs;
  if (std::none_of(config->attrs, end, overlaps)) {
    return __real_cudaLaunchKernelExC(config, kernel, arguments);
  }
  if (overlap_allowed) {
    ++overlapping;
    return __real_cudaLaunchKernelExC(config, kernel, arguments);
  }
  std::vector<cudaLaunchAttribute> others;
  std::remove_copy_if(config->attrs, end, std::back_inserter(others), overlaps);
  cudaLaunchConfig_t ordinary = *config;
  ordinary.attrs = others.data();
  ordinary.numAttrs = static_cast<unsigned>(others.size());
  return __real_cudaLaunchKernelExC(&ordinary, kernel, arguments);
}
}
