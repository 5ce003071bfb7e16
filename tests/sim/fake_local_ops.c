/* SPDX-License-Identifier: MIT
 *
 * ulyx's sum, chain, store and label kernels on the CPU, written anew from their layouts, after checking what the real
 * kernels take on trust. Sums go by way of the elements' values in double, which holds a sum of two fp32 exactly enough
 * that rounding it to fp32 is the one rounding. */
#include <math.h>
#include <string.h>

#include "fake_cuda.h"
#include "kernels.h"
#include "ulyx.h"

typedef struct Format {
  int bytes, fractionBits, bias;
} Format;

static bool formatOf(int type, Format* format) {
  switch (type) {
    case ulyxFloat16:
      return *format = (Format){2, 10, 15}, true;
    case ulyxBfloat16:
      return *format = (Format){2, 7, 127}, true;
    case ulyxFloat32:
      return *format = (Format){4, 23, 127}, true;
    default:
      return false;
  }
}

static float loadElement(Format format, const unsigned char* from) {
  uint32_t bits = 0;
  memcpy(&bits, from, (size_t)format.bytes);
  const uint32_t fraction = bits & ((1u << format.fractionBits) - 1);
  const int exponent = (int)(bits >> format.fractionBits) & (2 * format.bias + 1);
  double value = ldexp((double)fraction, 1 - format.bias - format.fractionBits);
  if (exponent == 2 * format.bias + 1) {
    value = fraction == 0 ? (double)INFINITY : (double)NAN;
  } else if (exponent > 0) {
    value = ldexp((double)(fraction + (1u << format.fractionBits)), exponent - format.bias - format.fractionBits);
  }
  return (float)(bits >> (8 * format.bytes - 1) != 0 ? -value : value);
}

static void storeElement(Format format, float value, unsigned char* to) {
  const uint32_t infinity = ((uint32_t)format.bias * 2 + 1) << format.fractionBits;
  const uint32_t sign = signbit(value) ? 1u << (8 * format.bytes - 1) : 0;
  const double magnitude = fabs((double)value);
  uint32_t bits = sign;
  if (isnan(value)) {
    bits = infinity | ((1u << format.fractionBits) - 1);
  } else if (isinf(value)) {
    bits |= infinity;
  } else if (magnitude > 0) {
    const int least = 1 - format.bias, own = ilogb(magnitude), exponent = own > least ? own : least;
    const uint32_t units = (uint32_t)nearbyint(ldexp(magnitude, format.fractionBits - exponent));
    const uint32_t rounded = ((uint32_t)(exponent - least) << format.fractionBits) + units;
    bits |= rounded < infinity ? rounded : infinity;
  }
  memcpy(to, &bits, (size_t)format.bytes);
}

static bool covers(const ulyxSumAddend* addend, int64_t row) {
  return row >= addend->firstRow && row < addend->firstRow + addend->rowCount;
}

static bool overlap(const unsigned char* a, int64_t aBytes, const unsigned char* b, int64_t bBytes) {
  return aBytes > 0 && bBytes > 0 && a < b + bBytes && b < a + aBytes;
}

static int64_t spanOf(int64_t rows, int64_t pitch, int64_t rowBytes) {
  return rows > 0 ? (rows - 1) * pitch + rowBytes : 0;
}

static const char* faultOfAddend(const ulyxSumBatch* batch, const ulyxSumAddend* addend, Format format, int device) {
  const int64_t rowBytes = batch->rowElements * format.bytes;
  const int64_t span = spanOf(addend->rowCount, addend->pitch, rowBytes);
  if (addend->firstRow < 0 || addend->rowCount < 0 || addend->firstRow + addend->rowCount > batch->rows) {
    return "an addend's rows are not all rows of the sum";
  }
  if (addend->rowCount > 1 && addend->pitch < rowBytes) return "an addend's pitch is shorter than the row";
  if (((uintptr_t)addend->data | (uint64_t)addend->pitch) % (uint64_t)format.bytes != 0) {
    return "an addend lies between elements";
  }
  if (batch->wide && ((uintptr_t)addend->data | (uint64_t)addend->pitch) % 16 != 0) {
    return "an addend of a wide batch is not 16-byte aligned";
  }
  if (span > 0 && !fakeDeviceReaches(device, addend->data, span)) {
    return "an addend is not within one block of this device's memory";
  }
  const unsigned char* const itself = batch->dst + addend->firstRow * batch->dstPitch;
  const bool isItself = addend->data == itself && (addend->rowCount <= 1 || addend->pitch == batch->dstPitch);
  if (!isItself && overlap(addend->data, span, batch->dst, spanOf(batch->rows, batch->dstPitch, rowBytes))) {
    return "an addend overlaps the sum without being it";
  }
  return NULL;
}

