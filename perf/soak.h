/* SPDX-License-Identifier: MIT
 *
 * What a round of soak does in device memory. Elements are 16 bits wide and tensors dense. The number of the round
 * lies in device memory, so that every replay of one graph writes and expects other data. */
#ifndef PERF_SOAK_H_
#define PERF_SOAK_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "pattern.h"

#define SOAK_ELEMENT_BYTES 2
#define SOAK_ELEMENTS_PER_WORD (PERF_PATTERN_BYTES / SOAK_ELEMENT_BYTES)
#define SOAK_NOTES 32

#ifdef __cplusplus
extern "C" {
#endif

/* The tensors that a rank writes before an exchange, or checks after it. */
typedef struct soakTensors {
  int count;
  uint16_t* data[3];
  perfView_t views[3]; /* dense, one batch item; offset and pitches are not looked at */
} soakTensors_t;

/* One round that went wrong, and one of its elements. */
typedef struct soakNote {
  unsigned long long round; /* 0: none */
  unsigned long long wrong; /* elements */
  int64_t token;            /* of the model */
  int64_t head;
  int64_t element;
  int32_t tensor; /* perfTensor_t */
  uint16_t expected;
  uint16_t found;
} soakNote_t;

/* Of one rank, in its device's memory; starts as zeros. */
typedef struct soakState {
  unsigned long long round; /* under way; the first is 1 */
  unsigned long long wrong; /* elements of all rounds */
  soakNote_t notes[SOAK_NOTES];
} soakState_t;

/* How long a rank idles: `ns`, or with a key 0 to `ns`, another time each round. */
typedef struct soakDelay {
  uint64_t ns;
  uint64_t key; /* 0: exactly `ns` */
} soakDelay_t;

/* Where the host sees how far a rank is: 2 r - 1 when round r has begun, 2 r when its exchange has ended. */
typedef volatile uint64_t soakProgress_t;

/* To see that the check notices: changes one element in that round. round 0: never. */
typedef struct soakSpoil {
  unsigned long long round;
  uint16_t* element;
} soakSpoil_t;

/* Loads the kernels, so that no launch does while ranks wait for each other. */
cudaError_t soakLoad(void);

/* Counts the round up, then idles. */
cudaError_t soakLaunchBegin(soakState_t* state, soakProgress_t* progress, soakDelay_t delay, cudaStream_t stream);

/* Each element a hash of the round, its tensor and its place in the model. */
cudaError_t soakLaunchFill(const soakTensors_t* tensors, const soakState_t* state, cudaStream_t stream);

/* After the exchange: says so, then idles. */
cudaError_t soakLaunchArrive(const soakState_t* state, soakProgress_t* progress, soakDelay_t delay, soakSpoil_t spoil,
                             cudaStream_t stream);

/* Adds the elements that are not as soakLaunchFill writes them to the state. */
cudaError_t soakLaunchCheck(const soakTensors_t* tensors, soakState_t* state, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* PERF_SOAK_H_ */
