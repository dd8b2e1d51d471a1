// SPDX-License-Identifier: Apache-2.0
// What the kernels require of the toolkit and of the build, checked in every pass of the compiler.
#include <cuda_runtime_api.h>

static_assert(__cplusplus >= 202002L, "CUDA sources are C++20");
static_assert(CUDART_VERSION >= 12080, "CUDA 12.8 or newer");
#if defined(__CUDA_ARCH__)
static_assert(__CUDA_ARCH__ >= 800, "compute capability 8.0 is the oldest that is supported");
#endif