/* NULL, or what is wrong with the batch. */
static const char* faultOfSum(const ulyxSumBatch* batch, Format format, int device) {
  const int64_t rowBytes = batch->rowElements * format.bytes;
  if (batch->count < 1 || batch->count > ULYX_SUM_MAX_ADDENDS) return "addends are not in 1 to 512";
  if (batch->rowElements < 1) return "a row has no elements";
  if (batch->wide != 0 && batch->wide != 1) return "wide is neither 0 nor 1";
  if (batch->rows > 1 && batch->dstPitch < rowBytes) return "the sum's pitch is shorter than the row";
  const uint64_t bits = (uintptr_t)batch->dst | (uint64_t)batch->dstPitch | (uint64_t)rowBytes;
  if (bits % (uint64_t)format.bytes != 0) return "the sum lies between elements";
  if (batch->wide && bits % 16 != 0) return "a wide batch is not 16-byte aligned";
  if (!fakeDeviceReaches(device, batch->dst, spanOf(batch->rows, batch->dstPitch, rowBytes))) {
    return "the sum is not within one block of this device's memory";
  }
  for (int i = 0; i < batch->count; i++) {
    const char* fault = faultOfAddend(batch, &batch->addends[i], format, device);
    if (fault != NULL) return fault;
  }
  for (int64_t row = 0; row < batch->rows; row++) {
    int i = 0;
    while (i < batch->count && !covers(&batch->addends[i], row)) i++;
    if (i == batch->count) return "a row has no addend";
  }
  return NULL;
}

static void sumRow(const ulyxSumBatch* batch, Format format, int64_t row) {
  for (int64_t element = 0; element < batch->rowElements; element++) {
    float sum = 0;
    bool begun = false;
    for (int i = 0; i < batch->count; i++) {
      const ulyxSumAddend* addend = &batch->addends[i];
      if (!covers(addend, row)) continue;
      const float value =
          loadElement(format, addend->data + (row - addend->firstRow) * addend->pitch + element * format.bytes);
      sum = begun ? (float)((double)sum + (double)value) : value;
      begun = true;
    }
    storeElement(format, sum, batch->dst + row * batch->dstPitch + element * format.bytes);
  }
}

static cudaError_t enter(const char* function, cudaStream_t stream, int* device) {
  const cudaError_t error = fakeStreamDevice(stream, device);
  if (error != cudaSuccess) return error;
  if (*device == fakeCurrentDevice()) return cudaSuccess;
  fakeViolation("%s: a stream of device %d while device %d is current", function, *device, fakeCurrentDevice());
  return fakeCudaResult(cudaErrorInvalidResourceHandle);
}

static cudaError_t refuse(const char* function, int device, const char* fault) {
  fakeViolation("%s: on device %d: %s", function, device, fault);
  return fakeCudaResult(cudaErrorInvalidValue);
}

cudaError_t ulyxLaunchSum(const ulyxSumBatch* batch, int maxCtas, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  if (batch->rows == 0) return cudaSuccess;
  int device;
  const cudaError_t error = enter("ulyxLaunchSum", stream, &device);
  if (error != cudaSuccess) return error;
  Format format;
  if (maxCtas < 0) return refuse("ulyxLaunchSum", device, "maxCtas is negative");
  if (!formatOf(batch->type, &format)) return refuse("ulyxLaunchSum", device, "a type that is not summed");
  const char* fault = faultOfSum(batch, format, device);
  if (fault != NULL) return refuse("ulyxLaunchSum", device, fault);
  if (fakeIsSkipped(batch->skip)) return cudaSuccess;
  fakeCount(FAKE_COUNTER(sums), 1);
  for (int64_t row = 0; row < batch->rows; row++) sumRow(batch, format, row);
  return cudaSuccess;
}

/* ---- The chain -------------------------------------------------------------------------------------- */

