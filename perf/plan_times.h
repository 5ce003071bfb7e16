/* SPDX-License-Identifier: MIT
 *
 * `ulyx_plan times`: how long exchanges should take, before anyone has the machine. */
#ifndef PERF_PLAN_TIMES_H_
#define PERF_PLAN_TIMES_H_

/* argv[0] is "times". Returns the program's exit status. */
int planTimes(int argc, char** argv);

#endif /* PERF_PLAN_TIMES_H_ */
