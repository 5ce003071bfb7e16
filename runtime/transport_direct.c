/* SPDX-License-Identifier: MIT
 *
 * One exchange by one kernel: it meets the peers, stores every copy into its final place in their memory, makes the
 * rank's own copies meanwhile, and meets them again (cuda/exchange.cu). Peers are served in order of their distance,
 * so that at any time the ranks write to different ones. */
#include "gpu_exchange.h"

ulyxResult_t ulyxDirectCarry(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxPhase* const phase = exchange->phase;
  const ulyxExchangeBatch* const batch = &gpu->exchange;
  const ulyxOutputs outputs = ulyxGpuFindOutputs(gpu, exchange, false);
  ulyxGpuExchangeBegin(gpu, exchange, &outputs);
  for (int distance = 1; distance <= phase->nRanks; ++distance) { /* its own copies last */
    const int peer = (phase->rank + distance) % phase->nRanks;
    for (int64_t c = phase->sendStart[peer]; c < phase->sendStart[peer + 1]; ++c) {
      ULYX_TRY(ulyxGpuExchangeAdd(gpu, exchange, &phase->copies[c], peer, 0, phase->copies[c].rows));
    }
  }
  const uint64_t mix = ulyxExchangeMix(batch->remoteTiles, batch->tiles);
  ULYX_TRY(ulyxGpuExchangeLaunch(gpu, exchange->stream, gpu->directCtas, mix));
  return ulyxGpuBringHome(gpu, exchange, &outputs);
}
