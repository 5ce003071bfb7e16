/* SPDX-License-Identifier: MIT
 *
 * Streams and events. Work is done when it is enqueued, so a recorded event has always completed; recording
 * releases and waiting acquires, so that TSan sees the order that the events stand for. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "fake_cuda.h"

static int64_t nowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

cudaStream_t fakeOwnStream(cudaStream_t stream) {
  return stream == cudaStreamLegacy || stream == cudaStreamPerThread ? NULL : stream;
}

cudaError_t fakeStreamDevice(cudaStream_t stream, int* device) {
  if (fakeOwnStream(stream) == NULL) {
    *device = fakeCurrentDevice();
    return cudaSuccess;
  }
  if (stream->magic != FAKE_STREAM_MAGIC) {
    fakeViolation("%p is not a stream", (void*)stream);
    return fakeCudaResult(cudaErrorInvalidResourceHandle);
  }
  *device = stream->device;
  return cudaSuccess;
}

static cudaError_t createStream(cudaStream_t* stream) {
  cudaStream_t made = malloc(sizeof *made);
  if (made == NULL) return fakeCudaResult(cudaErrorMemoryAllocation);
  *made = (struct CUstream_st){
      .magic = FAKE_STREAM_MAGIC, .device = fakeCurrentDevice(), .birth = fakeBorn(FAKE_COUNTER(streams))};
  *stream = made;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  FAKE_CUDA(cudaErrorMemoryAllocation);
  return createStream(stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  FAKE_CUDA(cudaErrorMemoryAllocation);
  (void)flags;
  return createStream(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  FAKE_CUDA(cudaErrorMemoryAllocation);
  (void)flags;
  (void)priority;
  return createStream(stream);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CUDA(cudaErrorUnknown);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  FAKE_CUDA_RELEASE(cudaErrorUnknown);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  if (error != cudaSuccess) return error;
  if (fakeOwnStream(stream) == NULL) return fakeCudaResult(cudaErrorInvalidResourceHandle);
  fakeDied(FAKE_COUNTER(streams), stream->birth);
  stream->magic = 0;
  free(stream);
  return struck;
}

static cudaError_t ask(cudaStream_t stream, const char* function) {
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  return error != cudaSuccess ? error : fakeCaptureAsks(stream, function);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  const cudaError_t error = ask(stream, __func__);
  if (error == cudaSuccess) fakeWaitWhileHanging(__func__);
  return error;
}

static bool hangs(cudaStream_t stream) {
  return (fakeOwnStream(stream) == NULL || atomic_load(&stream->follows)) && fakeIsHanging();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  const cudaError_t error = ask(stream, __func__);
  return error == cudaSuccess && (hangs(stream) || fakeBusy()) ? fakeCudaResult(cudaErrorNotReady) : error;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  FAKE_CUDA(cudaErrorUnknown);
  return fakeStreamDevice(stream, device);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  FAKE_CUDA(cudaErrorUnknown);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  if (error != cudaSuccess) return error;
  const cudaStream_t own = fakeOwnStream(stream);
  *status = own != NULL && own->capture != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

static cudaError_t checkEvent(cudaEvent_t event) {
  if (event != NULL && event->magic == FAKE_EVENT_MAGIC) return cudaSuccess;
  fakeViolation("%p is not an event", (void*)event);
  return fakeCudaResult(cudaErrorInvalidResourceHandle);
}

static cudaError_t createEvent(cudaEvent_t* event, bool timed) {
  cudaEvent_t made = malloc(sizeof *made);
  if (made == NULL) return fakeCudaResult(cudaErrorMemoryAllocation);
  *made = (struct CUevent_st){.magic = FAKE_EVENT_MAGIC,
                              .device = fakeCurrentDevice(),
                              .birth = fakeBorn(FAKE_COUNTER(events)),
                              .timed = timed};
  *event = made;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  FAKE_CUDA(cudaErrorMemoryAllocation);
  return createEvent(event, true);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  FAKE_CUDA(cudaErrorMemoryAllocation);
  return createEvent(event, (flags & cudaEventDisableTiming) == 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FAKE_CUDA_RELEASE(cudaErrorUnknown);
  const cudaError_t error = checkEvent(event);
  if (error != cudaSuccess) return error;
  fakeDied(FAKE_COUNTER(events), event->birth);
  event->magic = 0;
  free(event);
  return struck;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  int device = 0;
  cudaError_t error = checkEvent(event);
  if (error == cudaSuccess) error = fakeStreamDevice(stream, &device);
  if (error != cudaSuccess) return error;
  if (event->device != device) {
    fakeViolation("cudaEventRecord: the event is of device %d, the stream of device %d", event->device, device);
    return fakeCudaResult(cudaErrorInvalidResourceHandle);
  }
  if (fakeOwnStream(stream) != NULL) atomic_store(&stream->follows, true);
  fakeCaptureRecords(event, stream);
  atomic_store_explicit(&event->recordedNs, nowNs(), memory_order_release);
  return cudaSuccess;
}

static cudaError_t waitForEvent(cudaEvent_t event) {
  const cudaError_t error = checkEvent(event);
  if (error != cudaSuccess) return error;
  atomic_load_explicit(&event->recordedNs, memory_order_acquire);
  return cudaSuccess;
}

static cudaError_t askEvent(cudaEvent_t event, const char* function) {
  const cudaError_t error = waitForEvent(event);
  if (error != cudaSuccess || event->capture == NULL) return error;
  fakeViolation("%s: the event is part of a capture", function);
  return fakeCudaResult(cudaErrorCapturedEvent);
}

static bool lags(cudaEvent_t event) {
  const int lagMs = fakeLagMs();
  return lagMs > 0 && nowNs() - atomic_load(&event->recordedNs) < lagMs * INT64_C(1000000);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CUDA_UNSAFE(cudaErrorUnknown);
  const cudaError_t error = askEvent(event, __func__);
  return error == cudaSuccess && (fakeIsHanging() || fakeBusy() || lags(event)) ? fakeCudaResult(cudaErrorNotReady)
                                                                                : error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_CUDA_UNSAFE(cudaErrorUnknown);
  const cudaError_t error = askEvent(event, __func__);
  if (error == cudaSuccess) fakeWaitWhileHanging(__func__);
  return error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  FAKE_CUDA(cudaErrorUnknown);
  (void)flags;
  int device;
  cudaError_t error = fakeStreamDevice(stream, &device);
  if (error == cudaSuccess) error = waitForEvent(event);
  if (error == cudaSuccess && fakeOwnStream(stream) != NULL) atomic_store(&stream->follows, true);
  return error != cudaSuccess ? error : fakeCaptureWaits(stream, event);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  FAKE_CUDA(cudaErrorUnknown);
  cudaError_t error = checkEvent(start);
  if (error == cudaSuccess) error = checkEvent(end);
  if (error != cudaSuccess) return error;
  const int64_t from = atomic_load_explicit(&start->recordedNs, memory_order_acquire);
  const int64_t to = atomic_load_explicit(&end->recordedNs, memory_order_acquire);
  if (!start->timed || !end->timed || from == 0 || to == 0) return fakeCudaResult(cudaErrorInvalidResourceHandle);
  *ms = (float)((double)(to - from) / 1e6);
  return cudaSuccess;
}
