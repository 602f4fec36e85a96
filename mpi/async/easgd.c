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
 * Staleness: the number of moves of the center by others between two of this worker's. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/async/peers.h"
#include "mpi/strategies.h"

enum kind { READ_CLOCK, ELASTIC_UPDATE };

struct easgd {
  struct peers peers;
  float *distance; /* device, (elements) d */
  double alpha;
  bool knows_clock; /* the center's clock has been read, for the staleness of the first exchange */
  struct trm_optimizer nesterov; /* eamsgd: the strategy's, with Nesterov's rule */
};

/* READ_CLOCK: the reply carries the clock. */
static bool easgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  float *restrict center = server_array(chunk, 0), *restrict d = call->out;
  const float *restrict w = call->in;
  if (call->kind == READ_CLOCK) {
    memcpy(d, center, chunk->n * sizeof *d);
    trm_strategy_pass_time(s, 2 * chunk->n);
    return true;
  }
  const float alpha = (float)call->value[0];
  for (size_t i = 0; i < chunk->n; i++) {
    d[i] = alpha * (w[i] - center[i]);
    center[i] += d[i];
  }
  trm_strategy_pass_time(s, 4 * chunk->n);
  ++*chunk->clock;
  snapshots_count(s, chunk, s->options->tau);
  return true;
}

/* eamsgd replaces the strategy's optimizer by one with Nesterov's rule. */
static int easgd_create(struct trm_strategy *s)
{
  const double alpha = s->options->alpha;
  if (alpha < 0 && alpha != -1)
    return trm_error(TRM_USAGE, "strategy.alpha: %g would push worker and center apart (0 to 1; -1: 0.9 / workers)",
                     alpha);
  const struct worker_plan plan = {.centralized = true, .arrays = 1, .handler = easgd_serve, .local = true};
  const bool is_eamsgd = s->ops == &trm_strategy_eamsgd;
  const struct trm_optimizer *original = s->optimizer;
  struct trm_optimizer nesterov = *original;
  nesterov.update.rule = TRM_UPDATE_NESTEROV;
  nesterov.update.momentum = (float)(s->momentum > 0 ? s->momentum : 0.99);
  nesterov.states = 1 + (nesterov.ema > 0);
  s->optimizer = is_eamsgd ? &nesterov : original;
  const int status = peers_create(s, &plan, sizeof(struct easgd));
  s->optimizer = original;
  TRM_CHECK(status);
  struct worker *w = worker_of(s);
  struct easgd *easgd = w->method;
  easgd->alpha = alpha < 0 ? 0.9 / w->workers : alpha;
  easgd->nesterov = nesterov;
  TRM_CHECK(trm_strategy_keep(s, "clocks seen", w->seen, param_server_chunks(w->server) * sizeof *w->seen));
  TRM_CHECK(trm_strategy_keep(s, "knows clock", &easgd->knows_clock, sizeof easgd->knows_clock));
  s->optimizer = is_eamsgd ? &easgd->nesterov : original;
  return trm_agree(s->comm, worker_array(s, s->elements, NULL, &easgd->distance));
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
  worker_apply_all(s, &update);
  if (exchanges) {
    const struct trm_update subtract = {.rule = TRM_UPDATE_SGD, .rate = 1, .scale = 1};
    s->device->ops->update(s->device, &(struct trm_update_arrays){
      .update = subtract, .w = s->w, .g = easgd->distance, .n = s->elements});
  }
  return TRM_OK;
}

static int easgd_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct easgd *easgd = w->method;
  if (!s->local_state_restored) {
    easgd->peers.batches = worker_gradients(s, updates) / w->workers;
    easgd->knows_clock = false;
  }
  return server_weights_restore(s, from, updates);
}

enum { EASGD_TAKES = TRM_TAKES_ALL & ~(TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_AVERAGE) };

const struct trm_strategy_ops trm_strategy_easgd = {
  .name = "easgd",
  .help = "workers with weights of their own, tied to a common center variable (elastic averaging)",
  .takes = EASGD_TAKES,
  SERVER_WEIGHTS_SLOTS,
  .create = easgd_create,
  .step = easgd_step,
  .restore = easgd_restore,
  .destroy = worker_destroy,
};

const struct trm_strategy_ops trm_strategy_eamsgd = {
  .name = "eamsgd",
  .help = "elastic averaging of workers that make Nesterov's steps",
  .takes = EASGD_TAKES & ~TRM_TAKES_RULES,
  SERVER_WEIGHTS_SLOTS,
  .create = easgd_create,
  .step = easgd_step,
  .restore = easgd_restore,
  .destroy = worker_destroy,
};
