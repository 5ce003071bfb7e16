/* SPDX-License-Identifier: MIT
 *
 * Element types: their sizes and names. An exchange moves bytes; only sums read numbers. */
#ifndef ULYX_RUNTIME_ELEMENT_H_
#define ULYX_RUNTIME_ELEMENT_H_

#include <stdbool.h>

#include "ulyx.h"

/* The size of one element of `type`, where `given` (0: the type's) may say it. `subject` is for the error: the
 * struct that holds the fields. */
ulyxResult_t ulyxElementBytes(const char* subject, int type, int given, int64_t* bytes);

/* Whether sums are defined for it. */
bool ulyxElementIsSummed(int type);

const char* ulyxElementName(int type);

#endif /* ULYX_RUNTIME_ELEMENT_H_ */
