// SPDX-License-Identifier: Apache-2.0
/// @file export.h
/// DDTREE_API marks what the shared library exports; everything else is hidden.
///
/// DDTREE_STATIC is defined for users of the static library, by the CMake target and by pkg-config.
/// The macro is empty then, so that a plugin which links the archive does not export it again.
#ifndef DDTREE_EXPORT_H
#define DDTREE_EXPORT_H

#if defined(DDTREE_STATIC)
#define DDTREE_API
#elif defined(_WIN32) && defined(DDTREE_BUILDING)
#define DDTREE_API __declspec(dllexport)
#elif defined(_WIN32)
#define DDTREE_API __declspec(dllimport)
#else
#define DDTREE_API __attribute__((visibility("default")))
#endif

#endif  // DDTREE_EXPORT_H
