/* SPDX-License-Identifier: MIT
 *
 * One exchange by the copy engines. A one-block kernel meets the peers; then copies into their memory run on a stream
 * of their own, ending for each peer with a copy of the epoch into its record of this engine; beside them a second
 * kernel makes the rank's own copies, stores what the wire can carry until the engines have started, and waits for the
 * peers' stores and engines. So the wire is busy from the first meeting to the last.
 *
 * Peers are served one after the other, in order of their distance: equal parts go on in step, and at any time every
 * rank writes to another. Engines that write to several peers at once share the wire far worse.
 *
 * The host computes the peers' addresses, so their outputs must lie where this rank's lie; the meeting checks that.
 *
 * Undisturbed, the own copies are an engine's as well, and the second kernel is one warp that waits. It comes after
 * this rank's engines, when the peers' are about done too: a warp that waits keeps others off its multiprocessor. */
#include <limits.h>
#include <stddef.h>

#include "check.h"
#include "gpu_exchange.h"

/* What stores carry while the engines start. */
#define HEAD_BYTES (INT64_C(5) << 19)

/* Blocks of the second kernel: enough for that, and few enough that own copies leave the memory to the engines. */
#define STORE_CTAS 132

static ulyxResult_t copyRows(unsigned char* dst, const unsigned char* src, const ulyxCopy* copy, int64_t rows,
                             cudaStream_t stream) {
  const bool dense = copy->srcPitch == copy->rowBytes && copy->dstPitch == copy->rowBytes;
  if (rows == 0) return ulyxSuccess;
  if (rows == 1 || dense) {
    return ULYX_CUDA(cudaMemcpyAsync(dst, src, (size_t)(rows * copy->rowBytes), cudaMemcpyDefault, stream));
  }
  if (copy->srcPitch <= INT_MAX && copy->dstPitch <= INT_MAX) {
    return ULYX_CUDA(cudaMemcpy2DAsync(dst, (size_t)copy->dstPitch, src, (size_t)copy->srcPitch, (size_t)copy->rowBytes,
                                       (size_t)rows, cudaMemcpyDefault, stream));
  }
  for (int64_t row = 0; row < rows; ++row) { /* longer pitches than CUDA takes */
    ULYX_TRY(ULYX_CUDA(cudaMemcpyAsync(dst + row * copy->dstPitch, src + row * copy->srcPitch, (size_t)copy->rowBytes,
                                       cudaMemcpyDefault, stream)));
  }
  return ulyxSuccess;
}

/* Rows of a copy that are stored rather than left to the engines; *left is what the head still takes. */
static int64_t headRows(const ulyxCopy* copy, int64_t* left) {
  const int64_t rows = ulyxMin64(copy->rows, *left / copy->rowBytes);
  *left -= rows * copy->rowBytes;
  return rows;
}

static int64_t headBytes(const ulyxGpu* gpu) {
  return gpu->facts.undisturbed ? 0 : HEAD_BYTES / ulyxMax64(1, gpu->world.nRanks - 1);
}

/* The second kernel; undisturbed it stores nothing. */
static ulyxResult_t storeAndLeave(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxPhase* const phase = exchange->phase;
  const int rank = phase->rank;
  for (int distance = 1; distance < phase->nRanks; ++distance) {
    const int peer = (rank + distance) % phase->nRanks;
    int64_t left = headBytes(gpu);
    for (int64_t c = phase->sendStart[peer]; c < phase->sendStart[peer + 1]; ++c) {
      const int64_t rows = headRows(&phase->copies[c], &left);
      ULYX_TRY(ulyxGpuExchangeAdd(gpu, exchange, &phase->copies[c], peer, 0, rows));
    }
  }
  for (int64_t c = phase->sendStart[rank]; !gpu->facts.undisturbed && c < phase->sendStart[rank + 1]; ++c) {
    ULYX_TRY(ulyxGpuExchangeAdd(gpu, exchange, &phase->copies[c], rank, 0, phase->copies[c].rows));
  }
  gpu->exchange.meeting.leaves = 1;
  const int ctas = gpu->directCtas < STORE_CTAS ? gpu->directCtas : STORE_CTAS;
  return ulyxGpuExchangeLaunch(gpu, exchange->stream, ctas, ULYX_EXCHANGE_PEERS_FIRST);
}