static bool reaches(int device, const void* floats, int64_t count) {
  return (uintptr_t)floats % sizeof(float) == 0 && fakeDeviceReaches(device, floats, count * (int64_t)sizeof(float));
}

static const char* faultOfChain(const ulyxChainArgs* args, int device) {
  const int64_t states = args->heads * args->keyDim * args->valueDim;
  const int64_t matrices = args->heads * args->keyDim * args->keyDim;
  if (args->heads < 1 || args->keyDim < 1 || args->valueDim < 1) return "an empty state";
  if (args->keyDim > ULYX_CHAIN_MAX_KEY_DIM) return "keyDim is more than 384";
  if (args->hopCount < 0) return "a negative number of hops";
  if (!reaches(device, args->received, states)) return "`received` is not this device's";
  if (args->initial != NULL && !reaches(device, args->initial, states)) return "`initial` is not this device's";
  for (int hop = 0; hop < args->hopCount; hop++) {
    if (args->hopBytes < (states + matrices) * (int64_t)sizeof(float)) return "hops overlap";
    if (!reaches(device, args->hops + hop * args->hopBytes, states + matrices)) return "a hop is not this device's";
  }
  if (args->final == NULL) return NULL;
  if (!reaches(device, args->final, states)) return "`final` is not this device's";
  if (!reaches(device, args->ownState, states)) return "the own state is not this device's";
  if (!reaches(device, args->ownMatrix, matrices)) return "the own transition is not this device's";
  if (args->ownStart != NULL && !reaches(device, args->ownStart, states)) return "the own start is not this device's";
  return NULL;
}

/* One element of S + M from (M transposed or not), row k, one column; `stride` is between rows of both. */
static float merged(const ulyxChainArgs* args, const float* state, const float* matrix, const float* from, int64_t k) {
  float value = state[k * args->valueDim];
  for (int64_t j = 0; j < args->keyDim; j++) {
    const float m = args->transposed ? matrix[k + j * args->keyDim] : matrix[k * args->keyDim + j];
    value = fmaf(m, from[j], value);
  }
  return value;
}

static void startFrom(const ulyxChainArgs* args, const float* state, float* to) {
  for (int64_t k = 0; k < args->keyDim; k++) to[k] = state != NULL ? state[k * args->valueDim] : 0.0f;
}

static void chainColumn(const ulyxChainArgs* args, int64_t head, int64_t column) {
  const int64_t stateAt = head * args->keyDim * args->valueDim + column;
  const int64_t matrixAt = head * args->keyDim * args->keyDim;
  float now[ULYX_CHAIN_MAX_KEY_DIM], next[ULYX_CHAIN_MAX_KEY_DIM];
  startFrom(args, args->initial != NULL ? args->initial + stateAt : NULL, now);
  for (int hop = 0; hop < args->hopCount; hop++) {
    const float* states = (const float*)(const void*)(args->hops + hop * args->hopBytes);
    const float* matrices = states + args->heads * args->keyDim * args->valueDim;
    for (int64_t k = 0; k < args->keyDim; k++) next[k] = merged(args, states + stateAt, matrices + matrixAt, now, k);
    memcpy(now, next, (size_t)args->keyDim * sizeof *now);
  }
  for (int64_t k = 0; k < args->keyDim; k++) args->received[stateAt + k * args->valueDim] = now[k];
  if (args->final == NULL) return;
  if (args->startsHere) startFrom(args, args->ownStart != NULL ? args->ownStart + stateAt : NULL, now);
  for (int64_t k = 0; k < args->keyDim; k++) {
    args->final[stateAt + k * args->valueDim] =
        merged(args, args->ownState + stateAt, args->ownMatrix + matrixAt, now, k);
  }
}

cudaError_t ulyxLaunchChain(const ulyxChainArgs* args, int maxCtas, cudaStream_t stream) {
  (void)maxCtas;
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  int device;
  const cudaError_t error = enter("ulyxLaunchChain", stream, &device);
  if (error != cudaSuccess) return error;
  const char* fault = faultOfChain(args, device);
  if (fault != NULL) return refuse("ulyxLaunchChain", device, fault);
  if (fakeIsSkipped(args->skip)) return cudaSuccess;
  fakeCount(FAKE_COUNTER(chains), 1);
  for (int64_t head = 0; head < args->heads; head++) {
    for (int64_t column = 0; column < args->valueDim; column++) chainColumn(args, head, column);
  }
  return cudaSuccess;
}

