/* n-softsync (Zhang, Gupta, Lian & Liu 2016): the server combines several gradients per update; workers do not wait.
 *
 * With P workers c = max(1, P / n) gradients, in order of arrival, make an update: the optimizer's rule gets their
 * mean, and the rate of the last one. n = 1 (strategy.splits) makes as many updates as synchronous SGD; n = P equals
 * asgd. Running statistics move once an update, towards the mean of the c batches' moments, as in synchronous SGD.
 *
 * The clock of a chunk counts updates, so the staleness of a gradient is the number of updates since its worker read
 * the weights: about n if all are equally fast. strategy.rate=staleness divides each gradient by its staleness,
 * strategy.rate=delay by staleness / P where that is above 1 (asgd.c).
 *
 * Fewer than c gradients, which are not yet applied, may remain on the server at a quiesce point and at the end of the
 * run; a checkpoint keeps them for runs with the same number of ranks. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

enum method_state { WAITING }; /* gradients summed so far */

static int softsync_gradients_per_update(const struct trm_strategy *s)
{
  const int64_t workers = worker_count(s), splits = s->options->splits;
  return splits < workers ? (int)(workers / splits) : 1;
}

static void softsync_receive(const struct trm_strategy *s, const struct server_chunk *chunk,
                             const struct server_call *call)
{
  const int count = softsync_gradients_per_update(s);
  const double scale = call->value[SERVER_SCALE] / server_weights_rate_divisor(s, call);
  float *mean = count > 1 ? server_array(chunk, 1 + s->optimizer->states) : NULL;
  if (mean) {
    server_weights_add_to_mean(s, chunk, call, scale, count, mean);
    if (++chunk->method_state[WAITING] < count)
      return;
    chunk->method_state[WAITING] = 0;
  }
  const struct trm_update update = server_weights_rule(s, call->value[SERVER_RATE], mean ? 1 : scale);
  server_weights_update(s, chunk, update, mean ? mean : call->in);
  if (mean)
    s->device->ops->fill(s->device, mean, 0, chunk->n);
}

static bool softsync_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    softsync_receive(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int softsync_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + (softsync_gradients_per_update(s) > 1),
    .method_states = 1,
    .handler = softsync_serve,
    .update_gradients = softsync_gradients_per_update(s),
  };
  return worker_create(s, &plan, 0);
}

/* Clocks count updates, each of several gradients. */
static int softsync_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(server_weights_restore(s, from, updates));
  if (!s->local_state_restored)
    param_server_set_clocks(worker_of(s)->server, worker_gradients(s, updates) / softsync_gradients_per_update(s));
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_softsync = {
  .name = "softsync",
  .help = "an update takes the mean of the first workers / n gradients that come (n-softsync)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS),
  SERVER_WEIGHTS_SLOTS,
  .create = softsync_create,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = softsync_restore,
  .destroy = worker_destroy,
};
