/* A parameter server that drops what is too old: a worker that is slow, or never ends, does no harm, and the others do
 * not need the smaller rate that its late gradients would. Every worker gets the current weights for its gradient,
 * whether it counts or not.
 *
 * Ringmaster ASGD (Maranjyan, Tyurin & Richtarik 2025, algorithm 1: without stops): asgd, but a gradient that has
 * missed R updates or more (strategy.max_delay) is dropped. R = 1 takes gradients of the current weights alone; with R
 * above all delays it is asgd, bit for bit. The paper's R grows with the variance of the gradients, and is the best at
 * about the ratio of it to the wanted precision.
 *
 * Rennala SGD (Tyurin & Richtarik 2023): gradients of the current weights are collected until there are B
 * (strategy.collect); the optimizer's rule gets their mean, at the rate of the last one. All older ones are dropped. A
 * fast worker gives several. With B = 1 it is Ringmaster with R = 1.
 *
 * A chunk of the server is such a server for itself. A dropped gradient's rows are not trained; the distribution of
 * the staleness, which counts all gradients, tells how many there are: those of R or more; in Rennala, of 1 or more.
 * Running statistics are dropped with them. Gradients that rennala has collected may remain at a quiesce point; a
 * checkpoint keeps them for runs with the same number of ranks. */
#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

/* -- Ringmaster */

static int64_t ringmaster_limit(const struct trm_strategy *s)
{
  return s->options->max_delay > 0 ? s->options->max_delay : worker_count(s);
}

static bool ringmaster_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH && call->staleness < ringmaster_limit(s)) {
    const struct trm_update rule = server_weights_rule(s, call->value[SERVER_RATE], call->value[SERVER_SCALE]);
    server_weights_update(s, chunk, rule, call->in);
  } else if (call->kind == SERVER_PUSH)
    snapshots_count(s, chunk, 1);
  server_weights_reply(s, chunk, call);
  return true;
}

static int ringmaster_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true, .arrays = 1 + s->optimizer->states, .handler = ringmaster_serve};
  return worker_create(s, &plan, 0);
}

/* -- Rennala */

enum method_state { COLLECTED }; /* gradients in the mean */

static int ringmaster_batch_rennala(const struct trm_strategy *s)
{
  return s->options->collect > 0 ? (int)s->options->collect : worker_count(s);
}

/* Returns true if an update is due. The mean is the array after the optimizer's. */
static bool ringmaster_collect_rennala(const struct trm_strategy *s, const struct server_chunk *chunk,
                                       const struct server_call *call)
{
  const int count = ringmaster_batch_rennala(s);
  float *mean = server_array(chunk, 1 + s->optimizer->states);
  server_weights_add_to_mean(s, chunk, call, call->value[SERVER_SCALE], count, mean);
  return ++chunk->method_state[COLLECTED] >= count; /* more: of a checkpoint with another B */
}

static bool ringmaster_serve_rennala(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  const bool pushes = call->kind == SERVER_PUSH;
  if (pushes && call->staleness == 0 && ringmaster_collect_rennala(s, chunk, call)) {
    float *mean = server_array(chunk, 1 + s->optimizer->states);
    server_weights_update(s, chunk, server_weights_rule(s, call->value[SERVER_RATE], 1), mean);
    s->device->ops->fill(s->device, mean, 0, chunk->n);
    chunk->method_state[COLLECTED] = 0;
  } else if (pushes)
    snapshots_count(s, chunk, 1);
  server_weights_reply(s, chunk, call);
  return true;
}

static int ringmaster_create_rennala(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 1,
    .method_states = 1,
    .handler = ringmaster_serve_rennala,
  };
  return worker_create(s, &plan, 0);
}

const struct trm_strategy_ops trm_strategy_ringmaster = {
  .name = "ringmaster",
  .help = "asgd whose server drops gradients that have missed too many updates (Ringmaster ASGD)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = ringmaster_create,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};

const struct trm_strategy_ops trm_strategy_rennala = {
  .name = "rennala",
  .help = "an update takes a batch of gradients of the current weights; older ones are dropped (Rennala SGD)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = ringmaster_create_rennala,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
