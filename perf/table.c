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

static void printTitles(const perfOptions_t* o, const perfOp_t* op) {
  (void)printf("#\n# %12s  %10s  %9s  %9s  %9s  %7s  %7s  %7s  %7s  %11s  %9s", "size", op->unit, "time", "min", "max",
               "algbw", "busbw", "#wrong", "limit%", "via", "pred");
  if (o->baseline > 0) {
    for (int i = 0; i < op->nBaselines; i++) (void)printf("  %9s", op->baselines[i].title);
    (void)printf("  %7s", "ratio");
  }
  if (o->enqueue > 0) (void)printf("  %9s", "enqueue");
  if (o->model != NULL) (void)printf("  %s", "model");
  (void)printf("\n# %12s  %10s  %9s  %9s  %9s  %7s  %7s  %7s  %7s  %11s  %9s", "(B)", "", "(us)", "(us)", "(us)",
               "(GB/s)", "(GB/s)", "(B)", "", "", "(us)");
  if (o->baseline > 0) {
    for (int i = 0; i < op->nBaselines; i++) (void)printf("  %9s", "(us)");
    (void)printf("  %7s", "");
  }
  if (o->enqueue > 0) (void)printf("  %9s", "(us)");
  (void)printf("\n");
}

void perfTableBegin(const perfOptions_t* o, const perfOp_t* op, const ulyxRuntimeInfo_t* info,
                    const perfRepeat_t* repeat, const perfPlace_t* places) {
  int version = 0;
  (void)ulyxGetVersion(&version);
  (void)printf("# %s, ulyx %d.%d.%d", op->name, version / 10000, version / 100 % 100, version % 100);
  if (info->ncclVersion > 0) (void)printf(", NCCL %d", info->ncclVersion);
  (void)printf("\n# transport %s (%s), memory %s, %d ranks\n", perfTransportName(info->transport),
               info->transportReason != NULL ? info->transportReason : "",
               o->memory == perfMemorySymmetric ? "symmetric" : "plain", info->nRanks);
  for (int rank = 0; rank < info->nRanks; rank++) (void)printf("#   rank %3d: %s\n", rank, places[rank].text);
  (void)printf("# shape: ");
  op->printShape(o);
  (void)printf("\n");
  (void)printf("# samples %d of %d exchanges %s, warm-up %d samples, checks %" PRId64 "\n", repeat->samples,
               repeat->perSample, repeat->graph ? "in one CUDA graph" : "back to back", repeat->warmup, o->checks);
  (void)printf("# size:   %s\n", op->sizeText);
  (void)printf("# time:   one exchange: median, min and max of a rank's samples, then the %s\n",
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
  printTitles(o, op);
  (void)fflush(stdout);
}

static void printMeasured(int width, int decimals, double number) {
  if (number < 0) {
    (void)printf("  %*s", width, "N/A");
  } else {
    (void)printf("  %*.*f", width, decimals, number);
  }
}

void perfTableRow(const perfOptions_t* o, const perfOp_t* op, const perfRow_t* row) {
  const double* values = row->values.of;
  (void)printf("  %12" PRId64 "  %10" PRId64, row->step->sizeBytes, row->step->tokens);
  printMeasured(9, 2, values[perfValueMedian]);
  printMeasured(9, 2, values[perfValueMin]);
  printMeasured(9, 2, values[perfValueMax]);
  printMeasured(7, 2, row->algorithmGBps);
  printMeasured(7, 2, row->busGBps);
  printMeasured(7, 0, o->checks > 0 ? values[perfValueWrong] : PERF_NOT_MEASURED);
  printMeasured(7, 1, row->limitPercent);
  (void)printf("  %11s", perfTransportName(row->choice->transport));
  printMeasured(9, 2, row->choice->predictedUs);
  if (o->baseline > 0) {
    const double firstUs = values[perfValueBaseline];
    for (int i = 0; i < op->nBaselines; i++) printMeasured(9, 2, values[perfValueBaseline + i]);
    printMeasured(7, 3, firstUs >= 0 ? firstUs / values[perfValueMedian] : PERF_NOT_MEASURED);
  }
  if (o->enqueue > 0) printMeasured(9, 2, values[perfValueEnqueue]);
  if (row->step->model[0] != '\0') (void)printf("  %s", row->step->model);
  (void)printf("\n");
  (void)fflush(stdout);
}

void perfTableEnd(const perfOptions_t* o, double wrongBytes, double averageGBps) {
  if (o->checks > 0) {
    (void)printf("# Out of bounds values : %.0f %s\n", wrongBytes, wrongBytes > 0 ? "FAILED" : "OK");
  } else {
    (void)printf("# Out of bounds values : not checked\n");
  }
  (void)printf("# Avg bus bandwidth    : %.4f\n#\n", averageGBps);
  (void)fflush(stdout);
}
