/* SPDX-License-Identifier: MIT */
#include "habits.h"

#include <string.h>

int perfHabitFlags(perfFlag_t* flags) {
  const perfFlag_t habits[] = {
      {"-I,--per_iter_timing", perfFlagFixed, NULL, 0, 0, "0|1",
       "taken: least, mean, most and 99th percentile of the iterations are always there"},
      {"-p,--parallel_init", perfFlagFixed, NULL, 0, 0, "0|1", "taken: ranks always start at once, a thread each"},
      {"-o,--op", perfFlagFixed, NULL, 0, 0, "sum", "ulyx adds up and has no other reduction"},
      {"-r,--root", perfFlagFixed, NULL, 0, 0, "0", "no operation of ulyx has a root"},
      {"-z,--blocking", perfFlagFixed, NULL, 0, 0, "0",
       "nothing waits between iterations, so that a sample is what the device took"},
      {"-y,--stream_null", perfFlagFixed, NULL, 0, 0, "0", "each rank has a stream of its own"},
      {"-D,--device_implementation", perfFlagFixed, NULL, 0, 0, "0", "ulyx's own kernels are --transport direct"},
      {"-x,--cta_policy", perfFlagFixed, NULL, 0, 0, "0", "NCCL takes its policy from NCCL_CTA_POLICY"},
  };
  memcpy(flags, habits, sizeof(habits));
  return (int)(sizeof(habits) / sizeof(habits[0]));
}