static ulyxResult_t copyToPeer(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs, int peer,
                               cudaStream_t stream) {
  const ulyxPhase* const phase = exchange->phase;
  int64_t left = headBytes(gpu);
  for (int64_t c = phase->sendStart[peer]; c < phase->sendStart[peer + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const int64_t stored = headRows(copy, &left);
    const int buffer = copy->dstBuffer;
    void* const base = ulyxWindowsPeer(&gpu->windows, outputs->arena[buffer]->number, peer);
    ULYX_TRY(copyRows(ulyxAt(base, outputs->offset[buffer] + copy->dstOffset + stored * copy->dstPitch),
                      ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset + stored * copy->srcPitch), copy,
                      copy->rows - stored, stream));
  }
  return ulyxSuccess;
}

/* Behind an engine's data: the peer sees the epoch only once it has all of it. */
static ulyxResult_t tellPeer(const ulyxGpu* gpu, int peer, cudaStream_t stream) {
  const size_t at = offsetof(ulyxRecords, engineExit) + (size_t)gpu->world.rank * sizeof(ulyxSlot);
  void* const records = ulyxWindowsPeer(&gpu->windows, gpu->meetings.records->number, peer);
  return ULYX_CUDA(cudaMemcpyAsync(ulyxAt(records, (int64_t)(at + offsetof(ulyxSlot, epoch))),
                                   &gpu->meetings.state->entered, sizeof(uint64_t), cudaMemcpyDefault, stream));
}

/* A peer is told only of data that is on its way. */
static ulyxResult_t runEngines(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs) {
  const int rank = gpu->world.rank, nRanks = gpu->world.nRanks;
  for (int distance = 1; distance < nRanks; ++distance) {
    const int peer = (rank + distance) % nRanks;
    const cudaStream_t stream = gpu->engines[(distance - 1) % gpu->engineCount].stream;
    ULYX_TRY(copyToPeer(gpu, exchange, outputs, peer, stream));
    ULYX_TRY(tellPeer(gpu, peer, stream));
  }
  return ulyxSuccess;
}

static ulyxResult_t copyOwnByEngine(const ulyxExchange* exchange, cudaStream_t stream) {
  const ulyxPhase* const phase = exchange->phase;
  for (int64_t c = phase->sendStart[phase->rank]; c < phase->sendStart[phase->rank + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    ULYX_TRY(copyRows(ulyxAt(exchange->dst[copy->dstBuffer], copy->dstOffset),
                      ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset), copy, copy->rows, stream));
  }
  return ulyxSuccess;
}

/* Everything between the first meeting and the joins. *forked counts the engines that have begun. */
static ulyxResult_t exchangeForked(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs, int* forked,
                                   bool* besideForked) {
  ULYX_TRY(ULYX_CUDA(cudaEventRecord(gpu->fork, exchange->stream)));
  for (; *forked < gpu->engineCount; ++*forked) ULYX_TRY(ulyxBranchFork(gpu, &gpu->engines[*forked]));
  ULYX_TRY(runEngines(gpu, exchange, outputs));
  if (gpu->facts.undisturbed) {
    ULYX_TRY(ulyxBranchFork(gpu, &gpu->beside));
    *besideForked = true;
    return copyOwnByEngine(exchange, gpu->beside.stream);
  }
  return storeAndLeave(gpu, exchange);
}

ulyxResult_t ulyxCopyEngineCarry(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxOutputs outputs = ulyxGpuFindOutputs(gpu, exchange, true);
  int forked = 0;
  bool besideForked = false;
  ulyxGpuExchangeBegin(gpu, exchange, &outputs);
  gpu->exchange.meeting.samePlaces = 1;
  gpu->exchange.meeting.engines = 1;
  gpu->exchange.meeting.leaves = 0;
  ULYX_TRY(ulyxGpuExchangeLaunch(gpu, exchange->stream, 1, 0));
  ulyxResult_t result = exchangeForked(gpu, exchange, &outputs, &forked, &besideForked);
  /* on every path: a capture with an unjoined stream could not be ended */
  for (int i = 0; i < forked; ++i) ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->engines[i], exchange->stream));
  if (besideForked) ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->beside, exchange->stream));
  if (result == ulyxSuccess && gpu->facts.undisturbed) result = storeAndLeave(gpu, exchange);
  return result != ulyxSuccess ? result : ulyxGpuBringHome(gpu, exchange, &outputs);
}
