#include "train/strategy.h"

#include <stdio.h>

#include "core/status.h"
#include "train/costs.h"

void trm_strategy_set_options(struct trm_strategy *strategy, const struct trm_options *options)
{
  strategy->options = &options->strategy;
  strategy->parallel = &options->parallel;
  strategy->seed = (uint64_t)options->run.seed;
  strategy->lanes = options->run.lanes;
  strategy->momentum = options->optim.momentum;
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

void trm_strategy_pass_time(const struct trm_strategy *strategy, size_t floats)
{
  struct trm_comm *comm = strategy->comm;
  if (strategy->costs)
    comm->ops->compute(comm, NULL, NULL, strategy->costs->copy * (double)(floats * sizeof(float)));
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
