/* MindFlayer SGD (Maranjyan, Shehata & Richtarik, UAI 2025; arXiv 2410.04285), for compute times with heavy tails: a
 * gradient that takes long is not waited for, but begun anew, with other rows and another time.
 *
 * In a round each of the n workers makes B = strategy.trials trials at the same weights: it computes a gradient, for
 * strategy.frame seconds at most (t; 0: to its end). What has not ended then is abandoned. When all trials of the round
 * have ended, the sum of the gradients that arrived is divided by the number that was to be expected:
 *
 *   w -= rate * sum of gradients / (sum over the workers of p_i B)      p_i = P(a gradient of worker i takes at most t)
 *
 * which is the mean gradient in expectation. The paper knows p_i; here it is the share of all trials of worker i so far
 * that arrived, those of the round among them. Without a frame every p_i is 1, and a round is a synchronous step with a
 * batch of n B gradients. The paper has a B and a t for each worker; here they are equal.
 *
 * A worker that has made its trials waits for the others. It takes part in the rounds from its first batch after a
 * quiesce point to its last one before the next; of a round that it leaves, the trials that it has made count. A pause
 * between two trials (run.outages) is waited for. If no gradient arrives in a round there is no update. The optimizer's
 * rule gets the quotient, at the rate of the latest gradient; of running statistics, the mean of those that arrived. A
 * chunk of the server is such a server for itself. The rows of an abandoned trial are not trained. */
#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

/* Calls. MISS: a trial has been abandoned; LEAVE: the worker makes none before the next quiesce point. */
enum call { MISS = SERVER_CALL_KINDS, LEAVE };
/* method_state. ARRIVED: gradients in the sum; RATE: of the latest. Then of each worker. */
enum method_state { ARRIVED, RATE, WORKERS };
/* TAKES_PART: 1 if it does. MADE: its trials in the round. ALL, SUCCESSES: in the run; those that arrived. */
enum worker_state { TAKES_PART, MADE, ALL, SUCCESSES, WORKER_STATES };

struct mindflayer {
  int64_t made; /* trials at the weights of w */
};

static double *mindflayer_state(const struct server_chunk *chunk, int worker, enum worker_state state)
{
  return &chunk->method_state[WORKERS + worker * WORKER_STATES + (int)state];
}

/* Of the gradients that arrived, after the optimizer's. */
static float *mindflayer_sum(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  return server_array(chunk, 1 + s->optimizer->states);
}

static bool mindflayer_has_ended(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  for (int k = 0; k < worker_count(s); k++)
    if (*mindflayer_state(chunk, k, TAKES_PART) > 0 && *mindflayer_state(chunk, k, MADE) < (double)s->options->trials)
      return false;
  return true;
}

/* Gradients to be expected of the trials of the round. */
static double mindflayer_expected(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  double expected = 0;
  for (int k = 0; k < worker_count(s); k++) {
    const double made = *mindflayer_state(chunk, k, MADE);
    if (made > 0)
      expected += made * *mindflayer_state(chunk, k, SUCCESSES) / *mindflayer_state(chunk, k, ALL);
  }
  return expected;
}

static void mindflayer_update(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  float *sum = mindflayer_sum(s, chunk);
  const double rate = chunk->method_state[RATE];
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  const struct trm_update rule = server_weights_rule(s, rate, 1 / mindflayer_expected(s, chunk));
  for (size_t i = trained; i < chunk->n; i++)
    sum[i] /= (float)chunk->method_state[ARRIVED];
  server_weights_apply(s, chunk, rule, sum);
}

/* Begins the next round if all trials of this one have ended. */
static void mindflayer_end_round(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  if (!mindflayer_has_ended(s, chunk))
    return;
  if (chunk->method_state[ARRIVED] > 0) {
    mindflayer_update(s, chunk);
    s->device->ops->fill(s->device, mindflayer_sum(s, chunk), 0, chunk->n);
  }
  chunk->method_state[ARRIVED] = 0;
  for (int k = 0; k < worker_count(s); k++)
    *mindflayer_state(chunk, k, MADE) = 0;
}

/* A trial, with its gradient or without. */
static void mindflayer_count(const struct trm_strategy *s, const struct server_chunk *chunk,
                             const struct server_call *call)
{
  if (call->kind == SERVER_PUSH) {
    server_weights_add_to_mean(s, chunk, call, call->value[SERVER_SCALE], 1, mindflayer_sum(s, chunk));
    chunk->method_state[ARRIVED]++;
    chunk->method_state[RATE] = call->value[SERVER_RATE];
    ++*mindflayer_state(chunk, call->caller, SUCCESSES);
  }
  ++*mindflayer_state(chunk, call->caller, ALL);
  ++*mindflayer_state(chunk, call->caller, MADE);
  mindflayer_end_round(s, chunk);
  snapshots_count(s, chunk, 1);
}

static bool mindflayer_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  double *takes_part = mindflayer_state(chunk, call->caller, TAKES_PART);
  if (call->kind == SERVER_PULL) {
    if (*mindflayer_state(chunk, call->caller, MADE) >= (double)s->options->trials)
      return false;
    *takes_part = 1;
    server_weights_reply(s, chunk, call);
  } else if (call->kind == LEAVE) {
    *takes_part = 0;
    mindflayer_end_round(s, chunk);
  } else
    mindflayer_count(s, chunk, call);
  return true;
}

/* -- a worker */

static bool mindflayer_abandons(const struct trm_strategy *s)
{
  return s->abandon_at > 0 && s->comm->ops->clock(s->comm) > s->abandon_at;
}

static void mindflayer_restart(struct trm_strategy *s)
{
  struct mindflayer *m = worker_of(s)->method;
  m->made++;
  worker_exchange(s, MISS, NULL, NULL, NULL, true);
}

static void mindflayer_leave(struct trm_strategy *s)
{
  const struct server_request request = {.kind = LEAVE};
  s->abandon_at = 0; /* evaluations have no limit */
  param_server_exchange(worker_of(s)->server, &request);
}

static int mindflayer_create(struct trm_strategy *s)
{
  struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 1,
    .method_states = WORKERS + worker_count(s) * WORKER_STATES,
    .handler = mindflayer_serve,
    .drain = mindflayer_leave,
  };
  if (s->options->frame > 0) {
    plan.abandons = mindflayer_abandons;
    plan.restart = mindflayer_restart;
  }
  return worker_create(s, &plan, sizeof(struct mindflayer));
}

static int mindflayer_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct mindflayer *m = w->method;
  if (!w->fresh || m->made >= s->options->trials) {
    worker_exchange(s, SERVER_PULL, NULL, NULL, s->w, false);
    m->made = 0;
  }
  w->fresh = true;
  s->abandon_at = s->options->frame > 0 ? s->comm->ops->clock(s->comm) + s->options->frame : 0;
  return TRM_OK;
}

static int mindflayer_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct mindflayer *m = worker_of(s)->method;
  double value[SERVER_VALUES] = {[SERVER_RATE] = rate};
  TRM_CHECK(server_weights_prepare(s, sums, &value[SERVER_SCALE]));
  m->made++;
  worker_exchange(s, SERVER_PUSH, value, s->g, NULL, true);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_mindflayer = {
  .name = "mindflayer",
  .help = "rounds of trials of limited time; gradients that take longer are begun anew (MindFlayer SGD)",
  .takes = (TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE)) | TRM_TAKES_FRAME,
  SERVER_WEIGHTS_SLOTS,
  .create = mindflayer_create,
  .before_forward = mindflayer_before_forward,
  .step = mindflayer_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
