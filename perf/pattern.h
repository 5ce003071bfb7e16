/* SPDX-License-Identifier: MIT
 *
 * The value of every byte is a hash of where it belongs in the whole model: tensor, batch item, token, head and
 * byte of the head, and of a seed that changes from check to check. So any rank can say what any byte must be
 * after an exchange without having seen where it came from, and data that is stale, misplaced or swapped
 * shows. Eight bytes are hashed at a time. The same code runs on the host and on the device. */
#ifndef PERF_PATTERN_H_
#define PERF_PATTERN_H_

#include <stdint.h>

#ifdef __CUDACC__
#define PERF_HOST_DEVICE __host__ __device__
#else
#define PERF_HOST_DEVICE
#endif

#define PERF_PATTERN_BYTES 8 /* bytes of one word of the pattern */

/* Outputs and what lies round them hold this before a checked exchange. */
#define PERF_POISON_BYTE 0xdb

/* Where a tensor's part on one rank lies in memory, and which part of the model it is. Bytes throughout:
 * byte i of head h of token t of batch item b lies at offset + b * batchPitch + t * tokenPitch + h *
 * headBytes + i. */
typedef struct perfView {
  int32_t tensor; /* perfTensor_t */
  int32_t buffer; /* which of the side's buffers it lies in */
  int64_t batch;
  int64_t tokens;
  int64_t heads;
  int64_t headBytes;
  int64_t firstToken; /* of the model */
  int64_t firstHead;
  int64_t offset;
  int64_t batchPitch;
  int64_t tokenPitch;
} perfView_t;

typedef enum {
  perfTensorQ,
  perfTensorK,
  perfTensorV,
  perfTensorO,
  perfTensorRows, /* a token is a row, of one head */
  perfTensorAddends,
  perfTensorState,
  perfTensorTransition,
  perfTensorInitial
} perfTensor_t;

/* splitmix64's finalizer: every input bit reaches every output bit. */
static inline PERF_HOST_DEVICE uint64_t perfMix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* The key of one head of one token; token and head count from the start of the model. */
static inline PERF_HOST_DEVICE uint64_t perfPatternKey(uint64_t seed, int32_t tensor, int64_t batch, int64_t token,
                                                       int64_t head) {
  uint64_t key = perfMix(seed);
  key = perfMix(key ^ (uint64_t)tensor);
  key = perfMix(key ^ (uint64_t)batch);
  key = perfMix(key ^ (uint64_t)token);
  return perfMix(key ^ (uint64_t)head);
}

/* Bytes [8 * word, 8 * word + 8) of the head with that key, the first in the lowest bits. */
static inline PERF_HOST_DEVICE uint64_t perfPatternWord(uint64_t key, int64_t word) {
  return perfMix(key + (uint64_t)word);
}

static inline PERF_HOST_DEVICE int64_t perfPatternWordsOfHead(int64_t headBytes) {
  return (headBytes + PERF_PATTERN_BYTES - 1) / PERF_PATTERN_BYTES;
}

/* Bytes of a head that its word `word` covers: 8, fewer at the end. */
static inline PERF_HOST_DEVICE int perfPatternBytesOfWord(int64_t headBytes, int64_t word) {
  const int64_t rest = headBytes - word * PERF_PATTERN_BYTES;
  return rest < PERF_PATTERN_BYTES ? (int)rest : PERF_PATTERN_BYTES;
}

static inline PERF_HOST_DEVICE void perfPatternStore(unsigned char* to, uint64_t pattern, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(pattern >> (8 * i));
}

/* Bytes that differ from the pattern. */
static inline PERF_HOST_DEVICE int perfPatternCountWrong(const unsigned char* from, uint64_t pattern, int bytes) {
  int wrong = 0;
  for (int i = 0; i < bytes; i++) wrong += from[i] != (unsigned char)(pattern >> (8 * i));
  return wrong;
}

#endif /* PERF_PATTERN_H_ */
