/* SPDX-License-Identifier: MIT
 *
 * CUDA knows the GPUs that this process sees: atomics between two of them are native where NVLink joins them. A
 * launcher may show each process one GPU only; the driver's management library, looked up at run time, knows the
 * others too. */
#include "nvlink.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>

#define PLACE_TEXT_BYTES 32

static void writePlace(int64_t place, char* text) {
  (void)snprintf(text, PLACE_TEXT_BYTES, "%08" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".0", (uint64_t)place >> 16,
                 (uint64_t)place >> 8 & 0xff, (uint64_t)place & 0xff);
}

bool ulyxPciPlace(int device, int64_t* place) {
  int domain = 0, bus = 0, slot = 0;
  if (cudaDeviceGetAttribute(&domain, cudaDevAttrPciDomainId, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&slot, cudaDevAttrPciDeviceId, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  *place = (int64_t)domain << 16 | (int64_t)bus << 8 | slot;
  return true;
}

/* The part of the management library that is used; its numbers are part of its binary interface. */
typedef struct Management {
  int (*init)(void);
  int (*shutdown)(void);
  int (*find)(const char* place, void** device);
  int (*getP2p)(void* one, void* other, int capability, int* status);
} Management;
#define MANAGEMENT_P2P_NVLINK 2
#define MANAGEMENT_P2P_OK 0

/* POSIX lets dlsym's result be a function; ISO C wants it said this way. */
#define FIND(library, name, function) (*(void**)&(function) = dlsym((library), (name)))

static bool findManagement(void* library, Management* found) {
  return FIND(library, "nvmlInit_v2", found->init) != NULL && FIND(library, "nvmlShutdown", found->shutdown) != NULL &&
         FIND(library, "nvmlDeviceGetHandleByPciBusId_v2", found->find) != NULL &&
         FIND(library, "nvmlDeviceGetP2PStatus", found->getP2p) != NULL;
}

static bool askManagement(const Management* management, int64_t place, int64_t otherPlace) {
  char text[PLACE_TEXT_BYTES], otherText[PLACE_TEXT_BYTES];
  void *one = NULL, *other = NULL;
  int status = -1;
  writePlace(place, text);
  writePlace(otherPlace, otherText);
  if (management->init() != 0) return false;
  const bool linked = management->find(text, &one) == 0 && management->find(otherText, &other) == 0 &&
                      management->getP2p(one, other, MANAGEMENT_P2P_NVLINK, &status) == 0 &&
                      status == MANAGEMENT_P2P_OK;
  (void)management->shutdown();
  return linked;
}

static bool linkedByManagement(int64_t place, int64_t otherPlace) {
  Management management;
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return false;
  const bool linked = findManagement(library, &management) && askManagement(&management, place, otherPlace);
  (void)dlclose(library);
  return linked;
}

/* The other's number in this process; false where it is not visible. */
static bool findDevice(int64_t otherPlace, int* other) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  for (*other = 0; *other < count; ++*other) {
    int64_t place = 0;
    if (ulyxPciPlace(*other, &place) && place == otherPlace) return true;
  }
  return false;
}

bool ulyxNvlinkReaches(int device, int64_t otherPlace) {
  int64_t place = 0;
  int other = 0, native = 0;
  if (!ulyxPciPlace(device, &place)) return false;
  if (place == otherPlace) return true;
  if (!findDevice(otherPlace, &other)) return linkedByManagement(place, otherPlace);
  if (cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device, other) == cudaSuccess) {
    return native == 1;
  }
  (void)cudaGetLastError();
  return false;
}
