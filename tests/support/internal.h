// SPDX-License-Identifier: MIT
//
// The library's own headers, for tests of its parts.
#ifndef ULYX_TESTS_SUPPORT_INTERNAL_H_
#define ULYX_TESTS_SUPPORT_INTERNAL_H_

#include <cstdbool>
#include <cstddef>
#include <cstdint>

extern "C" {
#include "choice.h"
#include "config.h"
#include "copy.h"
#include "copy_batch.h"
#include "cost.h"
#include "exchange.h"
#include "geometry.h"
#include "landing.h"
#include "plan.h"
#include "storage.h"
#include "wire.h"
}

#endif  // ULYX_TESTS_SUPPORT_INTERNAL_H_
