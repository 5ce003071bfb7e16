/* SPDX-License-Identifier: MIT
 *
 * What counts a runtime's exchanges, set to where months of them would have brought it. Over the fakes only: device
 * memory is the host's. For C and C++. */
#ifndef ULYX_TESTS_SUPPORT_EPOCHS_H_
#define ULYX_TESTS_SUPPORT_EPOCHS_H_

#include <stdbool.h>
#include <stdint.h>

#include "ulyx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Between exchanges, on every rank alike: the next one is number `done` + 1, and nccl's guard counts from `done`. */
void ulyxTestSetExchangesDone(ulyxRuntime_t rt, uint64_t done);

/* As if an exchange of this rank had begun elsewhere and not ended. False: its transport would not see it. */
bool ulyxTestBeginExchange(ulyxRuntime_t rt);

/* Of the records by which ranks meet; nccl: of the guard. */
uint64_t ulyxTestExchangesDone(ulyxRuntime_t rt);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_TESTS_SUPPORT_EPOCHS_H_ */
