/* Elastic averaging (Zhang, Choromanska & LeCun 2015): every worker has weights w and an optimizer of its own, and an
 * elastic force ties it to a common center variable c. Every strategy.tau batches
 *
 *   d = alpha (w - c)        w -= the optimizer's step + d        c += d
 *
 * where the gradient and d are of the same w: the local step comes before d is subtracted. The center gains what the
 * worker loses, so the sum of all weights moves by gradients alone. The center is the result of the run. It includes
 * the statistics, which move like the weights. With one worker this is not serial SGD: the center lags behind it.
 *
 * eamsgd: the local steps are Nesterov's, with momentum 0.99 unless optim.momentum says otherwise. They have the form
 * of nn/optimizer.h, so that w is the point where the gradient is taken.
 *
 * Staleness: the number of moves of the center by others since this worker's last one. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/server_weights.h"
#include "mpi/async/peers.h"

enum kind { READ_CLOCK, ELASTIC_UPDATE };

struct easgd {
  struct peers peers;
  float *distance; /* device, (elements) d */
  double alpha;
  bool knows_clock;           /* the center's clock has been read, for the staleness of the first exchange */
  struct trm_optimizer local; /* eamsgd: Nesterov's rule */
};

/* READ_CLOCK: the reply carries the clock. */
static void easgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  (void)context;
  float *restrict center = server_array(chunk, 0), *restrict d = call->out;
  const float *restrict w = call->in;
  if (call->kind == READ_CLOCK) {
    memcpy(d, center, chunk->n * sizeof *d);
    return;
  }
  const float alpha = (float)call->value[0];
  for (size_t i = 0; i < chunk->n; i++) {
    d[i] = alpha * (w[i] - center[i]);
    center[i] += d[i];
  }
  ++*chunk->clock;
}

static int easgd_create(struct trm_strategy *s)
{
  const double alpha = s->options->alpha;
  if (alpha < 0 && alpha != -1)
    return trm_error(TRM_USAGE, "strategy.alpha: %g would push worker and center apart (0 to 1; -1: 0.9 / workers)",
                     alpha);
  const struct worker_plan plan = {.centralized = true, .arrays = 1, .handler = easgd_serve, .local = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct easgd)));
  struct worker *w = worker_of(s);
  struct easgd *easgd = w->method;
  easgd->alpha = alpha < 0 ? 0.9 / w->workers : alpha;
  return trm_agree(s->comm, worker_array(s, "distances to the center", false, &easgd->distance));
}

/* Replaces the strategy's optimizer by one with Nesterov's rule. */
static int easgd_create_eamsgd(struct trm_strategy *s)
{
  struct trm_optimizer nesterov = *s->optimizer;
  nesterov.update.rule = TRM_UPDATE_NESTEROV;
  nesterov.update.momentum = (float)(s->momentum > 0 ? s->momentum : 0.99);
  nesterov.states = 1 + (nesterov.ema > 0);
  const struct trm_optimizer *original = s->optimizer;
  s->optimizer = &nesterov;
  const int status = easgd_create(s);
  s->optimizer = original;
  if (status != TRM_OK)
    return status;
  struct easgd *easgd = worker_of(s)->method;
  easgd->local = nesterov;
  s->optimizer = &easgd->local;
  return TRM_OK;
}

static int easgd_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct easgd *easgd = worker_of(s)->method;
  struct trm_update update;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &update, &exchanges));
  if (!easgd->knows_clock)
    worker_exchange(s, READ_CLOCK, NULL, NULL, easgd->distance, false);
  easgd->knows_clock = true;
  if (exchanges)
    worker_exchange(s, ELASTIC_UPDATE, (const double[SERVER_VALUES]){easgd->alpha}, s->w, easgd->distance, true);
  worker_apply(s, &update);
  if (exchanges) {
    const struct trm_update subtract = {.rule = TRM_UPDATE_SGD, .rate = 1, .scale = 1};
    s->device->ops->update(s->device, &subtract, s->w, easgd->distance, NULL, NULL, s->elements);
  }
  return TRM_OK;
}

static int easgd_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct easgd *easgd = w->method;
  if (!s->local_state_restored)
    easgd->peers.batches = (int64_t)updates / w->workers;
  easgd->knows_clock = false;
  return server_weights_restore(s, from, updates);
}

static void easgd_destroy(struct trm_strategy *s)
{
  struct easgd *easgd = worker_of(s)->method;
  s->device->ops->release(s->device, easgd->distance);
  worker_destroy(s);
}

const struct trm_strategy_ops trm_strategy_easgd = {
  .name = "easgd",
  .help = "workers with weights of their own, tied to a common center variable (elastic averaging)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_AVERAGE),
  .create = easgd_create,
  .next_batch = worker_next_batch,
  .step = easgd_step,
  .quiesce = server_weights_quiesce,
  .collect = server_weights_collect,
  .restore = easgd_restore,
  .destroy = easgd_destroy,
};

const struct trm_strategy_ops trm_strategy_eamsgd = {
  .name = "eamsgd",
  .help = "elastic averaging of workers that make Nesterov's steps",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_AVERAGE | TRM_TAKES_RULES),
  .create = easgd_create_eamsgd,
  .next_batch = worker_next_batch,
  .step = easgd_step,
  .quiesce = server_weights_quiesce,
  .collect = server_weights_collect,
  .restore = easgd_restore,
  .destroy = easgd_destroy,
};
