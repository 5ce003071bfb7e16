/* SPDX-License-Identifier: MIT
 *
 * Devices, versions and errors. The current device and the last error belong to a thread, as in CUDA. */
#include <stdio.h>
#include <string.h>

#include "fake_cuda.h"

#define FAKE_CUDA_VERSION CUDART_VERSION

static _Thread_local int currentDevice;
static _Thread_local cudaError_t lastError = cudaSuccess;
static _Thread_local enum cudaStreamCaptureMode captureMode = cudaStreamCaptureModeGlobal;

cudaError_t fakeCudaResult(cudaError_t error) {
  if (error != cudaSuccess) lastError = error;
  return error;
}

cudaError_t fakeCudaEnter(const char* function, cudaError_t whenStruck) {
  if (fakeCudaGone()) return fakeCudaResult(cudaErrorCudartUnloading);
  return fakeCudaResult(fakeStrikes(function) ? whenStruck : cudaSuccess);
}

int fakeCurrentDevice(void) {
  return currentDevice;
}

enum cudaStreamCaptureMode fakeCaptureMode(void) {
  return captureMode;
}

cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_CUDA(cudaErrorInitializationError);
  *count = fakeDeviceCount();
  return fakeCudaResult(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  FAKE_CUDA(cudaErrorInitializationError);
  if (fakeDeviceCount() == 0) return fakeCudaResult(cudaErrorNoDevice);
  *device = currentDevice;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  FAKE_CUDA(cudaErrorInitializationError);
  if (fakeDeviceCount() == 0) return fakeCudaResult(cudaErrorNoDevice);
  if (device < 0 || device >= fakeDeviceCount()) return fakeCudaResult(cudaErrorInvalidDevice);
  currentDevice = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  FAKE_CUDA_UNSAFE(cudaErrorUnknown);
  fakeWaitWhileHanging(__func__);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  FAKE_CUDA(cudaErrorUnknown);
  if (device < 0 || device >= fakeDeviceCount()) return fakeCudaResult(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciDeviceId:
      *value = 0;
      break;
    case cudaDevAttrPciBusId:
      *value = device + 1;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = 32;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      break;
    case cudaDevAttrManagedMemory:
      *value = 1;
      break;
    case cudaDevAttrConcurrentManagedAccess:
      *value = 1;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    default:
      fakeViolation("cudaDeviceGetAttribute: attribute %d has no fake value", (int)attribute);
      return fakeCudaResult(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  FAKE_CUDA(cudaErrorUnknown);
  if (device < 0 || device >= fakeDeviceCount()) return fakeCudaResult(cudaErrorInvalidDevice);
  snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  FAKE_CUDA(cudaErrorUnknown);
  const int devices = fakeDeviceCount();
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) return fakeCudaResult(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, enum cudaDeviceP2PAttr attribute, int device, int peer) {
  FAKE_CUDA(cudaErrorUnknown);
  const int devices = fakeDeviceCount();
  if (device < 0 || device >= devices || peer < 0 || peer >= devices || device == peer) {
    return fakeCudaResult(cudaErrorInvalidDevice);
  }
  if (attribute != cudaDevP2PAttrNativeAtomicSupported) {
    fakeViolation("cudaDeviceGetP2PAttribute: attribute %d has no fake value", (int)attribute);
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  *value = fakeNvlink() ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  FAKE_CUDA(cudaErrorUnknown);
  *version = FAKE_CUDA_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  FAKE_CUDA(cudaErrorUnknown);
  *version = FAKE_CUDA_VERSION;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attributes, const void* function) {
  FAKE_CUDA(cudaErrorInvalidDeviceFunction);
  (void)function;
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  FAKE_CUDA(cudaErrorUnknown);
  const enum cudaStreamCaptureMode before = captureMode;
  captureMode = *mode;
  *mode = before;
  return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) {
  return lastError;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = lastError;
  lastError = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError:
      return "cudaErrorInitializationError";
    case cudaErrorCudartUnloading:
      return "cudaErrorCudartUnloading";
    case cudaErrorInvalidPitchValue:
      return "cudaErrorInvalidPitchValue";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
    default:
      return "a CUDA error that the fake does not name";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
