/* SPDX-License-Identifier: MIT
 *
 * `ulyx_plan context`: what each rank has of sequences that are split over ranks. */
#ifndef PERF_PLAN_CONTEXT_H_
#define PERF_PLAN_CONTEXT_H_

/* argv[0] is "context". Returns the program's exit status. */
int planContext(int argc, char** argv);

#endif /* PERF_PLAN_CONTEXT_H_ */
