/* SPDX-License-Identifier: MIT
 *
 * Stands before every source of the library in ulyx_sim: what it asks of the host, memory, threads and locks, goes
 * through the fakes (fake_host.c), which count it and fail what a test wants to fail. */
#ifndef ULYX_TESTS_SIM_HOST_H_
#define ULYX_TESTS_SIM_HOST_H_

#include <pthread.h>
#include <stdlib.h>

void* fakeHostMalloc(size_t bytes);
void* fakeHostCalloc(size_t count, size_t bytesEach);
void* fakeHostRealloc(void* memory, size_t bytes);
void* fakeHostAlignedAlloc(size_t alignment, size_t bytes);
void fakeHostFree(void* memory);
int fakeHostThreadCreate(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument);
int fakeHostThreadJoin(pthread_t thread, void** result);
int fakeHostMutexInit(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes);
int fakeHostMutexDestroy(pthread_mutex_t* mutex);
int fakeHostConditionInit(pthread_cond_t* condition, const pthread_condattr_t* attributes);
int fakeHostConditionDestroy(pthread_cond_t* condition);

#ifndef FAKE_HOST_ITSELF
#define malloc(bytes) fakeHostMalloc(bytes)
#define calloc(count, bytesEach) fakeHostCalloc(count, bytesEach)
#define realloc(memory, bytes) fakeHostRealloc(memory, bytes)
#define aligned_alloc(alignment, bytes) fakeHostAlignedAlloc(alignment, bytes)
#define free(memory) fakeHostFree(memory)
#define pthread_create(thread, attributes, body, argument) fakeHostThreadCreate(thread, attributes, body, argument)
#define pthread_join(thread, result) fakeHostThreadJoin(thread, result)
#define pthread_mutex_init(mutex, attributes) fakeHostMutexInit(mutex, attributes)
#define pthread_mutex_destroy(mutex) fakeHostMutexDestroy(mutex)
#define pthread_cond_init(condition, attributes) fakeHostConditionInit(condition, attributes)
#define pthread_cond_destroy(condition) fakeHostConditionDestroy(condition)
#endif

#endif /* ULYX_TESTS_SIM_HOST_H_ */
