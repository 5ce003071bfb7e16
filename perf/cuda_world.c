/* SPDX-License-Identifier: MIT
 *
 * Runtimes on GPUs: all ranks in this process, or one process a rank over a communicator that is made here
 * from the unique id. That communicator also serves the ranks' gathers and the baseline. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_backend.h"
#include "id_file.h"
#include "report.h"

/* Gathers of ranks that are processes go through device memory. */
typedef struct processGather {
  perfRank_t* me;
  ncclComm_t comm;
  cudaStream_t stream;
  unsigned char* mine; /* device memory, PERF_GATHER_MAX_BYTES */
  unsigned char* all;  /* device memory, nRanks * PERF_GATHER_MAX_BYTES */
} processGather_t;

int perfCudaDeviceCount(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError(); /* no driver is no fault here */
  return 0;
}

static bool gatherProcesses(void* state, const void* mine, size_t bytes, void* all) {
  const processGather_t* gather = state;
  const size_t sentBytes = bytes > 0 ? bytes : 1; /* a barrier still has to send something */
  if (bytes > 0 && !perfCudaOk(cudaMemcpyAsync(gather->mine, mine, bytes, cudaMemcpyHostToDevice, gather->stream),
                               "cudaMemcpyAsync")) {
    return false;
  }
  if (!perfNcclOk(ncclAllGather(gather->mine, gather->all, sentBytes, ncclUint8, gather->comm, gather->stream),
                  "ncclAllGather")) {
    return false;
  }
  if (!perfCudaWait(gather->me, gather->stream)) return false;
  return bytes == 0 ||
         perfCudaOk(cudaMemcpy(all, gather->all, bytes * (size_t)gather->me->nRanks, cudaMemcpyDeviceToHost),
                    "cudaMemcpy");
}

static void freeProcessGather(void* state) {
  processGather_t* gather = state;
  if (gather->all != NULL) (void)perfCudaOk(cudaFree(gather->all), "cudaFree");
  if (gather->mine != NULL) (void)perfCudaOk(cudaFree(gather->mine), "cudaFree");
  if (gather->stream != NULL) (void)perfCudaOk(cudaStreamDestroy(gather->stream), "cudaStreamDestroy");
  free(gather);
}

static bool setProcessGather(perfRank_t* me) {
  processGather_t* gather = calloc(1, sizeof(*gather));
  if (gather == NULL) {
    perfError("out of memory for rank %d", me->rank);
    return false;
  }
  gather->me = me;
  gather->comm = me->comm;
  if (!perfCudaOk(cudaStreamCreateWithFlags(&gather->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") ||
      !perfCudaOk(cudaMalloc((void**)&gather->mine, PERF_GATHER_MAX_BYTES), "cudaMalloc") ||
      !perfCudaOk(cudaMalloc((void**)&gather->all, (size_t)me->nRanks * PERF_GATHER_MAX_BYTES), "cudaMalloc")) {
    freeProcessGather(gather);
    return false;
  }
  perfTeamSetGather(me->team, gatherProcesses, gather, freeProcessGather);
  return true;
}

/* The id that all processes share: NCCL_COMM_ID gives every process the same one, a file carries rank 0's. */
static bool agreeId(const perfOptions_t* options, const perfWorld_t* world, ncclUniqueId* id) {
  if (options->idFile == NULL) return perfNcclOk(ncclGetUniqueId(id), "ncclGetUniqueId");
  ulyxUniqueId_t carried;
  _Static_assert(sizeof(carried) == sizeof(*id), "ulyx's unique id is NCCL's");
  if (world->firstRank == 0) {
    if (!perfUlyxOk(ulyxGetUniqueId(&carried), NULL, "ulyxGetUniqueId")) return false;
    if (!perfIdFileWrite(options->idFile, world->nRanks, world->job, &carried)) return false;
  } else if (!perfIdFileRead(options->idFile, world->nRanks, world->job, (int)options->timeoutSeconds, &carried)) {
    return false;
  }
  memcpy(id, &carried, sizeof(*id));
  return true;
}

static bool createInProcesses(const ulyxConfig_t* config, const perfOptions_t* options, const perfWorld_t* world,
                              perfRank_t* me) {
  ncclUniqueId id;
  me->device = world->localRank % perfCudaDeviceCount(); /* a launcher may show each process only its own GPU */
  if (!perfCudaOk(cudaSetDevice(me->device), "cudaSetDevice")) return false;
  if (!agreeId(options, world, &id)) return false;
  const bool met = perfNcclOk(ncclCommInitRank(&me->comm, world->nRanks, id, me->rank), "ncclCommInitRank");
  if (options->idFile != NULL && world->firstRank == 0) (void)unlink(options->idFile);
  if (!met) return false;
  if (!setProcessGather(me)) goto destroyComm;
  if (!perfUlyxOk(ulyxRuntimeCreateFromComm(config, me->comm, &me->rt), NULL, "ulyxRuntimeCreateFromComm")) {
    goto destroyComm; /* the gather goes with the team */
  }
  me->backend = perfCudaBackend();
  return true;

destroyComm:
  (void)perfNcclOk(ncclCommDestroy(me->comm), "ncclCommDestroy");
  me->comm = NULL;
  return false;
}

static bool createInThreads(const ulyxConfig_t* config, const perfOptions_t* options, const perfWorld_t* world,
                            perfRank_t* ranks) {
  int devices[PERF_MAX_LOCAL_RANKS];
  ulyxRuntime_t runtimes[PERF_MAX_LOCAL_RANKS];
  ncclComm_t comms[PERF_MAX_LOCAL_RANKS];
  const int nRanks = world->nRanks;
  for (int rank = 0; rank < nRanks; rank++) devices[rank] = rank;
  if (!perfUlyxOk(ulyxRuntimeCreateLocal(config, nRanks, devices, runtimes), NULL, "ulyxRuntimeCreateLocal")) {
    return false;
  }
  if (options->baseline > 0 && !perfNcclOk(ncclCommInitAll(comms, nRanks, devices), "ncclCommInitAll")) {
    for (int rank = 0; rank < nRanks; rank++) {
      (void)perfUlyxOk(ulyxRuntimeDestroy(&runtimes[rank]), NULL, "ulyxRuntimeDestroy");
    }
    return false;
  }
  for (int rank = 0; rank < nRanks; rank++) {
    ranks[rank].device = devices[rank];
    ranks[rank].backend = perfCudaBackend();
    ranks[rank].rt = runtimes[rank];
    ranks[rank].comm = options->baseline > 0 ? comms[rank] : NULL;
  }
  return true;
}

bool perfCudaCreateRuntimes(const ulyxConfig_t* config, const perfOptions_t* options, const perfWorld_t* world,
                            perfRank_t* ranks) {
  /* NVLink multicast is left alone, unless the caller's environment asks for it. No thread runs yet. */
  (void)setenv("NCCL_NVLS_ENABLE", "0", 0);
  if (world->kind == perfWorldProcesses) return createInProcesses(config, options, world, &ranks[0]);
  return createInThreads(config, options, world, ranks);
}
