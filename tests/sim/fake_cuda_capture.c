/* SPDX-License-Identifier: MIT
 *
 * The rules of stream capture, for streams that a test declares captured: a stream that waits for an event of
 * the capture becomes part of it and must be waited for by the capture's own stream before the end; events from
 * outside must not be waited for inside; the host must not ask for the state of what is only being written down;
 * calls that could wait for it are forbidden to the capturing thread, and if the capture was begun in global mode to
 * every thread, unless their own mode is relaxed. The fake NCCL's own calls stand for what NCCL does otherwise, and
 * obey none of this. */
#include <stdatomic.h>
#include <stdlib.h>

#include "fake_cuda.h"

static _Thread_local int captures; /* that this thread has begun */
static atomic_int globalCaptures;  /* of any thread, in global mode */

struct CUuserObject_st {
  cudaUserObject_t next;
  cudaHostFn_t destroy;
  void* pointer;
};

/* The graph is gone as soon as its capture ends. */
static void letGo(cudaStream_t stream) {
  while (stream->retained != NULL) {
    const cudaUserObject_t object = stream->retained;
    stream->retained = object->next;
    (void)cudaUserObjectRelease(object, 1);
  }
}

void fakeSetCapturing(cudaStream_t stream, int capturing) {
  if ((stream->capture != NULL) == (capturing != 0)) return;
  captures += capturing != 0 ? 1 : -1;
  if (capturing != 0) {
    stream->capture = stream;
    return;
  }
  for (int i = 0; i < stream->forkCount; i++) {
    if (!stream->forks[i]->joined) fakeViolation("a stream that joined a capture was not joined back at its end");
    stream->forks[i]->capture = NULL;
  }
  stream->forkCount = 0;
  stream->capture = NULL;
  letGo(stream);
}

void fakeSetCapturingGlobally(cudaStream_t stream, int capturing) {
  if ((stream->capture != NULL) != (capturing != 0)) globalCaptures += capturing != 0 ? 1 : -1;
  fakeSetCapturing(stream, capturing);
}

cudaError_t fakeCaptureForbids(const char* function) {
  const enum cudaStreamCaptureMode mode = fakeCaptureMode();
  if (fakeIsQuiet() || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  if (captures > 0) {
    fakeViolation("%s while the thread captures a stream", function);
  } else if (mode == cudaStreamCaptureModeGlobal && globalCaptures > 0) {
    fakeViolation("%s while another thread captures a stream in global mode", function);
  } else {
    return cudaSuccess;
  }
  return fakeCudaResult(cudaErrorStreamCaptureUnsupported);
}

cudaError_t fakeCaptureAsks(cudaStream_t stream, const char* function) {
  const cudaStream_t own = fakeOwnStream(stream);
  if (own == NULL || own->capture == NULL || fakeIsQuiet()) return cudaSuccess;
  fakeViolation("%s of a stream that is being captured", function);
  return fakeCudaResult(cudaErrorStreamCaptureUnsupported);
}

void fakeCaptureRecords(cudaEvent_t event, cudaStream_t stream) {
  const cudaStream_t own = fakeOwnStream(stream);
  if (fakeIsQuiet()) return;
  event->stream = own;
  event->capture = own != NULL ? own->capture : NULL;
}

static cudaError_t joinCapture(cudaStream_t stream, cudaStream_t capture) {
  if (capture->forkCount == FAKE_MAX_FORKS) {
    fakeViolation("more than %d streams join one capture", FAKE_MAX_FORKS);
    return fakeCudaResult(cudaErrorStreamCaptureUnsupported);
  }
  capture->forks[capture->forkCount++] = stream;
  stream->capture = capture;
  stream->joined = false;
  return cudaSuccess;
}

cudaError_t fakeCaptureWaits(cudaStream_t stream, cudaEvent_t event) {
  const cudaStream_t own = fakeOwnStream(stream);
  if (own == NULL || fakeIsQuiet() || event->recordedNs == 0) return cudaSuccess;
  if (own->capture == NULL) return event->capture != NULL ? joinCapture(own, event->capture) : cudaSuccess;
  if (event->capture != own->capture) {
    fakeViolation("a stream that is being captured waits for an event from outside the capture");
    return fakeCudaResult(cudaErrorStreamCaptureIsolation);
  }
  if (own == own->capture) event->stream->joined = true;
  return cudaSuccess;
}

/* A stream that is captured stands for its graph. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  FAKE_CUDA(cudaErrorUnknown);
  (void)id, (void)dependencies, (void)edges, (void)count;
  *status = stream->capture != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *graph = (cudaGraph_t)(void*)stream->capture;
  return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned int count,
                                 unsigned int flags) {
  FAKE_CUDA(cudaErrorUnknown);
  (void)flags;
  cudaUserObject_t made = count == 1 ? calloc(1, sizeof *made) : NULL;
  if (made == NULL) return fakeCudaResult(cudaErrorInvalidValue);
  made->destroy = destroy;
  made->pointer = pointer;
  *object = made;
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  (void)count;
  object->destroy(object->pointer);
  free(object);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  FAKE_CUDA(cudaErrorUnknown);
  const cudaStream_t stream = (cudaStream_t)(void*)graph;
  if (stream == NULL || count != 1 || flags != cudaGraphUserObjectMove) return fakeCudaResult(cudaErrorInvalidValue);
  object->next = stream->retained;
  stream->retained = object;
  return cudaSuccess;
}
