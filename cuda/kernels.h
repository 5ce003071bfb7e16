/* SPDX-License-Identifier: MIT
 *
 * Launchers of ulyx's kernels, callable from C. Each enqueues on `stream` of the current device, allocates
 * nothing, is capturable, and returns the launch's error. */
#ifndef ULYX_KERNELS_H_
#define ULYX_KERNELS_H_

#include <cuda_runtime_api.h>

#include "chain_layout.h"
#include "copy_layout.h"
#include "exchange_layout.h"
#include "label_layout.h"
#include "store_layout.h"
#include "sum_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes every copy of the batch with at most maxCtas thread blocks (0: one a tile). Source and destination
 * bytes must not overlap. An empty batch launches nothing. */
cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream);

/* dst = the sum of the addends, with at most maxCtas thread blocks (0: no cap). An addend may be dst itself. */
cudaError_t ulyxLaunchSum(const ulyxSumBatch* batch, int maxCtas, cudaStream_t stream);

/* Merges a chain of states with at most maxCtas thread blocks (0: no cap). keyDim is at most ULYX_CHAIN_MAX_KEY_DIM. */
cudaError_t ulyxLaunchChain(const ulyxChainArgs* args, int maxCtas, cudaStream_t stream);

/* Stores at most ULYX_STORE_MANY values. */
cudaError_t ulyxLaunchStore(const ulyxStoreBatch* batch, cudaStream_t stream);

/* Writes this rank's label and what it expects; later reports the first label that came and is another's. */
cudaError_t ulyxLaunchLabelWrite(const ulyxLabelWrite* write, cudaStream_t stream);
cudaError_t ulyxLaunchLabelCompare(const ulyxLabelCompare* compare, cudaStream_t stream);

/* Meets the peers as the batch says and makes its copies, with `ctas` thread blocks, which must fit on the device
 * together with whatever they may have to wait for; a batch without copies takes one warp. Blocks on the device until
 * the peers have come, at most the meeting's timeout at each of its two waits. */
cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream);

/* peers[r] = where this device sees rank r's memory of a registered window, NULL where it does not; words is device
 * memory for nRanks of them. Blocking. Defined only where NCCL's windows can be asked (ulyxWindowsAreReadable). */
struct ncclWindow_vidmem;
cudaError_t ulyxWindowReadPeers(struct ncclWindow_vidmem* window, int nRanks, uint64_t* words, void** peers,
                                cudaStream_t stream);

/* Whether this build and the NCCL that is loaded (ncclGetVersion) agree on what a window is. */
int ulyxWindowsAreReadable(int ncclVersion);

/* Load a kernel on the current device now, so that no first launch does: a lazy load can wait for work that
 * itself waits for a peer. */
cudaError_t ulyxLoadCopies(void);
cudaError_t ulyxLoadSum(void);
cudaError_t ulyxLoadChain(void);
cudaError_t ulyxLoadStore(void);
cudaError_t ulyxLoadExchange(void);
cudaError_t ulyxLoadLabels(void);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_KERNELS_H_ */
