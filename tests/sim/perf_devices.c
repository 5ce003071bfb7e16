/* SPDX-License-Identifier: MIT
 *
 * Lets a perf program run on the fakes: its own choice of ranks and devices (perf/world.c, perf/cuda_world.c) with
 * ULYX_FAKE_DEVICES devices, whose memory is the host's, so that the pattern is the CPU's too. Nothing it times means
 * anything. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_backend.h"
#include "fake.h"
#include "report.h"

bool perfCudaOk(cudaError_t error, const char* what) {
  if (error != cudaSuccess) perfError("%s: %s", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

bool perfNcclOk(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) perfError("%s: %s", what, ncclGetErrorString(result));
  return result == ncclSuccess;
}

bool perfCudaWait(perfRank_t* me, cudaStream_t stream) {
  (void)me;
  return perfCudaOk(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static bool openDevice(perfRank_t* me) {
  return perfCudaOk(cudaSetDevice(me->device), "cudaSetDevice") &&
         perfCudaOk(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

static void closeDevice(perfRank_t* me) {
  if (me->stream != NULL) (void)perfCudaOk(cudaStreamDestroy(me->stream), "cudaStreamDestroy");
  me->stream = NULL;
}

/* The device that is current in the rank's thread, and not the one that it was given. */
static void describeDevice(const perfRank_t* me, char* text, size_t bytes) {
  int device = -1;
  (void)me;
  (void)perfCudaOk(cudaGetDevice(&device), "cudaGetDevice");
  (void)snprintf(text, bytes, "device %d fake", device);
}

static bool allocOnDevice(perfRank_t* me, int64_t bytes, void** ptr) {
  (void)me;
  return perfCudaOk(cudaMalloc(ptr, (size_t)bytes), "cudaMalloc");
}

static void releaseOnDevice(perfRank_t* me, void* ptr) {
  (void)me;
  (void)perfCudaOk(cudaFree(ptr), "cudaFree");
}

static bool drainDevice(perfRank_t* me) {
  return perfCudaWait(me, me->stream);
}

static bool noPeerCopy(perfRank_t* me, int64_t bytes, double* us) {
  (void)me, (void)bytes;
  *us = PERF_NOT_MEASURED;
  return true;
}

static perfBackend_t fakeBackend;

__attribute__((constructor)) static void makeMachine(void) {
  const char* devices = getenv("ULYX_FAKE_DEVICES");
  fakeSetDeviceCount(devices != NULL ? atoi(devices) : 0);
  fakeBackend = *perfCpuBackend();
  fakeBackend.open = openDevice;
  fakeBackend.close = closeDevice;
  fakeBackend.describe = describeDevice;
  fakeBackend.alloc = allocOnDevice;
  fakeBackend.release = releaseOnDevice;
  fakeBackend.drain = drainDevice;
  fakeBackend.timePeerCopy = noPeerCopy;
}

const perfBackend_t* perfCudaBackend(void) {
  return &fakeBackend;
}
