/* SPDX-License-Identifier: MIT
 *
 * The nccl transport of a build without CUDA and NCCL: it refuses, and says what to do. */
#include "status.h"
#include "transport.h"

static ulyxResult_t refuse(void) {
  return ulyxFail(ulyxUnsupported,
                  "this build has the loopback transport only; build ulyx with CUDA and NCCL for GPUs");
}

ulyxResult_t ulyxNcclGetUniqueId(ulyxUniqueId_t* id) {
  (void)id;
  return refuse();
}

ulyxResult_t ulyxNcclCreate(const ulyxSettings* settings, int nRanks, ulyxUniqueId_t id, int rank,
                            ulyxTransport** transport) {
  (void)settings;
  (void)nRanks;
  (void)id;
  (void)rank;
  (void)transport;
  return refuse();
}

ulyxResult_t ulyxNcclCreateFromComm(const ulyxSettings* settings, struct ncclComm* parent, ulyxTransport** transport) {
  (void)settings;
  (void)parent;
  (void)transport;
  return refuse();
}

ulyxResult_t ulyxNcclCreateLocal(const ulyxSettings* settings, int nRanks, const int* devices,
                                 ulyxTransport** transports) {
  (void)settings;
  (void)nRanks;
  (void)devices;
  (void)transports;
  return refuse();
}
