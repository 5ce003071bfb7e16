/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <inttypes.h>
#include <stdio.h>

const char* perfTransportName(int transport) {
  switch (transport) {
    case ulyxTransportAuto:
      return "auto"; /* of a runtime whose plans choose for themselves */
    case ulyxTransportLoopback:
      return "loopback";
    case ulyxTransportNccl:
      return "nccl";
    case ulyxTransportDirect:
      return "direct";
    case ulyxTransportCopyEngine:
      return "copy_engine";
    default:
      return "unknown";
  }
}

const char* perfAverageText(perfAverage_t average) {
  switch (average) {
    case perfAverageRank0:
      return "rank 0";
    case perfAverageMean:
      return "mean over ranks";
    case perfAverageMin:
      return "minimum over ranks";
    case perfAverageMax:
      return "maximum over ranks";
  }
  return "";
}

const char* perfNcclTestsType(const perfType_t* type) {
  return type->ncclTestsName != NULL ? type->ncclTestsName : type->name;
}

const char* perfRedop(const perfOp_t* op) {
  return op->redop != NULL ? op->redop : "none";
}

/* The run in nccl-tests' words. */
static void printRun(const perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat) {
  const perfOptions_t* o = output->options;
  const bool onCpu = info->device < 0;
  const int threads = o->threads > 0 ? (int)o->threads : 1;
  const bool sweeps = o->counts.values == NULL && o->matrix.values == NULL && o->cuSeqlens.values == NULL &&
                      o->beginTokens != PERF_UNSET;
  (void)printf("# Collective test starting: %s\n# nThread %d nGpus %d", output->op->name,
               onCpu ? output->nLocal : threads, onCpu ? 0 : output->nLocal / threads);
  if (sweeps) {
    const bool adds = o->tokensStep > 0;
    (void)printf(" min %s %" PRId64 " max %s %" PRId64 " step: %" PRId64 "(%s)", output->op->unit, o->beginTokens,
                 output->op->unit, o->endTokens, adds ? o->tokensStep : o->tokensFactor,
                 adds ? output->op->unit : "factor");
  }
  (void)printf(" warmup iters: %d iters: %d agg iters: %d validation: %" PRId64 " graph: %" PRId64 " unalign: %" PRId64
               "\n",
               repeat->warmup, repeat->graph ? repeat->perSample : repeat->samples,
               repeat->graph ? 1 : repeat->perSample, o->checks, o->graphLaunches, o->unalign);
  if (repeat->skip > 0) (void)printf("# the first %d samples do not count\n", repeat->skip);
}

static void printLegend(const perfOptions_t* o, const perfOp_t* op) {
  (void)printf("# size:   %s; count: elements of it\n", op->sizeText);
  (void)printf("# time:   one exchange: median of a rank's samples, beside their min, avg, max and p99; then the %s\n",
               perfAverageText((perfAverage_t)o->average));
  (void)printf("# busbw:  remote bytes of the busiest rank's busier direction / time\n");
  (void)printf("# limit%%: share of what one contiguous copy of those bytes to a peer GPU reaches, all GPUs at once\n");
  (void)printf("# via:    the transport that moved the row's data; pred: the time that ulyx predicted for it\n");
  if (o->baseline > 0) {
    for (int i = 0; i < op->nBaselines; i++) {
      (void)printf("# %s: %s\n", op->baselines[i].title, op->baselines[i].text);
    }
    (void)printf("# ratio:  %s / time\n", op->baselines[0].title);
  }
  if (o->enqueue > 0) (void)printf("# enqueue: host time of one call\n");
}

/* One line of titles, or of the units below them. */
static void printTitles(const perfOptions_t* o, const perfOp_t* op, bool units) {
  (void)printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s", units ? "(B)" : "size",
               units ? "(elements)" : "count", units ? "" : "type", units ? "" : "redop", units ? "" : "root",
               units ? "(us)" : "time", units ? "(GB/s)" : "algbw", units ? "(GB/s)" : "busbw",
               units ? "(B)" : "#wrong");
  (void)printf("  %7s  %7s  %7s  %7s  %10s  %6s  %11s  %7s", units ? "(us)" : "min", units ? "(us)" : "avg",
               units ? "(us)" : "max", units ? "(us)" : "p99", units ? "" : op->unit, units ? "" : "limit%",
               units ? "" : "via", units ? "(us)" : "pred");
  if (o->baseline > 0) {
    for (int i = 0; i < op->nBaselines; i++) (void)printf("  %7s", units ? "(us)" : op->baselines[i].title);
    (void)printf("  %7s", units ? "" : "ratio");
  }
  if (o->enqueue > 0) (void)printf("  %7s", units ? "(us)" : "enqueue");
  if (o->timestamps > 0) (void)printf("  %19s", units ? "%Y-%m-%d %H:%M:%S" : "timestamp");
  if (o->model != NULL && !units) (void)printf("  %s", "model");
  (void)printf("\n");
}

