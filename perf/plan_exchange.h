/* SPDX-License-Identifier: MIT
 *
 * `ulyx_plan exchange`: who owns which tokens and heads, and how many bytes go from rank to rank. */
#ifndef PERF_PLAN_EXCHANGE_H_
#define PERF_PLAN_EXCHANGE_H_

/* argv[0] is "exchange". Returns the program's exit status. */
int planExchange(int argc, char** argv);

#endif /* PERF_PLAN_EXCHANGE_H_ */
