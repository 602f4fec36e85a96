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

static void asgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH) {
    const bool divide = s->options->rate == TRM_STALE_RATE_DIVIDED && call->staleness > 1;
    struct trm_update update = s->optimizer->update;
    update.rate = (float)(call->value[SERVER_RATE] / (divide ? (double)call->staleness : 1));
    update.scale = (float)call->value[SERVER_SCALE];
    update.step = (uint64_t)++*chunk->clock;
    server_weights_update(s, chunk, &update, call->in);
  }
  server_weights_reply(chunk, call);
}

static void asgd_push(struct trm_strategy *s, const float *g, double rate, double scale)
{
  const double value[SERVER_VALUES] = {[SERVER_RATE] = rate, [SERVER_SCALE] = scale};
  worker_exchange(s, SERVER_PUSH, value, g, s->w, true);
}

/* Sends the unsent sum of gradients. */
static void asgd_drain(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->summed > 0) {
    asgd_push(s, asgd->sum, asgd->rate, 1);
    s->device->ops->fill(s->device, asgd->sum, 0, s->elements);
  }
  asgd->summed = 0;
}

static void asgd_destroy(struct trm_strategy *s)
{
  struct asgd *asgd = worker_of(s)->method;
  if (asgd->sum)
    s->device->ops->release(s->device, asgd->sum);
  worker_destroy(s);
}

static int asgd_create_workers(struct trm_strategy *s, bool groups)
{
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states,
    .handler = asgd_serve,
    .groups = groups,
    .drain = asgd_drain,
  };
  TRM_CHECK(worker_create(s, &plan, sizeof(struct asgd)));
  struct asgd *asgd = worker_of(s)->method;
  if (s->options->tau == 1)
    return TRM_OK;
  const int status = trm_agree(s->comm, worker_array(s, "sum of gradients", false, &asgd->sum));
  if (status != TRM_OK)
    asgd_destroy(s);
  return status;
}

static int asgd_create(struct trm_strategy *s)
{
  return asgd_create_workers(s, false);
}

static int asgd_create_groups(struct trm_strategy *s)
{
  return asgd_create_workers(s, true);
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
  struct worker *w = worker_of(s);
  struct asgd *asgd = w->method;
  TRM_CHECK(worker_check(s, sums));
  if (w->group->size > 1)
    w->group->ops->allreduce(w->group, s->g, s->elements, TRM_FLOAT, TRM_SUM);
  server_weights_share_statistics(s);
  const struct trm_update update = worker_update(s, rate, 0);
  asgd->rate = rate;
  if (!asgd->sum)
    asgd_push(s, s->g, rate, update.scale);
  else {
    asgd_local_step(s, rate, update.scale);
    if (asgd->summed == s->options->tau)
      asgd_drain(s);
  }
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_asgd = {
  .name = "asgd",
  .help = "every rank sends gradients to a parameter server, and does not wait for others (Downpour)",
  .takes = TRM_TAKES_ALL & ~TRM_TAKES_GROUPS,
  .create = asgd_create,
  .next_batch = worker_next_batch,
  .before_forward = server_weights_before_forward,
  .step = asgd_step,
  .quiesce = server_weights_quiesce,
  .collect = server_weights_collect,
  .restore = server_weights_restore,
  .destroy = asgd_destroy,
};

const struct trm_strategy_ops trm_strategy_groups = {
  .name = "groups",
  .help = "synchronous inside groups of ranks, asynchronous between them",
  .takes = TRM_TAKES_ALL & ~TRM_TAKES_SERVERS,
  .create = asgd_create_groups,
  .next_batch = worker_next_batch,
  .before_forward = server_weights_before_forward,
  .step = asgd_step,
  .quiesce = server_weights_quiesce,
  .collect = server_weights_collect,
  .restore = server_weights_restore,
  .destroy = asgd_destroy,
};
