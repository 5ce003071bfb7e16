/* SPDX-License-Identifier: MIT
 *
 * Device, managed and pinned memory are host memory of exactly the bytes asked for (so that ASan sees the
 * first byte beyond), listed in a table that knows their kind and device. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

#define FAKE_ALIGNMENT 256
/* What one allocation gets at most; anything larger is out of memory. */
#define FAKE_MAX_ALLOCATION ((size_t)4 << 30)
/* New memory holds this in every byte, so that reading what was never written shows. */
#define FAKE_FRESH_BYTE 0xCB

typedef struct fakeBlock {
  struct fakeBlock* next;
  unsigned char* start;
  size_t bytes;
  enum cudaMemoryType type;
  int device;
  bool disowned;
  int64_t birth;
} fakeBlock;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static fakeBlock* blocks;

/* Copies the block that holds p; a block's end is outside it. */
static bool findBlock(const void* p, fakeBlock* found) {
  bool hit = false;
  pthread_mutex_lock(&mutex);
  for (const fakeBlock* block = blocks; block != NULL && !hit; block = block->next) {
    hit = (uintptr_t)p >= (uintptr_t)block->start && (uintptr_t)p - (uintptr_t)block->start < block->bytes;
    if (hit) *found = *block;
  }
  pthread_mutex_unlock(&mutex);
  return hit;
}

void fakeDisown(const void* p) {
  pthread_mutex_lock(&mutex);
  for (fakeBlock* block = blocks; block != NULL; block = block->next) {
    if (block->start == p) block->disowned = true;
  }
  pthread_mutex_unlock(&mutex);
}

static bool blockHolds(const fakeBlock* block, const void* p, size_t bytes) {
  return bytes <= block->bytes - ((uintptr_t)p - (uintptr_t)block->start);
}

static size_t counterOf(enum cudaMemoryType type) {
  return type == cudaMemoryTypeHost ? FAKE_COUNTER(hostAllocations) : FAKE_COUNTER(allocations);
}

static cudaError_t allocate(void** p, size_t bytes, enum cudaMemoryType type) {
  if (p == NULL) return fakeCudaResult(cudaErrorInvalidValue);
  *p = NULL;
  if (bytes == 0) return cudaSuccess;
  void* start = NULL;
  fakeBlock* block = malloc(sizeof *block);
  if (block == NULL || bytes > FAKE_MAX_ALLOCATION || posix_memalign(&start, FAKE_ALIGNMENT, bytes) != 0) {
    free(block);
    return fakeCudaResult(cudaErrorMemoryAllocation);
  }
  memset(start, FAKE_FRESH_BYTE, bytes);
  *block = (fakeBlock){
      .start = start, .bytes = bytes, .type = type, .device = fakeCurrentDevice(), .birth = fakeBorn(counterOf(type))};
  pthread_mutex_lock(&mutex);
  block->next = blocks;
  blocks = block;
  pthread_mutex_unlock(&mutex);
  *p = start;
  return cudaSuccess;
}

