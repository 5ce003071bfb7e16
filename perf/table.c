/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <inttypes.h>
#include <stdio.h>

const char* perfTransportName(int transport) {
  switch (transport) {
    case ulyxTransportLoopback:
      return "loopback";
    case ulyxTransportNccl:
      return "nccl";
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

static void printShape(const perfOptions_t* o) {
  if (o->model != NULL) {
    (void)printf("# shape: model %s, tokens divided by %" PRId64, o->model, o->tokensDivide);
  } else {
    (void)printf("# shape: heads %" PRId64 ", kv heads %" PRId64 ", head dim %" PRId64 ", value dim %" PRId64, o->heads,
                 o->kvHeads > 0 ? o->kvHeads : o->heads, o->headDim, o->valueDim > 0 ? o->valueDim : o->headDim);
  }
  (void)printf(", batch %" PRId64 ", type %s%s%s\n", o->batch, o->type->name, o->packedIn != 0 ? ", packed in" : "",
               o->packedOut != 0 ? ", packed out" : "");
}

static void printTitles(const perfOptions_t* o) {
  (void)printf("#\n# %12s  %10s  %9s  %9s  %9s  %7s  %7s  %7s  %7s", "size", "tokens", "time", "min", "max", "algbw",
               "busbw", "#wrong", "limit%");
  if (o->baseline > 0) (void)printf("  %9s  %9s  %7s", "nccl", "nccl3", "ratio");
  if (o->enqueue > 0) (void)printf("  %9s", "enqueue");
  if (o->model != NULL) (void)printf("  %s", "model");
  (void)printf("\n# %12s  %10s  %9s  %9s  %9s  %7s  %7s  %7s  %7s", "(B)", "", "(us)", "(us)", "(us)", "(GB/s)",
               "(GB/s)", "(B)", "");
  if (o->baseline > 0) (void)printf("  %9s  %9s  %7s", "(us)", "(us)", "");
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
  printShape(o);
  (void)printf("# samples %d of %d exchanges %s, warm-up %d samples, checks %" PRId64 "\n", repeat->samples,
               repeat->perSample, repeat->graph ? "in one CUDA graph" : "back to back", repeat->warmup, o->checks);
  (void)printf("# size:   %s\n", op->sizeText);
  (void)printf("# time:   one exchange: median, min and max of a rank's samples, then the %s\n",
               perfAverageText((perfAverage_t)o->average));
  (void)printf("# busbw:  remote bytes of the busiest rank's busier direction / time\n");
  (void)printf("# limit%%: share of what one contiguous copy of those bytes to a peer GPU reaches, all GPUs at once\n");
  if (o->baseline > 0) {
    (void)printf(
        "# nccl:   registered NCCL send and receive of the same remote bytes without packing, 1 message a peer\n");
    (void)printf("# nccl3:  the same with a message a tensor; ratio: nccl / time\n");
  }
  if (o->enqueue > 0) (void)printf("# enqueue: host time of one call\n");
  printTitles(o);
  (void)fflush(stdout);
}

static void printMeasured(int width, int decimals, double number) {
  if (number < 0) {
    (void)printf("  %*s", width, "N/A");
  } else {
    (void)printf("  %*.*f", width, decimals, number);
  }
}

void perfTableRow(const perfOptions_t* o, const perfRow_t* row) {
  const double* values = row->values.of;
  (void)printf("  %12" PRId64 "  %10" PRId64, row->step->sizeBytes, row->step->tokens);
  printMeasured(9, 2, values[perfValueMedian]);
  printMeasured(9, 2, values[perfValueMin]);
  printMeasured(9, 2, values[perfValueMax]);
  printMeasured(7, 2, row->algorithmGBps);
  printMeasured(7, 2, row->busGBps);
  printMeasured(7, 0, o->checks > 0 ? values[perfValueWrong] : PERF_NOT_MEASURED);
  printMeasured(7, 1, row->limitPercent);
  if (o->baseline > 0) {
    const double ncclUs = values[perfValueNccl];
    printMeasured(9, 2, ncclUs);
    printMeasured(9, 2, values[perfValueNccl3]);
    printMeasured(7, 3, ncclUs >= 0 ? ncclUs / values[perfValueMedian] : PERF_NOT_MEASURED);
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
