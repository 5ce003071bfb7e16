/* SPDX-License-Identifier: MIT
 *
 * A transport makes the copies of a phase happen. It knows buffers and ranks, and nothing of attention. One
 * object is one rank's end; the runtime holds it and calls it from one thread at a time. */
#ifndef ULYX_RUNTIME_TRANSPORT_H_
#define ULYX_RUNTIME_TRANSPORT_H_

#include "config.h"
#include "plan.h"

typedef struct ulyxTransport ulyxTransport;

/* One exchange: a phase, what the transport made of it, and this rank's buffers. */
typedef struct ulyxExchange {
  const char* operation;
  int64_t number;           /* since the runtime's creation, from 1 */
  uint64_t plan;            /* its plan's signature */
  uint64_t signature;       /* equal on ranks that mean the same exchange */
  const int64_t* peerBytes; /* [2 * nRanks]: sent to each rank, received from each */
  const ulyxPhase* phase;
  void* prepared;
  void* const* src; /* [ULYX_MAX_BUFFERS] base addresses, by the copies' srcBuffer */
  void* const* dst; /* the same; scratch is the transport's */
  ulyxStream_t stream;
} ulyxExchange;

typedef struct ulyxTransportOps {
  /* What run will need besides the phase; host memory only. *prepared is NULL or what was prepared before, which is
   * made over; it is to be unprepared also after a failure. *arenaBytes is the staging it takes. */
  ulyxResult_t (*prepare)(const ulyxTransport* transport, const ulyxPhase* phase, void** prepared, int64_t* arenaBytes);
  void (*unprepare)(void* prepared);

  /* How what was prepared will be moved. */
  ulyxChoice_t (*choice)(const ulyxTransport* transport, const void* prepared);

  /* Enqueues (loopback: makes) every copy of the phase. Collective. */
  ulyxResult_t (*run)(ulyxTransport* transport, const ulyxExchange* exchange);

  /* all[r * count + i] = rank r's mine[i]. Collective and blocking. */
  ulyxResult_t (*gather)(ulyxTransport* transport, const int64_t* mine, int count, int64_t* all);

  /* What devices have found since the last call, spoken; success where that is nothing. A mismatch passes with it. */
  ulyxResult_t (*found)(ulyxTransport* transport);

  /* Whether nothing runs any more of what was enqueued outside graphs. */
  bool (*hasEnded)(const ulyxTransport* transport);

  /* Whether an exchange could use this memory; `name` is for the error. */
  ulyxResult_t (*checkMemory)(ulyxTransport* transport, const void* data, const char* name);

  /* Writes values to memory that checkMemory has passed, in stream order; they are read during the call only. */
  ulyxResult_t (*store)(ulyxTransport* transport, const int32_t* values, int64_t count, int32_t* data,
                        ulyxStream_t stream);

  /* Collective and blocking. bytes differ between ranks, every rank gets the largest. */
  ulyxResult_t (*memAlloc)(ulyxTransport* transport, int64_t bytes, void** data);
  ulyxResult_t (*memFree)(ulyxTransport* transport, void* data);
  ulyxResult_t (*reserve)(ulyxTransport* transport, int64_t bytes);

  /* Loses the world: nobody waits any more, here or elsewhere. From any thread, also while another is in a call. */
  ulyxResult_t (*abort)(ulyxTransport* transport);

  /* Refuses where something outside still uses what destroy would free. */
  ulyxResult_t (*checkUnused)(ulyxTransport* transport);

  /* Waits for this rank's exchanges and frees everything, itself included, whatever it returns. */
  ulyxResult_t (*destroy)(ulyxTransport* transport);
} ulyxTransportOps;

/* The part that every transport begins with. */
struct ulyxTransport {
  const ulyxTransportOps* ops;
  int rank, nRanks;
  int device;      /* -1 on the CPU */
  int ncclVersion; /* 0 without */
  int64_t arenaBytes;
  ulyxTransport_t kind; /* auto where each plan has its own */
  const char* reason;   /* of the kind; lives as long as the transport */
};

/* All ranks of a world in this process: transports[nRanks] is written on success only. */
ulyxResult_t ulyxLoopbackCreateLocal(const ulyxSettings* settings, int nRanks, ulyxTransport** transports);
ulyxResult_t ulyxNcclCreateLocal(const ulyxSettings* settings, int nRanks, const int* devices,
                                 ulyxTransport** transports);

/* One rank, on the current device. In a build without CUDA these, and ulyxNcclCreateLocal, refuse. */
ulyxResult_t ulyxNcclGetUniqueId(ulyxUniqueId_t* id);
ulyxResult_t ulyxNcclCreate(const ulyxSettings* settings, int nRanks, ulyxUniqueId_t id, int rank,
                            ulyxTransport** transport);
ulyxResult_t ulyxNcclCreateFromComm(const ulyxSettings* settings, struct ncclComm* parent, ulyxTransport** transport);

#endif /* ULYX_RUNTIME_TRANSPORT_H_ */
