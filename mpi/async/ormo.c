/* Ordered momentum, OrMo (Shi, Yang & Li 2024): asgd whose server has a momentum that counts gradients in the order in
 * which they were begun, not that in which they arrive.
 *
 * Synchronous momentum SGD of n workers takes n gradients an update:
 *
 *   v = momentum * v + the n gradients             w -= rate * v
 *
 * Here the n gradients of an update are those of a bucket: gradient number t, which is computed at the weights after t
 * updates, belongs to bucket ceil(t / n). A gradient g that arrives d buckets late has missed d products with the
 * momentum in v, and has been missing in the d + 1 steps of w since. So that the order of arrival changes nothing, it
 * counts as if it had been there:
 *
 *   at the first arrival of a bucket:   v = momentum * v            w -= rate * v
 *   at every arrival:                   v += momentum^d * g         w -= rate * (1 + momentum + ... + momentum^d) * g
 *
 * g = clip scale * gradient + l2 * w, at the worker's weights. One worker is optim.momentum of serial training; without
 * optim.momentum the method is asgd. strategy.rate divides a stale gradient (OrMo-DA is with strategy.rate=delay). */
#include <math.h>

#include "core/status.h"
#include "mpi/strategies.h"
#include "mpi/async/server_weights.h"

static int64_t ormo_bucket(int64_t number, int64_t workers)
{
  return (number + workers - 1) / workers;
}

static void ormo_update(const struct trm_strategy *s, const struct server_chunk *chunk, const struct server_call *call)
{
  const int64_t workers = worker_count(s), arrivals = *chunk->clock;
  const double momentum = s->optimizer->states > 0 ? (double)s->optimizer->update.momentum : 0;
  const double missed = (double)(ormo_bucket(arrivals, workers) - ormo_bucket(arrivals - call->staleness, workers));
  const double of_v = pow(momentum, missed), of_w = (1 - pow(momentum, missed + 1)) / (1 - momentum);
  const double share = 1 / server_weights_rate_divisor(s, call), rate = call->value[SERVER_RATE];
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  const bool first_of_bucket = momentum > 0 && arrivals % workers == 1 % workers;
  struct trm_update update = server_weights_rule(s, rate, share * (first_of_bucket ? of_v : of_w));
  update.l2 = 0;
  if (first_of_bucket) { /* the rule does both: what is left is the part of the steps before this one */
    server_weights_update(s, chunk, update, call->in);
    if (missed > 0)
      server_weights_axpy(s, -rate * share * (of_w - of_v), trained, server_array(chunk, 0), call->in);
    return;
  }
  if (momentum > 0)
    server_weights_axpy(s, share * of_v, trained, server_array(chunk, 1), call->in);
  update.rule = TRM_UPDATE_SGD;
  server_weights_update(s, chunk, update, call->in);
}

static bool ormo_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    ormo_update(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int ormo_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.centralized = true, .arrays = 1 + s->optimizer->states, .handler = ormo_serve};
  if (s->optimizer->update.rule == TRM_UPDATE_NESTEROV)
    return trm_error(TRM_USAGE, "optim.name=nesterov: ormo orders the momentum of optim.name=sgd");
  return worker_create(s, &plan, 0);
}

static int ormo_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  const size_t trained = trm_optimizer_trained(s->optimizer);
  const float *w = s->w, l2 = s->optimizer->update.l2;
  float *restrict g = s->g;
  double scale;
  TRM_CHECK(server_weights_prepare(s, sums, &scale));
  for (size_t i = 0; i < trained; i++)
    g[i] = (float)scale * g[i] + l2 * w[i];
  trm_strategy_pass_time(s, 3 * trained);
  server_weights_push(s, g, rate, 1);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_ormo = {
  .name = "ormo",
  .help = "asgd with a momentum that counts gradients in the order in which they were begun (OrMo)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_AVERAGE | TRM_TAKES_RULES),
  SERVER_WEIGHTS_SLOTS,
  .create = ormo_create,
  .before_forward = server_weights_before_forward,
  .step = ormo_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
