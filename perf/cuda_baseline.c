/* SPDX-License-Identifier: MIT
 *
 * Which of NCCL's own ways an op is compared with. */
#include "cuda_backend.h"

bool perfCudaTimeBaseline(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                          const perfRepeat_t* repeat, double* us) {
  switch (kind) {
    case perfBaselineNone:
      break;
    case perfBaselineMessages:
      return perfCudaTimeMessages(me, op, problem, true, repeat, us);
    case perfBaselineMessagesByTensor:
      return perfCudaTimeMessages(me, op, problem, false, repeat, us);
    case perfBaselineAllToAll:
    case perfBaselineAllGather:
    case perfBaselineReduceScatter:
      return perfCudaTimeCollective(me, op, problem, kind, repeat, us);
  }
  *us = PERF_NOT_MEASURED;
  return true;
}
