// SPDX-License-Identifier: Apache-2.0
// One macro: marks a function that host and device compile alike.
#pragma once

#if defined(__CUDACC__)
#define DDTREE_HD __host__ __device__
#else
#define DDTREE_HD
#endif
