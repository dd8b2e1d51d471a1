// SPDX-License-Identifier: Apache-2.0
// Notes which kernels of the library a test program launches: the linker has every launch go
// through here. With DDTREE_KERNEL_LOG=FILE their names are added to FILE at the end; gpu_check.sh
// holds them against tests/kernels.txt.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <mutex>
#include <set>

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

}  // namespace

extern "C" {

cudaError_t __real_cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* kernel,
                                       void** arguments);

cudaError_t __wrap_cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* kernel,
                                       void** arguments) {
  log().note(kernel);
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
}
