#include "train/strategy.h"

#include <math.h>
#include <stdio.h>

#include "core/status.h"
#include "core/trace.h"
#include "train/costs.h"

void trm_strategy_set_options(struct trm_strategy *strategy, const struct trm_options *options)
{
  strategy->options = &options->strategy;
  strategy->parallel = &options->parallel;
  strategy->seed = (uint64_t)options->run.seed;
  strategy->lanes = options->run.lanes;
  strategy->record = options->run.record;
  strategy->replay = options->simulate.replay;
  strategy->conflicts = options->simulate.conflicts;
  strategy->momentum = options->optim.momentum;
  strategy->node_clip = options->strategy.compress == TRM_COMPRESS_DGC ? options->optim.clip : 0;
}

int trm_strategy_snapshots(const struct trm_options *options, size_t rows)
{
  const uint64_t every = (uint64_t)options->train.evaluate_every, batch = (uint64_t)options->train.batch;
  const int64_t limits[] = {options->run.checkpoint_every, options->train.steps};
  if (every == 0)
    return 0;
  uint64_t interval = (rows + batch - 1) / batch; /* updates from one quiesce point to the next */
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    if (limits[i] > 0 && (uint64_t)limits[i] < interval)
      interval = (uint64_t)limits[i];
  const uint64_t evaluations = interval > 1 ? (interval - 1) / every + 1 : 0;
  return evaluations < TRM_MAX_SNAPSHOTS ? (int)evaluations : TRM_MAX_SNAPSHOTS;
}

const struct trm_strategy_ops *trm_strategy_select(const struct trm_strategy *strategy)
{
  return strategy->ops->select ? strategy->ops->select(strategy) : strategy->ops;
}

int trm_strategy_create(struct trm_strategy *strategy)
{
  strategy->ops = trm_strategy_select(strategy);
  strategy->parts = 1;
  const int status = strategy->ops->create(strategy);
  if (status != TRM_OK && strategy->impl)
    strategy->ops->destroy(strategy);
  if (status != TRM_OK)
    strategy->ops = NULL;
  return status;
}

void trm_strategy_begin_step(const struct trm_strategy *strategy, double rate, uint64_t first_row,
                             const struct trm_loss_sums *sums)
{
  if (!strategy->now)
    return;
  struct trm_step step = trm_optimizer_step(strategy->optimizer, strategy->updates + 1, rate);
  step.first_row = first_row;
  step.loss = sums->loss;
  step.correct = sums->correct;
  step.rows = sums->rows;
  strategy->device->ops->upload(strategy->device, strategy->now, &step, sizeof step);
}

struct trm_wire_means trm_wire_means(const struct trm_wire *wire, struct trm_comm *comm)
{
  const double exposed_s = fmin(wire->exposed_s, wire->flight_s);
  double sums[] = {(double)wire->bytes, wire->flight_s - exposed_s, exposed_s};
  comm->ops->allreduce(comm, sums, 3, TRM_DOUBLE, TRM_SUM);
  const double steps = wire->steps ? (double)wire->steps * comm->size : 1;
  return (struct trm_wire_means){.bytes = sums[0] / steps, .wire_s = (sums[1] + sums[2]) / steps,
                                 .hidden_s = sums[1] / steps, .exposed_s = sums[2] / steps};
}

void trm_strategy_pass_time(const struct trm_strategy *strategy, size_t floats)
{
  struct trm_comm *comm = strategy->comm;
  if (!strategy->costs)
    return;
  const double began = trm_trace_begin("copy");
  comm->ops->compute(comm, NULL, NULL, strategy->costs->copy * (double)(floats * sizeof(float)));
  trm_trace_end("copy", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
}

int trm_strategy_keep(struct trm_strategy *strategy, const char *name, void *data, size_t bytes)
{
  if (strategy->local_states == TRM_MAX_LOCAL_STATES)
    return trm_error(TRM_FAILED, "strategy.name=%s: more than %d local states of a rank, at \"%s\"",
                     strategy->ops->name, TRM_MAX_LOCAL_STATES, name);
  struct trm_local_state *state = &strategy->local_state[strategy->local_states++];
  *state = (struct trm_local_state){.data = data, .bytes = bytes};
  if (snprintf(state->name, sizeof state->name, "%s: %s", strategy->ops->name, name) >= (int)sizeof state->name)
    return trm_error(TRM_FAILED, "strategy.name=%s: the name of the local state \"%s\" is too long",
                     strategy->ops->name, name);
  return TRM_OK;
}
