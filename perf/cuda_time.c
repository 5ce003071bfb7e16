/* SPDX-License-Identifier: MIT
 *
 * Timing on a GPU. Everything is enqueued at once with an event between samples, so a sample is what the
 * device took and not what a host round trip took; a rank's median over many hides the uneven start. */
#include <stdlib.h>

#include "cuda_backend.h"
#include "report.h"

#define ENQUEUE_BATCHES 10
#define ENQUEUE_CALLS 20 /* few enough that no launch queue fills up and makes the host wait */

/* Operations back to back, as they are or as one launch of a graph that holds them. */
typedef struct cudaWork {
  const perfTask_t* task;
  int perSample;
  cudaGraphExec_t graph; /* NULL: none */
} cudaWork_t;

static bool enqueueMany(const perfTask_t* task, int count, cudaStream_t stream) {
  for (int i = 0; i < count; i++) {
    if (!task->enqueue(task->state, stream)) return false;
  }
  return true;
}

static bool enqueueSample(const cudaWork_t* work, cudaStream_t stream) {
  if (work->graph == NULL) return enqueueMany(work->task, work->perSample, stream);
  return perfCudaOk(cudaGraphLaunch(work->graph, stream), "cudaGraphLaunch");
}

static bool capture(cudaWork_t* work, cudaStream_t stream) {
  cudaGraph_t graph = NULL;
  /* Other ranks' threads go on with their own calls meanwhile. */
  if (!perfCudaOk(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture")) {
    return false;
  }
  const bool captured = enqueueMany(work->task, work->perSample, stream);
  const bool ended = perfCudaOk(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const bool ok = captured && ended && graph != NULL &&
                  perfCudaOk(cudaGraphInstantiate(&work->graph, graph, 0), "cudaGraphInstantiate");
  if (graph != NULL) (void)perfCudaOk(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return ok;
}

/* events[samples + 1] round the samples; samplesUs[samples] is written. */
static bool runSamples(perfRank_t* me, const cudaWork_t* work, int samples, cudaEvent_t* events, double* samplesUs) {
  if (!perfCudaOk(cudaEventRecord(events[0], me->stream), "cudaEventRecord")) return false;
  for (int i = 0; i < samples; i++) {
    if (!enqueueSample(work, me->stream)) return false;
    if (!perfCudaOk(cudaEventRecord(events[i + 1], me->stream), "cudaEventRecord")) return false;
  }
  if (!perfCudaWait(me, me->stream)) return false;
  for (int i = 0; i < samples; i++) {
    float ms = 0;
    if (!perfCudaOk(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "cudaEventElapsedTime")) return false;
    samplesUs[i] = (double)ms * 1e3 / work->perSample;
  }
  return true;
}

static bool warmUp(perfRank_t* me, const perfTask_t* task, const cudaWork_t* work, int samples) {
  if (!perfTeamBarrier(me->team, me->rank)) return false;
  for (int i = 0; i < samples; i++) {
    if (!enqueueSample(work, me->stream)) return false;
  }
  if (task->refresh != NULL && !task->refresh(task->state)) return false;
  return perfCudaWait(me, me->stream) && perfTeamBarrier(me->team, me->rank);
}

bool perfCudaTime(perfRank_t* me, const perfTask_t* task, const perfRepeat_t* repeat, perfTimes_t* times) {
  const int samples = repeat->samples;
  bool ok = false;
  cudaWork_t work = {task, repeat->perSample, NULL};
  double* samplesUs = calloc((size_t)samples, sizeof(*samplesUs));
  cudaEvent_t* events = calloc((size_t)samples + 1, sizeof(*events)); /* cudaEvent_t is a pointer: NULL is none */
  if (samplesUs == NULL || events == NULL) {
    perfError("out of memory for %d samples", samples);
    goto freeEvents;
  }
  for (int i = 0; i <= samples; i++) {
    if (!perfCudaOk(cudaEventCreate(&events[i]), "cudaEventCreate")) goto freeEvents;
  }
  /* What allocates, frees or instantiates on one GPU may wait for all of this process: ranks pass here, and
   * into warm-up, together. What a first call sets up must not be captured. */
  if (!perfTeamBarrier(me->team, me->rank)) goto freeEvents;
  if (repeat->graph && !(enqueueMany(task, 1, me->stream) && perfCudaWait(me, me->stream))) goto freeEvents;
  if (repeat->graph && !capture(&work, me->stream)) goto freeGraph;
  if (!warmUp(me, task, &work, repeat->warmup)) goto freeGraph;
  if (!runSamples(me, &work, samples, events, samplesUs)) goto freeGraph;
  *times = perfTimesOfSamples(samplesUs + repeat->skip, samples - repeat->skip);
  ok = true;

freeGraph:
  if (work.graph != NULL && !perfCudaOk(cudaGraphExecDestroy(work.graph), "cudaGraphExecDestroy")) ok = false;
freeEvents:
  for (int i = 0; events != NULL && i <= samples; i++) {
    if (events[i] != NULL && !perfCudaOk(cudaEventDestroy(events[i]), "cudaEventDestroy")) ok = false;
  }
  free(events);
  free(samplesUs);
  return ok;
}

bool perfCudaTimeEnqueue(perfRank_t* me, const perfTask_t* task, double* us) {
  double callsUs[ENQUEUE_BATCHES * ENQUEUE_CALLS];
  for (int batch = 0; batch < ENQUEUE_BATCHES; batch++) {
    if (!perfCudaWait(me, me->stream) || !perfTeamBarrier(me->team, me->rank)) return false;
    for (int i = 0; i < ENQUEUE_CALLS; i++) {
      const double startUs = perfNowUs();
      if (!task->enqueue(task->state, me->stream)) return false;
      callsUs[batch * ENQUEUE_CALLS + i] = perfNowUs() - startUs;
    }
  }
  if (!perfCudaWait(me, me->stream)) return false;
  *us = perfTimesOfSamples(callsUs, ENQUEUE_BATCHES * ENQUEUE_CALLS).medianUs;
  return true;
}
