/* SPDX-License-Identifier: MIT
 *
 * What the fake CUDA's files share. Every call that can fail starts with FAKE_CUDA, or, if it releases
 * something, with FAKE_CUDA_RELEASE, whose `struck` is the error to return after the work is done. */
#ifndef ULYX_TESTS_SIM_FAKE_CUDA_H_
#define ULYX_TESTS_SIM_FAKE_CUDA_H_

#include <cuda_runtime_api.h>

#include "fake_state.h"
#include "verdict_layout.h"

/* Success, cudaErrorCudartUnloading, or `whenStruck` if a test wants this call to fail. */
cudaError_t fakeCudaEnter(const char* function, cudaError_t whenStruck);

/* Makes an error the calling thread's last one, and returns it. */
cudaError_t fakeCudaResult(cudaError_t error);

#define FAKE_CUDA(whenStruck)                                          \
  do {                                                                 \
    const cudaError_t refused = fakeCudaEnter(__func__, (whenStruck)); \
    if (refused != cudaSuccess) return refused;                        \
  } while (0)

/* For calls that are unsafe while the calling thread captures a stream. */
#define FAKE_CUDA_UNSAFE(whenStruck)                            \
  FAKE_CUDA(whenStruck);                                        \
  do {                                                          \
    const cudaError_t forbidden = fakeCaptureForbids(__func__); \
    if (forbidden != cudaSuccess) return forbidden;             \
  } while (0)

#define FAKE_CUDA_RELEASE(whenStruck)                               \
  const cudaError_t struck = fakeCudaEnter(__func__, (whenStruck)); \
  if (struck == cudaErrorCudartUnloading) return struck

/* The calling thread's device and capture mode. */
int fakeCurrentDevice(void);
enum cudaStreamCaptureMode fakeCaptureMode(void);

/* Whether `bytes` bytes at p lie in one block of memory that a kernel on `device` can reach: that device's own,
 * managed or pinned. FAKE_ANY_DEVICE: or another's. */
#define FAKE_ANY_DEVICE (-1)
bool fakeDeviceReaches(int device, const void* p, int64_t bytes);

/* ---- Tiles of copies (fake_kernels.c) ----------------------------------------------------------------- */

#include "copy_layout.h"

/* NULL, or what is wrong with a descriptor whose destination is at `dst` on `dstDevice`. */
const char* fakeDescFault(const ulyxCopyDesc* desc, uint32_t firstTile, int device, const void* dst, int dstDevice);
uint32_t fakeDescTiles(const ulyxCopyDesc* desc);
/* The last descriptor that starts at or before the tile. */
const ulyxCopyDesc* fakeDescOfTile(const ulyxCopyDesc* desc, uint32_t count, uint32_t tile);
/* Moves a tile, the units of one row at once; false if the descriptor's arithmetic is wrong. */
bool fakeMakeTile(ulyxCopyDesc desc, uint32_t tileOfCopy);

#define FAKE_STREAM_MAGIC 0x73747265u
#define FAKE_EVENT_MAGIC 0x6576656eu
#define FAKE_MAX_FORKS 96

struct CUstream_st {
  uint32_t magic;
  int device;
  int64_t birth;
  cudaStream_t capture;               /* the stream whose capture this one is part of */
  cudaStream_t forks[FAKE_MAX_FORKS]; /* of a capture's own stream: those that joined it */
  cudaUserObject_t retained;          /* of a capture's own stream: by the graph, which goes at its end */
  int forkCount;
  bool joined;          /* of a fork: back to its capture */
  _Atomic bool follows; /* events, or is followed: what hangs elsewhere can hang it */
};

struct CUevent_st {
  uint32_t magic;
  int device;
  int64_t birth;
  bool timed;
  _Atomic int64_t recordedNs; /* 0: never */
  cudaStream_t stream;        /* recorded last on; NULL for the default streams */
  cudaStream_t capture;       /* that it was recorded in */
};

/* The stream, or NULL for the default streams, which cannot be captured. */
cudaStream_t fakeOwnStream(cudaStream_t stream);

/* ---- Captures (fake_cuda_capture.c); each returns cudaSuccess or what CUDA would refuse with ---------- */

cudaError_t fakeCaptureForbids(const char* function);
/* The host waits for the stream, or asks for its state. */
cudaError_t fakeCaptureAsks(cudaStream_t stream, const char* function);
void fakeCaptureRecords(cudaEvent_t event, cudaStream_t stream);
cudaError_t fakeCaptureWaits(cudaStream_t stream, cudaEvent_t event);

/* cudaSuccess, with the stream's device, or cudaErrorInvalidResourceHandle. */
cudaError_t fakeStreamDevice(cudaStream_t stream, int* device);

/* As ulyxIsSkipped; an abort writes it from another thread. */
static inline bool fakeIsSkipped(const ulyxVerdict* skip) {
  return skip != NULL &&
         (__atomic_load_n(&skip->lost, __ATOMIC_RELAXED) | __atomic_load_n(&skip->voided, __ATOMIC_RELAXED)) != 0;
}

#endif /* ULYX_TESTS_SIM_FAKE_CUDA_H_ */
