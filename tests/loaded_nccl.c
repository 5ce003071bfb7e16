/* SPDX-License-Identifier: MIT
 *
 * A process that has loaded a libnccl.so.2 of its own, as PyTorch does, before it loads ulyx: ulyx gets that one, and
 * goes by the version that it says it has.
 *
 * usage: loaded_nccl LIBNCCL LIBULYX RESULT TEXT      what ulyxGetUniqueId must return, and the last error contain */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ulyx.h"

/* As Python loads its extensions; NULL ends the program. */
static void* load(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) return library;
  printf("%s\n", dlerror());
  exit(1);
}

/* POSIX lets dlsym's result be a function; ISO C wants it said this way. */
#define FIND(library, function, name) (*(void**)&(function) = dlsym((library), (name)))

int main(int argc, char** argv) {
  ulyxResult_t (*getUniqueId)(ulyxUniqueId_t*) = NULL;
  const char* (*getLastError)(ulyxRuntime_t) = NULL;
  ulyxUniqueId_t id;
  if (argc != 5) return 2;
  (void)load(argv[1]);
  void* const ulyx = load(argv[2]);
  if (FIND(ulyx, getUniqueId, "ulyxGetUniqueId") == NULL) return 1;
  if (FIND(ulyx, getLastError, "ulyxGetLastError") == NULL) return 1;
  const ulyxResult_t result = getUniqueId(&id);
  const char* const text = result != ulyxSuccess ? getLastError(NULL) : "";
  if ((int)result == atoi(argv[3]) && strstr(text, argv[4]) != NULL) return 0;
  printf("ulyxGetUniqueId returned %d, %s, expected %s, %s\n", (int)result, text, argv[3], argv[4]);
  return 1;
}
