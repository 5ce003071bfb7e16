/* SPDX-License-Identifier: MIT
 *
 * Counts what the calling thread asks of the allocator, and gives back: malloc, calloc, realloc and their kin, and
 * free, whoever calls them. For C and C++. */
#ifndef ULYX_TESTS_SUPPORT_ALLOCATIONS_H_
#define ULYX_TESTS_SUPPORT_ALLOCATIONS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Since the thread began. */
int64_t ulyxTestAllocations(void);
int64_t ulyxTestFrees(void);

/* NULL, or why this program cannot count. */
const char* ulyxTestAllocationsUncounted(void);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_TESTS_SUPPORT_ALLOCATIONS_H_ */
