/* SPDX-License-Identifier: MIT
 *
 * What tests ask of the fakes: counts of what the library did and still holds, faults to inject, and the
 * facts of the pretended machine.
 *
 * The fakes stand in for NCCL (fake_nccl_*.c) and, in ulyx_sim, for CUDA and ulyx's kernels as well
 * (fake_cuda_*.c, fake_kernels.c). Ranks are threads of one process, "device memory" is host memory, a
 * stream's work is done before the call that enqueues it returns. Whatever real hardware would corrupt or
 * refuse silently is a violation: printed to stderr, counted, and refused where the call can refuse. */
#ifndef ULYX_TESTS_SIM_FAKE_H_
#define ULYX_TESTS_SIM_FAKE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_MAX_RANKS 64
#define FAKE_MAX_DEVICES 64

typedef struct fakeCounters {
  /* Made since the last fakeReset and not yet released. */
  int64_t allocations; /* cudaMalloc and cudaMallocManaged */
  int64_t hostAllocations;
  int64_t streams;
  int64_t events;
  int64_t comms;
  int64_t ncclAllocations;
  int64_t windows;
  int64_t registrations; /* ncclCommRegister */
  int64_t openGroups;    /* ncclGroupStart without its ncclGroupEnd */
  /* Done since the last fakeReset. */
  int64_t made;  /* of everything above but groups, whether it is still there or not */
  int64_t sends; /* counted when their group runs */
  int64_t receives;
  int64_t zeroByteMessages; /* sends and receives of nothing */
  int64_t groups;           /* that held a send or a receive */
  int64_t maxGroupMessages; /* most sends and receives in one group */
  int64_t overlaps;         /* receives into memory that the same group sends or receives too: contents undefined */
  int64_t collectives;      /* ncclAllGather, ncclBroadcast; their messages are not counted above */
  int64_t launches;         /* ulyxLaunchCopies with a copy to make */
  int64_t launchedCopies;
  int64_t exchanges;      /* ulyxLaunchExchange */
  int64_t sums;           /* ulyxLaunchSum with a row to add */
  int64_t chains;         /* ulyxLaunchChain */
  int64_t stores;         /* ulyxLaunchStore with a value to store */
  int64_t labels;         /* ulyxLaunchLabelWrite */
  int64_t mostCtas;       /* most thread blocks of one launch */
  int64_t maxWindowBytes; /* of any window registered */
  int64_t minWindowBytes;
  int64_t faults;     /* injected calls that failed */
  int64_t aborts;     /* ncclCommAbort of a communicator */
  int64_t violations; /* 0 in every correct run */
} fakeCounters;

fakeCounters fakeGet(void);

/* What the library holds of the host, in ulyx_sim; elsewhere nothing is counted. Not touched by fakeReset. */
typedef struct fakeHostUse {
  int64_t blocks; /* of memory */
  int64_t bytes;
  int64_t asked; /* calls of the allocator so far */
  int64_t threads;
  int64_t locks; /* mutexes and conditions */
} fakeHostUse;

fakeHostUse fakeHostGet(void);
/* So much memory may stay held. */
void fakeHostForget(int64_t blocks, int64_t bytes);

/* Bytes sent by ncclSend from rank src to rank dst of any communicator since the last fakeReset. */
int64_t fakeSentBytes(int src, int dst);

/* Counts from zero, forgets faults, and sets everything below to its default. What is alive stays alive but is
 * no longer counted, so that one test's leak fails that test alone. */
void fakeReset(void);

/* The n-th call from now on (1: the next) of `function`, a literal such as "cudaMalloc" (NULL: any that can
 * fail), fails with an error fit for it. In ulyx_sim the library's own calls of the host are among them: "malloc" is
 * whatever allocates, "pthread_create", "pthread_mutex_init" and "pthread_cond_init" are themselves. A call that
 * releases something fails after releasing it, as CUDA does when it reports an earlier error. One fault at a time; n =
 * 0 disarms. fakeFailNth counts the calls of all threads, fakeFailNthHere those of the calling thread, which fakeReset
 * disarms only on its own thread. */
void fakeFailNth(const char* function, int n);
void fakeFailNthHere(const char* function, int n);

/* The n-th call from now on of `function`, of any thread or of the calling one, first calls `call` on that thread. One
 * at a time of either kind; n = 0 disarms. */
void fakeCallAtNth(const char* function, int n, void (*call)(void*), void* argument);
void fakeCallAtNthHere(const char* function, int n, void (*call)(void*), void* argument);

/* Whether a fault of this thread's is still to come, and the function that the last fault of any struck; NULL: none
 * since the last fakeReset. */
int fakeIsArmedHere(void);
const char* fakeStruck(void);

/* How long a rank waits for the others before the call fails with ncclSystemError. 20000. */
void fakeSetDeadlineMs(int ms);

/* How long ncclCommAbort still works on windows after whoever waited on the communicator is out. 0: they go first. */
void fakeSetAbortMs(int ms);

/* 0: ncclCommWindowRegister succeeds and leaves NULL, as NCCL does where it cannot map windows. 1. */
void fakeSetWindowSupport(int supported);

/* ulyx_sim only: 0: no NVLink joins the devices. 1. */
void fakeSetNvlink(int linked);

/* ulyx_sim only: from now on (1) until 0 the stream is being captured by the calling thread, in its capture mode.
 * Work is done at once all the same; what a capture would refuse is refused and is a violation, and so is a
 * stream that joined the capture and was not joined back at its end. */
struct CUstream_st;
void fakeSetCapturing(struct CUstream_st* stream, int capturing);

/* ulyx_sim only: 1: devices look as if they were still at work, whatever is aborted: queries of streams and events say
 * so, and nobody waits. 0. */
void fakeSetBusy(int busy);

/* What NCCL's own threads have met: ncclCommGetAsyncError says so of every communicator (ncclResult_t). ncclSuccess. */
void fakeSetNcclFailure(int result);

/* ulyx_sim only: how long an event takes to be ready after its record. 0. */
void fakeSetLagMs(int ms);

/* ulyx_sim only: 1: what is on the devices does not end. Queries say so, and who synchronizes waits, until
 * ncclCommAbort or 0. Data has moved all the same. 0. */
void fakeSetHanging(int hanging);
int fakeIsHanging(void);

/* The same in cudaStreamCaptureModeGlobal: no thread may make an unsafe call until the end, but in relaxed mode. */
void fakeSetCapturingGlobally(struct CUstream_st* stream, int capturing);

/* ulyx_sim only: how many devices there are, up to FAKE_MAX_DEVICES. 16. */
void fakeSetDeviceCount(int count);

/* ulyx_sim only: 1: the driver has shut down, as at process exit. Every CUDA call returns
 * cudaErrorCudartUnloading, every NCCL call is a violation. 0. */
void fakeSetCudaGone(int gone);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_TESTS_SIM_FAKE_H_ */
