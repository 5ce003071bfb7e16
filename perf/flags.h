/* SPDX-License-Identifier: MIT
 *
 * A command line is a table of flags: each row names a flag, where its value goes, what values it may have
 * and its line of help. Parsing and -h read the same table, so that neither knows a flag the other does not. */
#ifndef PERF_FLAGS_H_
#define PERF_FLAGS_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
  perfFlagInt,    /* target int64_t, in [least, most] */
  perfFlagTokens, /* the same with K, M and G suffixes */
  perfFlagReal,   /* target double, at least `least` */
  perfFlagCounts, /* target perfCounts_t, each value in [least, most] */
  perfFlagText,   /* target const char*, points into argv */
  perfFlagType,   /* target const perfType_t* */
  perfFlagChoice, /* target int64_t, the place of the value among `choices` */
  perfFlagSwitch, /* target int64_t becomes 1; takes no value */
  perfFlagFixed   /* no target: values among `choices` ask for what is done anyway, and `help` says why there are no
                     others */
} perfFlagKind_t;

typedef struct perfFlag {
  const char* names; /* separated by commas: "-d,--type" */
  perfFlagKind_t kind;
  void* target;
  int64_t least;
  int64_t most;
  const char* choices; /* separated by bars: "plain|symmetric"; of a text, what it is */
  const char* help;
} perfFlag_t;

typedef enum { perfParsed, perfHelpAsked, perfRefused } perfParse_t;

/* Takes `--flag value`, `--flag=value`, `-f value` and `-fvalue` from argv[first] on. A refusal has been reported. */
perfParse_t perfParseFlags(const perfFlag_t* flags, int nFlags, int argc, char** argv, int first);

/* One entry a flag, with its help. */
void perfPrintFlags(FILE* out, const perfFlag_t* flags, int nFlags);

#endif /* PERF_FLAGS_H_ */
