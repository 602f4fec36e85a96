/* A parameter server that drops what is too old: a worker that is slow, or never ends, does no harm, and the others do
 * not need the smaller rate that its late gradients would. Every worker gets the current weights for its gradient,
 * whether it counts or not.
 *
 * Ringmaster ASGD (Maranjyan, Tyurin & Richtarik 2025, algorithm 1: without stops): asgd, but a gradient that has
 * missed R updates or more (strategy.max_delay) is dropped. R = 1 takes gradients of the current weights alone; with R
 * above all delays it is asgd, bit for bit. The paper's R grows with the variance of the gradients, and is the best at
 * about the ratio of it to the wanted precision.
 *
 * With strategy.stops=yes it is the form with stops: a worker abandons a gradient as soon as it has missed R updates,
 * and computes one of other rows at the current weights. So a worker that would never end ends R updates after it has
 * begun. With R = 1 each update is of the current weights, by the worker that is the first to have a gradient of them;
 * with R above all delays it is asgd, bit for bit.
 *
 * Rennala SGD (Tyurin & Richtarik 2023): gradients of the current weights are collected until there are B
 * (strategy.collect); the optimizer's rule gets their mean, at the rate of the last one. All older ones are dropped. A
 * fast worker gives several. With B = 1 it is Ringmaster with R = 1.
 *
 * A chunk of the server is such a server for itself; a worker stops by the delay of the first one. A dropped or
 * abandoned gradient's rows are not trained; the distribution of
 * the staleness, which counts all gradients, tells how many there are: those of R or more; in Rennala, of 1 or more.
 * Running statistics are dropped with them. Gradients that rennala has collected may remain at a quiesce point; a
 * checkpoint keeps them for runs with the same number of ranks. */
#include "core/status.h"
#include "mpi/async/delay_watch.h"
#include "mpi/strategies.h"

/* -- Ringmaster */

static int64_t ringmaster_limit(const struct trm_strategy *s)
{
  return s->options->max_delay > 0 ? s->options->max_delay : worker_count(s);
}

static bool ringmaster_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == DELAY_WATCH_BEGIN || call->kind == DELAY_WATCH_LEAVE)
    return delay_watch_serve(chunk, call, ringmaster_limit(s));
  if (call->kind == SERVER_PUSH && call->staleness < ringmaster_limit(s)) {
    const struct trm_update rule = server_weights_rule(s, call->value[SERVER_RATE], call->value[SERVER_SCALE]);
    server_weights_update(s, chunk, rule, call->in);
  } else if (call->kind != SERVER_PULL)
    snapshots_count(s, chunk, 1);
  server_weights_reply(s, chunk, call);
  if (s->options->stops)
    delay_watch_read(chunk, call);
  return true;
}

static bool ringmaster_abandons(const struct trm_strategy *s)
{
  return delay_watch_is_reached(s, worker_of(s)->method);
}

static void ringmaster_restart(struct trm_strategy *s)
{
  worker_exchange(s, DELAY_WATCH_STOPPED, NULL, NULL, s->w, true);
}

static void ringmaster_drain(struct trm_strategy *s)
{
  delay_watch_leave(s, worker_of(s)->method);
}

static int ringmaster_create(struct trm_strategy *s)
{
  struct worker_plan plan = {
    .centralized = true, .arrays = 1 + s->optimizer->states, .handler = ringmaster_serve};
  if (s->options->stops) {
    plan.slots = DELAY_WATCH_SLOTS;
    plan.method_states = delay_watch_states(s);
    plan.abandons = ringmaster_abandons;
    plan.restart = ringmaster_restart;
    plan.drain = ringmaster_drain;
  }
  TRM_CHECK(worker_create(s, &plan, sizeof(struct delay_watch)));
  if (s->options->stops)
    delay_watch_create(s, worker_of(s)->method, ringmaster_limit(s));
  return TRM_OK;
}

static int ringmaster_before_forward(struct trm_strategy *s)
{
  TRM_CHECK(server_weights_before_forward(s));
  if (s->options->stops)
    delay_watch_begin(s, worker_of(s)->method);
  return TRM_OK;
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
  .takes = (TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE)) | TRM_TAKES_STOPS,
  SERVER_WEIGHTS_SLOTS,
  .create = ringmaster_create,
  .before_forward = ringmaster_before_forward,
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