static cudaError_t release(void* p, bool pinned, const char* function) {
  if (p == NULL) return cudaSuccess;
  fakeBlock* block = NULL;
  pthread_mutex_lock(&mutex);
  for (fakeBlock** link = &blocks; *link != NULL; link = &(*link)->next) {
    if ((*link)->start == p && ((*link)->type == cudaMemoryTypeHost) == pinned) {
      block = *link;
      *link = block->next;
      break;
    }
  }
  pthread_mutex_unlock(&mutex);
  if (block == NULL) {
    fakeViolation("%s(%p): not the start of memory that it can free", function, p);
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  fakeDied(counterOf(block->type), block->birth);
  free(block->start);
  free(block);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  FAKE_CUDA_UNSAFE(cudaErrorMemoryAllocation);
  return allocate(p, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaMallocManaged(void** p, size_t bytes, unsigned int flags) {
  FAKE_CUDA_UNSAFE(cudaErrorMemoryAllocation);
  (void)flags;
  return allocate(p, bytes, cudaMemoryTypeManaged);
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  FAKE_CUDA_UNSAFE(cudaErrorMemoryAllocation);
  return allocate(p, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned int flags) {
  FAKE_CUDA_UNSAFE(cudaErrorMemoryAllocation);
  (void)flags;
  return allocate(p, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFree(void* p) {
  FAKE_CUDA_RELEASE(cudaErrorUnknown);
  const cudaError_t forbidden = fakeCaptureForbids(__func__);
  if (forbidden != cudaSuccess) return forbidden;
  const cudaError_t error = release(p, false, __func__);
  return error != cudaSuccess ? error : struck;
}

cudaError_t cudaFreeHost(void* p) {
  FAKE_CUDA_RELEASE(cudaErrorUnknown);
  const cudaError_t forbidden = fakeCaptureForbids(__func__);
  if (forbidden != cudaSuccess) return forbidden;
  const cudaError_t error = release(p, true, __func__);
  return error != cudaSuccess ? error : struck;
}

cudaError_t cudaMemGetInfo(size_t* freeBytes, size_t* totalBytes) {
  FAKE_CUDA(cudaErrorUnknown);
  *freeBytes = FAKE_MAX_ALLOCATION;
  *totalBytes = FAKE_MAX_ALLOCATION;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* p) {
  FAKE_CUDA(cudaErrorUnknown);
  memset(attributes, 0, sizeof *attributes);
  fakeBlock block;
  if (!findBlock(p, &block) || block.disowned) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = (void*)(uintptr_t)p;
    return cudaSuccess;
  }
  attributes->type = block.type;
  attributes->device = block.device;
  attributes->devicePointer = (void*)(uintptr_t)p;
  attributes->hostPointer = block.type == cudaMemoryTypeDevice ? NULL : (void*)(uintptr_t)p;
  return cudaSuccess;
}

bool fakeDeviceReaches(int device, const void* p, int64_t bytes) {
  fakeBlock block;
  return findBlock(p, &block) && blockHolds(&block, p, (size_t)bytes) &&
         (block.type != cudaMemoryTypeDevice || (block.device == device && !block.disowned) ||
          device == FAKE_ANY_DEVICE);
}

/* ---- Copies ------------------------------------------------------------------------------------------ */

typedef enum { FAKE_SIDE_ANY, FAKE_SIDE_HOST, FAKE_SIDE_DEVICE } fakeSide;

static bool sideIsRight(fakeSide side, const void* p, size_t bytes, const char* function, const char* name) {
  fakeBlock block;
  const bool known = findBlock(p, &block);
  if (side == FAKE_SIDE_DEVICE && !known) {
    fakeViolation("%s: %s %p is not device memory", function, name, p);
  } else if (known && block.disowned && block.device == fakeCurrentDevice()) {
    fakeViolation("%s: %s %p is memory that this device has freed", function, name, p);
  } else if (side == FAKE_SIDE_HOST && known && block.type == cudaMemoryTypeDevice) {
    fakeViolation("%s: %s %p is device memory", function, name, p);
  } else if (known && !blockHolds(&block, p, bytes)) {
    fakeViolation("%s: %s %p with %zu bytes ends beyond its block of %zu bytes", function, name, p, bytes, block.bytes);
  } else {
    return true;
  }
  return false;
}

/* A few words arrive whole, and the last of them last: others may be looking at them. */
#define MOST_WORD_BYTES 128
static void copyWords(void* dst, const void* src, size_t bytes) {
  if (((uintptr_t)dst | (uintptr_t)src | bytes) % sizeof(uint64_t) == 0) {
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
      __atomic_store_n((uint64_t*)dst + i, ((const uint64_t*)src)[i], __ATOMIC_RELEASE);
    }
    return;
  }
  for (size_t i = 0; i < bytes / sizeof(uint32_t); i++) {
    __atomic_store_n((uint32_t*)dst + i, ((const uint32_t*)src)[i], __ATOMIC_RELEASE);
  }
}

static cudaError_t copy(void* dst, size_t dstPitch, const void* src, size_t srcPitch, size_t width, size_t height,
                        enum cudaMemcpyKind kind, const char* function) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (height > 1 && (width > dstPitch || width > srcPitch)) return fakeCudaResult(cudaErrorInvalidPitchValue);
  const fakeSide srcSide = kind == cudaMemcpyDefault                                        ? FAKE_SIDE_ANY
                           : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost ? FAKE_SIDE_HOST
                                                                                            : FAKE_SIDE_DEVICE;
  const fakeSide dstSide = kind == cudaMemcpyDefault                                        ? FAKE_SIDE_ANY
                           : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost ? FAKE_SIDE_HOST
                                                                                            : FAKE_SIDE_DEVICE;
  if (!sideIsRight(srcSide, src, (height - 1) * srcPitch + width, function, "source") ||
      !sideIsRight(dstSide, dst, (height - 1) * dstPitch + width, function, "destination")) {
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  if (height == 1 && width <= MOST_WORD_BYTES && ((uintptr_t)dst | (uintptr_t)src | width) % sizeof(uint32_t) == 0) {
    copyWords(dst, src, width);
    return cudaSuccess;
  }
  for (size_t row = 0; row < height; row++) {
    memmove((char*)dst + row * dstPitch, (const char*)src + row * srcPitch, width);
  }
  return cudaSuccess;
}

static cudaError_t fill(void* p, int value, size_t bytes, const char* function) {
  if (bytes == 0) return cudaSuccess;
  if (!sideIsRight(FAKE_SIDE_DEVICE, p, bytes, function, "destination")) return fakeCudaResult(cudaErrorInvalidValue);
  memset(p, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind) {
  FAKE_CUDA_UNSAFE(cudaErrorUnknown);
  return copy(dst, bytes, src, bytes, bytes, 1, kind, __func__);
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  return error != cudaSuccess ? error : copy(dst, bytes, src, bytes, bytes, 1, kind, __func__);
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dstPitch, const void* src, size_t srcPitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  return error != cudaSuccess ? error : copy(dst, dstPitch, src, srcPitch, width, height, kind, __func__);
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  FAKE_CUDA_UNSAFE(cudaErrorUnknown);
  return fill(p, value, bytes, __func__);
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorUnknown);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  return error != cudaSuccess ? error : fill(p, value, bytes, __func__);
}
