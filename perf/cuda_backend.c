/* SPDX-License-Identifier: MIT
 *
 * Ranks on GPUs: device memory, and the pattern filled and counted there, since sizes reach gigabytes. */
#include "cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "report.h"

/* Samples are events apart, so a timed sample is an exchange or a few: the events weigh about as much as one
 * kernel launch. */
#define CUDA_PER_SAMPLE 5
#define CUDA_POLL_NS 20000

typedef struct cudaState {
  unsigned long long* wrong; /* device memory */
} cudaState_t;

bool perfCudaOk(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  perfError("%s: %s", what, cudaGetErrorString(error));
  return false;
}

bool perfNcclOk(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return true;
  perfError("%s: %s: %s", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  return false;
}

bool perfCudaWait(perfRank_t* me, cudaStream_t stream) {
  const double timeoutUs = (double)me->options->timeoutSeconds * 1e6;
  const double startUs = perfNowUs();
  const struct timespec pause = {0, CUDA_POLL_NS};
  for (;;) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady) return perfCudaOk(error, "cudaStreamQuery");
    if (perfTeamFailed(me->team)) return false;
    if (perfNowUs() - startUs > timeoutUs) {
      perfError("rank %d: what it enqueued was not done after %lld s", me->rank,
                (long long)me->options->timeoutSeconds);
      return false;
    }
    (void)nanosleep(&pause, NULL);
  }
}

static bool cudaBackendOpen(perfRank_t* me) {
  if (!perfCudaOk(cudaSetDevice(me->device), "cudaSetDevice")) return false;
  cudaState_t* state = calloc(1, sizeof(*state));
  if (state == NULL) {
    perfError("out of memory for rank %d", me->rank);
    return false;
  }
  me->backendState = state;
  return perfCudaOk(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") &&
         perfCudaOk(cudaMalloc((void**)&state->wrong, sizeof(*state->wrong)), "cudaMalloc");
}

/* Also after a failed open. */
static void cudaBackendClose(perfRank_t* me) {
  cudaState_t* state = me->backendState;
  if (me->comm != NULL) (void)perfNcclOk(ncclCommDestroy(me->comm), "ncclCommDestroy");
  if (state != NULL && state->wrong != NULL) (void)perfCudaOk(cudaFree(state->wrong), "cudaFree");
  if (me->stream != NULL) (void)perfCudaOk(cudaStreamDestroy(me->stream), "cudaStreamDestroy");
  free(state);
  me->comm = NULL;
  me->backendState = NULL;
  me->stream = NULL;
}

static void cudaDescribe(const perfRank_t* me, char* text, size_t bytes) {
  char name[64] = "unknown";
  char busId[32] = "";
  struct cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, me->device) == cudaSuccess) {
    (void)snprintf(name, sizeof(name), "%.63s", properties.name);
  }
  (void)cudaDeviceGetPCIBusId(busId, (int)sizeof(busId), me->device);
  (void)snprintf(text, bytes, "device %d [%s] %s", me->device, busId, name);
}

static bool cudaAlloc(perfRank_t* me, int64_t bytes, void** ptr) {
  (void)me;
  return perfCudaOk(cudaMalloc(ptr, (size_t)bytes), "cudaMalloc");
}

static void cudaRelease(perfRank_t* me, void* ptr) {
  (void)me;
  (void)perfCudaOk(cudaFree(ptr), "cudaFree");
}

static bool cudaPoison(perfRank_t* me, void* ptr, int64_t bytes) {
  return perfCudaOk(cudaMemsetAsync(ptr, PERF_POISON_BYTE, (size_t)bytes, me->stream), "cudaMemsetAsync");
}

static bool cudaFill(perfRank_t* me, void* data, const perfView_t* view, uint64_t seed) {
  return perfCudaOk(perfLaunchFill(data, view, seed, me->stream), "launch of the pattern's fill");
}

static bool clearCounter(perfRank_t* me) {
  cudaState_t* state = me->backendState;
  return perfCudaOk(cudaMemsetAsync(state->wrong, 0, sizeof(*state->wrong), me->stream), "cudaMemsetAsync");
}

static bool addCounter(perfRank_t* me, int64_t* wrong) {
  const cudaState_t* state = me->backendState;
  unsigned long long counted = 0;
  if (!perfCudaWait(me, me->stream)) return false;
  if (!perfCudaOk(cudaMemcpy(&counted, state->wrong, sizeof(counted), cudaMemcpyDeviceToHost), "cudaMemcpy")) {
    return false;
  }
  *wrong += (int64_t)counted;
  return true;
}

static bool cudaCountNotPoison(perfRank_t* me, const void* ptr, int64_t bytes, int64_t* wrong) {
  const cudaState_t* state = me->backendState;
  return clearCounter(me) &&
         perfCudaOk(perfLaunchCountNotPoison(ptr, bytes, state->wrong, me->stream), "launch of the canaries' check") &&
         addCounter(me, wrong);
}

static bool cudaCountWrong(perfRank_t* me, const void* data, const perfView_t* view, uint64_t seed, int64_t* wrong) {
  const cudaState_t* state = me->backendState;
  return clearCounter(me) &&
         perfCudaOk(perfLaunchCountWrong(data, view, seed, state->wrong, me->stream),
                    "launch of the pattern's check") &&
         addCounter(me, wrong);
}

static bool cudaFillAddends(perfRank_t* me, void* data, const perfAddends_t* addends, uint64_t seed) {
  return perfCudaOk(perfLaunchFillAddends(data, addends, seed, me->stream), "launch of the addends' fill");
}

static bool cudaCountWrongSums(perfRank_t* me, const void* data, const perfAddends_t* sums, uint64_t seed,
                               int64_t* wrong) {
  const cudaState_t* state = me->backendState;
  return clearCounter(me) &&
         perfCudaOk(perfLaunchCountWrongSums(data, sums, seed, state->wrong, me->stream),
                    "launch of the sums' check") &&
         addCounter(me, wrong);
}

/* cudaMemcpyAsync may itself wait for the stream, which does not look after a failed team. */
static bool cudaPut(perfRank_t* me, void* to, const void* from, int64_t bytes) {
  return bytes == 0 ||
         (perfCudaWait(me, me->stream) &&
          perfCudaOk(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, me->stream), "cudaMemcpyAsync") &&
          perfCudaWait(me, me->stream));
}

static bool cudaGet(perfRank_t* me, void* to, const void* from, int64_t bytes) {
  return bytes == 0 || (perfCudaWait(me, me->stream) &&
                        perfCudaOk(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDeviceToHost), "cudaMemcpy"));
}

static bool cudaDrain(perfRank_t* me) {
  return perfCudaWait(me, me->stream);
}

static const perfBackend_t cudaBackend = {
    .perSample = CUDA_PER_SAMPLE,
    .open = cudaBackendOpen,
    .close = cudaBackendClose,
    .describe = cudaDescribe,
    .alloc = cudaAlloc,
    .release = cudaRelease,
    .poison = cudaPoison,
    .fill = cudaFill,
    .countNotPoison = cudaCountNotPoison,
    .countWrong = cudaCountWrong,
    .fillAddends = cudaFillAddends,
    .countWrongSums = cudaCountWrongSums,
    .put = cudaPut,
    .get = cudaGet,
    .drain = cudaDrain,
    .time = perfCudaTime,
    .timeEnqueue = perfCudaTimeEnqueue,
    .timePeerCopy = perfCudaTimePeerCopy,
    .timeBaseline = perfCudaTimeBaseline,
};

const perfBackend_t* perfCudaBackend(void) {
  return &cudaBackend;
}
