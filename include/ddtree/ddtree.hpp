// SPDX-License-Identifier: Apache-2.0
/// @file ddtree.hpp
/// The whole C++ API.
#ifndef DDTREE_DDTREE_HPP
#define DDTREE_DDTREE_HPP

#include "ddtree/accept.hpp"
#include "ddtree/build.hpp"
#include "ddtree/compact.hpp"
#include "ddtree/context.hpp"
#include "ddtree/expand.hpp"
#include "ddtree/mask.hpp"
#include "ddtree/round.hpp"
#include "ddtree/status.hpp"
#include "ddtree/tree.hpp"
#include "ddtree/variants.hpp"
#include "ddtree/version.h"
#include "ddtree/views.hpp"

#endif  // DDTREE_DDTREE_HPP
