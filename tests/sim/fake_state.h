/* SPDX-License-Identifier: MIT
 *
 * What the fakes share: counters, faults and settings behind one mutex. It is a leaf: nothing else is locked
 * while it is held. */
#ifndef ULYX_TESTS_SIM_FAKE_STATE_H_
#define ULYX_TESTS_SIM_FAKE_STATE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fake.h"

/* Names a field of fakeCounters. */
#define FAKE_COUNTER(field) offsetof(fakeCounters, field)

void fakeCount(size_t counter, int64_t n);
void fakeCountMax(size_t counter, int64_t value);
void fakeCountSent(int src, int dst, int64_t bytes);
void fakeCountWindow(int64_t bytes);

/* An object's first and last moment: what fakeBorn returns is handed to fakeDied, so that objects made before
 * a fakeReset, or quietly, are not counted. */
int64_t fakeBorn(size_t counter);
void fakeDied(size_t counter, int64_t birth);

/* Whether this call of `function` is the one that a test wants to fail. */
bool fakeStrikes(const char* function);

/* Calls that a fake makes itself, between the two, are neither counted nor struck. */
/* From now on peers reach this allocation of cudaMalloc's, and its owner does not (fake_cuda_memory.c). */
void fakeDisown(const void* p);

void fakeQuietBegin(void);
void fakeQuietEnd(void);
bool fakeIsQuiet(void);

__attribute__((format(printf, 1, 2))) void fakeViolation(const char* format, ...);

/* Returns once the device does not hang (fakeSetHanging). */
void fakeWaitWhileHanging(const char* function);

int fakeDeadlineMs(void);
int fakeAbortMs(void);
int fakeDeviceCount(void);
bool fakeWindowSupport(void);
bool fakeCudaGone(void);
bool fakeNvlink(void);
bool fakeBusy(void);
int fakeLagMs(void);
int fakeNcclFailure(void); /* ncclResult_t */

#endif /* ULYX_TESTS_SIM_FAKE_STATE_H_ */