void perfTableBegin(const perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                    const perfPlace_t* places) {
  const perfOptions_t* o = output->options;
  const perfOp_t* op = output->op;
  int version = 0;
  (void)ulyxGetVersion(&version);
  (void)printf("# %s, ulyx %d.%d.%d", op->name, version / 10000, version / 100 % 100, version % 100);
  if (info->ncclVersion > 0) (void)printf(", NCCL %d", info->ncclVersion);
  (void)printf("\n");
  printRun(output, info, repeat);
  (void)printf("# transport %s (%s), memory %s, %d ranks\n", perfTransportName(info->transport),
               info->transportReason != NULL ? info->transportReason : "",
               o->memory == perfMemorySymmetric ? "symmetric" : "plain", info->nRanks);
  (void)printf("# shape: ");
  op->printShape(o);
  (void)printf("\n");
  printLegend(o, op);
  (void)printf("#\n# Using devices\n");
  for (int rank = 0; rank < info->nRanks; rank++) (void)printf("#  Rank %2d Group  0 %s\n", rank, places[rank].text);
  (void)printf("#\n# %10s  %12s  %8s  %6s  %6s%33s%36s\n", "", "", "", "", "", "out-of-place          ",
               "iterations            ");
  printTitles(o, op, false);
  printTitles(o, op, true);
  (void)fflush(stdout);
}

/* With as many decimals as there is room for, two at most. */
static void printMeasured(int width, double number) {
  char text[64];
  int decimals = 2;
  if (number < 0) {
    (void)printf("  %*s", width, "N/A");
    return;
  }
  while (snprintf(text, sizeof(text), "%.*f", decimals, number) > width && decimals > 0) decimals--;
  (void)printf("  %*s", width, text);
}

static void printWrong(const perfOptions_t* o, double bytes) {
  if (o->checks > 0) {
    (void)printf("  %6.0f", bytes);
  } else {
    (void)printf("  %6s", "N/A");
  }
}

void perfTableRow(const perfOptions_t* o, const perfOp_t* op, const perfRow_t* row) {
  const double* values = row->values.of;
  const int64_t count = row->step->sizeBytes / o->type->bytes;
  (void)printf("%12" PRId64 "  %12" PRId64 "  %8s  %6s  %6d", row->step->sizeBytes, count, perfNcclTestsType(o->type),
               perfRedop(op), -1);
  printMeasured(7, values[perfValueMedian]);
  printMeasured(6, row->algorithmGBps);
  printMeasured(6, row->busGBps);
  printWrong(o, values[perfValueWrong]);
  printMeasured(7, values[perfValueMin]);
  printMeasured(7, values[perfValueMean]);
  printMeasured(7, values[perfValueMax]);
  printMeasured(7, values[perfValueP99]);
  (void)printf("  %10" PRId64, row->step->tokens);
  printMeasured(6, row->limitPercent);
  (void)printf("  %11s", perfTransportName(row->choice->transport));
  printMeasured(7, row->choice->predictedUs);
  if (o->baseline > 0) {
    const double firstUs = values[perfValueBaseline];
    for (int i = 0; i < op->nBaselines; i++) printMeasured(7, values[perfValueBaseline + i]);
    printMeasured(7, firstUs >= 0 ? firstUs / values[perfValueMedian] : PERF_NOT_MEASURED);
  }
  if (o->enqueue > 0) printMeasured(7, values[perfValueEnqueue]);
  if (o->timestamps > 0) {
    char stamp[PERF_STAMP_BYTES];
    perfStamp(stamp);
    (void)printf("  %19s", stamp);
  }
  if (row->step->model[0] != '\0') (void)printf("  %s", row->step->model);
  (void)printf("\n");
  (void)fflush(stdout);
}

static void printMemory(const char* name, double bytes) {
  enum { kilo = 1024 };
  const char* const units[] = {"B", "KB", "MB", "GB"};
  int unit = 0;
  for (; unit < 3 && bytes >= kilo; unit++) bytes /= kilo;
  (void)printf("%s %.*f %s", name, bytes < 100 && unit > 0 ? 1 : 0, bytes, units[unit]);
}

void perfTableEnd(const perfOptions_t* o, const perfOp_t* op, const perfTotal_t* total) {
  if (o->checks > 0) {
    (void)printf("# Out of bounds values : %.0f %s\n", total->wrongBytes, total->wrongBytes > 0 ? "FAILED" : "OK");
  } else {
    (void)printf("# Out of bounds values : not checked\n");
  }
  (void)printf("# Avg bus bandwidth    : %g", perfAverageGBps(total));
  if (o->leastGBps > 0) (void)printf(" %s", perfTooSlow(o, total) ? "FAILED" : "OK");
  (void)printf("\n#\n# Collective test concluded: %s\n", op->name);
  if (o->memoryReport > 0) {
    (void)printf("# Memory of a rank     : ");
    printMemory("Tensors", total->tensorBytes);
    printMemory(" | Arena", (double)total->arenaBytes);
    printMemory(" | Total", total->tensorBytes + (double)total->arenaBytes);
    (void)printf("\n");
  }
  (void)printf("#\n");
  (void)fflush(stdout);
}
