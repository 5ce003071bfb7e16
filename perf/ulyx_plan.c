/* SPDX-License-Identifier: MIT
 *
 * Explains plans without making a runtime: one subcommand a kind of plan. */
#include <stdio.h>
#include <string.h>

#include "plan_context.h"
#include "plan_exchange.h"
#include "plan_times.h"
#include "report.h"

typedef struct subcommand {
  const char* name;
  const char* help;
  int (*run)(int argc, char** argv);
} subcommand_t;

static const subcommand_t subcommands[] = {
    {"exchange", "ranges, bytes from rank to rank and arenas of an attention exchange", planExchange},
    {"context", "what each rank has of sequences that are split over ranks", planContext},
    {"times", "how long exchanges should take over NVLink, on 2, 4, 8, 16 ranks", planTimes},
};

enum { nSubcommands = sizeof(subcommands) / sizeof(subcommands[0]) };

int main(int argc, char** argv) {
  if (argc < 2) {
    perfError("a subcommand is missing (-h lists them)");
    return perfExitUsage;
  }
  if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
    (void)printf("usage: ulyx_plan SUBCOMMAND [flags]\n\nPrints what a shape comes to. Needs no GPU.\n\n");
    for (int i = 0; i < nSubcommands; i++) (void)printf("  %-10s %s\n", subcommands[i].name, subcommands[i].help);
    (void)printf("\nulyx_plan SUBCOMMAND -h lists its flags.\n");
    return perfExitOk;
  }
  for (int i = 0; i < nSubcommands; i++) {
    if (strcmp(argv[1], subcommands[i].name) == 0) return subcommands[i].run(argc - 1, argv + 1);
  }
  perfError("unknown subcommand '%s' (-h lists them)", argv[1]);
  return perfExitUsage;
}
