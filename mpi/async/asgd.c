/* Asynchronous SGD with a parameter server: Downpour (Dean et al. 2012), and groups (Kurth et al. 2017).
 *
 * A worker computes a gradient at the weights it has, sends it, and gets back the current weights. The server applies
 * the optimizer to each gradient, in the order of arrival: updates of other workers lie between the weights a gradient
 * was computed at and the weights it changes. With strategy.tau > 1 the worker takes local steps of plain SGD between
 * exchanges, and sends the sum of tau gradients. Gradients of several workers are summed, not averaged: P workers move
 * the weights P times in the time of one synchronous step.
 *
 * Groups: the ranks of a group share a batch, like one faster worker. One group is synchronous SGD, as many groups as
 * ranks is Downpour.
 *
 * strategy.rate=staleness divides the rate by the number of updates a gradient has missed (Zhang et al. 2016). */
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/server_weights.h"

struct asgd {
  float *sum;     /* device, (elements) sum of unsent gradients; NULL: tau is 1 */
  int64_t summed; /* number of gradients in sum */
  double rate;    /* of the latest */
};

static bool asgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH)
    server_weights_update(s, chunk, call->value[SERVER_RATE] / server_weights_rate_divisor(s, call),
                          call->value[SERVER_SCALE], call->in);
  server_weights_reply(chunk, call);
  return true;
}

/* Sends the unsent sum of gradients. */
static void asgd_drain(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->summed > 0) {
    server_weights_push(s, asgd->sum, asgd->rate, 1);
    s->device->ops->fill(s->device, asgd->sum, 0, s->elements);
  }
  asgd->summed = 0;
}

static int asgd_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true, .arrays = 1 + s->optimizer->states, .handler = asgd_serve, .drain = asgd_drain};
  TRM_CHECK(worker_create(s, &plan, sizeof(struct asgd)));
  struct asgd *asgd = worker_of(s)->method;
  return s->options->tau == 1 ? TRM_OK : trm_agree(s->comm, worker_array(s, s->elements, NULL, &asgd->sum));
}

/* Local step between exchanges: plain SGD on the worker's weights. Statistics are added unscaled. */
static void asgd_local_step(struct trm_strategy *s, double rate, double scale)
{
  struct asgd *asgd = worker_of(s)->method;
  server_weights_add_scaled(s, scale, 1, 0, s->elements, asgd->sum, s->g);
  server_weights_add_scaled(s, -rate * scale, 1, 0, s->elements, s->w, s->g);
  asgd->summed++;
}

static int asgd_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct asgd *asgd = worker_of(s)->method;
  double scale;
  if (!asgd->sum)
    return server_weights_step(s, rate, sums);
  TRM_CHECK(server_weights_prepare(s, sums, &scale));
  asgd->rate = rate;
  asgd_local_step(s, rate, scale);
  if (asgd->summed == s->options->tau)
    asgd_drain(s);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_asgd = {
  .name = "asgd",
  .help = "every rank sends gradients to a parameter server, and does not wait for others (Downpour)",
  .takes = TRM_TAKES_ALL & ~TRM_TAKES_GROUPS,
  SERVER_WEIGHTS_SLOTS,
  .create = asgd_create,
  .before_forward = server_weights_before_forward,
  .step = asgd_step,
  .restore = server_weights_restore,
};

const struct trm_strategy_ops trm_strategy_groups = {
  .name = "groups",
  .help = "synchronous inside groups of ranks, asynchronous between them",
  .takes = TRM_TAKES_ALL & ~TRM_TAKES_SERVERS,
  SERVER_WEIGHTS_SLOTS,
  .create = asgd_create,
  .before_forward = server_weights_before_forward,
  .step = asgd_step,
  .restore = server_weights_restore,
};
