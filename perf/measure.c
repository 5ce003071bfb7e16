/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include <stdio.h>
#include <string.h>

#include "exchange.h"
#include "report.h"

/* The first launches of a graph upload it. */
#define GRAPH_WARMUP_LAUNCHES 2
/* Fewer exchanges in a graph would show the launch and not the exchange. */
#define GRAPH_LEAST_EXCHANGES 20

perfRepeat_t perfRepeatOf(const perfRank_t* me) {
  const perfOptions_t* options = me->options;
  if (options->graphLaunches > 0) {
    const int exchanges = (int)options->iterations;
    return (perfRepeat_t){GRAPH_WARMUP_LAUNCHES, (int)options->graphLaunches,
                          exchanges > GRAPH_LEAST_EXCHANGES ? exchanges : GRAPH_LEAST_EXCHANGES, (int)options->skip,
                          true};
  }
  const int perSample = options->perIteration > 0 ? (int)options->perIteration : me->backend->perSample;
  return (perfRepeat_t){(int)options->warmup, (int)options->iterations, perSample, (int)options->skip, false};
}

static bool copyChoice(const perfRank_t* me, const perfOp_t* op, ulyxPlan_t plan, perfChoice_t* choice) {
  const int backward = op->backward || me->options->backward != 0 ? 1 : 0;
  ulyxChoice_t chosen;
  memset(&chosen, 0, sizeof(chosen));
  if (!perfUlyxOk(ulyxPlanGetChoice(plan, backward, &chosen), me->rt, "ulyxPlanGetChoice")) return false;
  choice->transport = chosen.transport;
  choice->predictedUs = chosen.predictedUs >= 0 ? chosen.predictedUs : PERF_NOT_MEASURED;
  (void)snprintf(choice->reason, sizeof(choice->reason), "%s", chosen.reason != NULL ? chosen.reason : "");
  return true;
}

/* What a device found while the exchanges ran is no wrong byte yet. */
static bool deviceFoundNothing(const perfRank_t* me) {
  ulyxResult_t found = ulyxSuccess;
  return perfUlyxOk(ulyxRuntimeGetAsyncError(me->rt, &found), me->rt, "ulyxRuntimeGetAsyncError") &&
         perfUlyxOk(found, me->rt, "an exchange");
}

/* Exchanges checked before anything is timed, each with new data. */
static bool checkFirst(perfRank_t* me, perfExchange_t* exchange, int64_t* wrong) {
  for (int64_t i = 0; i < me->options->checks; i++) {
    if (i > 0 && !perfExchangeRefresh(exchange)) return false;
    if (!perfExchangeRun(exchange, me->stream)) return false;
    if (!me->backend->drain(me) || !deviceFoundNothing(me)) return false;
    if (!perfExchangeCheck(exchange, wrong)) return false;
  }
  return true;
}

static bool measureTimes(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, perfExchange_t* exchange,
                         perfValues_t* values) {
  const perfBackend_t* backend = me->backend;
  const perfTask_t task = {perfExchangeRun, perfExchangeRefresh, exchange};
  const perfRepeat_t repeat = perfRepeatOf(me);
  int64_t wrong = 0;
  perfTimes_t times;
  if (!checkFirst(me, exchange, &wrong)) return false;
  if (!backend->time(me, &task, &repeat, &times) || !deviceFoundNothing(me)) return false;
  if (me->options->checks > 0 && !perfExchangeCheck(exchange, &wrong)) return false;
  values->of[perfValueMedian] = times.medianUs;
  values->of[perfValueMin] = times.minUs;
  values->of[perfValueMax] = times.maxUs;
  values->of[perfValueMean] = times.meanUs;
  values->of[perfValueP99] = times.p99Us;
  values->of[perfValueWrong] = (double)wrong;
  values->of[perfValueMemory] = (double)perfExchangeMemory(exchange);
  if (me->options->enqueue > 0 && !backend->timeEnqueue(me, &task, &values->of[perfValueEnqueue])) return false;
  if (me->world->kind == perfWorldGpus && me->nRanks >= 2 && step->remoteBytes > 0) {
    if (!backend->timePeerCopy(me, step->remoteBytes, &values->of[perfValueLimit])) return false;
  }
  if (me->options->baseline > 0) {
    for (int i = 0; i < op->nBaselines; i++) {
      double* us = &values->of[perfValueBaseline + i];
      if (!backend->timeBaseline(me, op, &exchange->problem, op->baselines[i].kind, &repeat, us)) return false;
    }
  }
  return true;
}

bool perfMeasure(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, perfValues_t* values,
                 perfChoice_t* choice) {
  for (int i = 0; i < perfValueCount; i++) values->of[i] = PERF_NOT_MEASURED;
  perfExchange_t exchange;
  const bool ok = perfExchangeCreate(me, op, step, &exchange) && copyChoice(me, op, exchange.plan, choice) &&
                  measureTimes(me, op, step, &exchange, values);
  if (!ok) perfTeamFail(me->team);
  perfExchangeDestroy(&exchange, ok);
  return ok;
}
