// SPDX-License-Identifier: Apache-2.0
// The oracle: the paper and its rules restated naively, floor by floor. It includes nothing of the
// library and shares no code with it.
#pragma once

#include "oracle/accept.hpp"
#include "oracle/build.hpp"
#include "oracle/compact.hpp"
#include "oracle/expand.hpp"
#include "oracle/mask.hpp"