cudaError_t ulyxLoadSum(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}

cudaError_t ulyxLoadChain(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}

/* ---- Stores ----------------------------------------------------------------------------------------- */

cudaError_t ulyxLaunchStore(const ulyxStoreBatch* batch, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  if (batch->count == 0) return cudaSuccess;
  int device;
  const cudaError_t error = enter("ulyxLaunchStore", stream, &device);
  if (error != cudaSuccess) return error;
  if (batch->count < 0 || batch->count > ULYX_STORE_MANY) {
    return refuse("ulyxLaunchStore", device, "values are not in 0 to 7500");
  }
  if (!reaches(device, batch->dst, batch->count)) {
    return refuse("ulyxLaunchStore", device, "the destination is not within one block of this device's memory");
  }
  fakeCount(FAKE_COUNTER(stores), 1);
  memcpy(batch->dst, batch->values, (size_t)batch->count * sizeof *batch->values);
  return cudaSuccess;
}

cudaError_t ulyxLoadStore(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}

/* ---- Labels ----------------------------------------------------------------------------------------- */

static bool reachesLabels(int device, const ulyxLabel* labels, int32_t ranks) {
  return fakeDeviceReaches(device, labels, (int64_t)sizeof *labels * ULYX_LABEL_FROM(ranks));
}

static void beginLabels(const ulyxLabelWrite* write) {
  ulyxLabelOverlap* overlap = (ulyxLabelOverlap*)write->overlap;
  const uint64_t running = __atomic_exchange_n(&write->run->running, write->own.number, __ATOMIC_ACQ_REL);
  if (running != 0 && __atomic_exchange_n(&write->run->told, 1, __ATOMIC_ACQ_REL) == 0) {
    overlap->number = write->own.number;
    overlap->running = running;
    __atomic_store_n(&overlap->found, 1, __ATOMIC_RELEASE);
  }
  write->labels[ULYX_LABEL_OWN] = write->own;
}

cudaError_t ulyxLaunchLabelWrite(const ulyxLabelWrite* write, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  int device;
  const cudaError_t error = enter(__func__, stream, &device);
  if (error != cudaSuccess) return error;
  if (write->count < 1 || write->count > ULYX_LABEL_RANKS_A_LAUNCH || write->firstRank < 0) {
    return refuse(__func__, device, "ranks are not in 1 to 512");
  }
  if (!reachesLabels(device, write->labels, write->firstRank + write->count)) {
    return refuse(__func__, device, "the labels are not within one block of this device's memory");
  }
  fakeCount(FAKE_COUNTER(labels), 1);
  if (write->firstRank == 0) beginLabels(write);
  for (int i = 0; i < write->count; i++) {
    const bool awaited = (write->awaited[i / 64] >> (i % 64) & 1) != 0;
    write->labels[ULYX_LABEL_FROM(write->firstRank + i)] =
        (ulyxLabel){.state = awaited ? ulyxLabelAwaited : ulyxLabelNone};
  }
  return cudaSuccess;
}

cudaError_t ulyxLaunchLabelCompare(const ulyxLabelCompare* compare, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  int device;
  const cudaError_t error = enter(__func__, stream, &device);
  if (error != cudaSuccess) return error;
  if (!reachesLabels(device, compare->labels, compare->nRanks)) {
    return refuse(__func__, device, "the labels are not within one block of this device's memory");
  }
  const ulyxLabel* own = &compare->labels[ULYX_LABEL_OWN];
  ulyxMislabelled* found = (ulyxMislabelled*)compare->found;
  for (int rank = 0; rank < compare->nRanks; rank++) {
    const ulyxLabel* from = &compare->labels[ULYX_LABEL_FROM(rank)];
    if (from->state != ulyxLabelWritten || from->signature == own->signature) continue;
    if (__atomic_load_n(&found->peer, __ATOMIC_ACQUIRE) != 0) break;
    found->mine = *own;
    found->theirs = *from;
    __atomic_store_n(&found->peer, 1 + (uint32_t)rank, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&compare->run->running, 0, __ATOMIC_RELEASE);
  return cudaSuccess;
}

cudaError_t ulyxLoadLabels(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}
