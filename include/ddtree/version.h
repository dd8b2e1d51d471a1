// SPDX-License-Identifier: Apache-2.0
/// @file version.h
/// The version of these headers, for C and C++. This is its only source: the build system, the
/// package files and the soname read it here.
#ifndef DDTREE_VERSION_H
#define DDTREE_VERSION_H

#define DDTREE_VERSION_MAJOR 0
#define DDTREE_VERSION_MINOR 1
#define DDTREE_VERSION_PATCH 0

/// One number that compares: 0.1.0 is 100, 1.2.3 is 10203.
#define DDTREE_VERSION \
  (DDTREE_VERSION_MAJOR * 10000 + DDTREE_VERSION_MINOR * 100 + DDTREE_VERSION_PATCH)

#endif  // DDTREE_VERSION_H
