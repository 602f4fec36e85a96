/* Elastic averaging (Zhang, Choromanska & LeCun 2015): every worker has weights w and an optimizer of its own, and is
 * tied to a common centre c as by a spring. Every strategy.tau batches
 *
 *   d = alpha (w - c)        w -= the optimizer's step + d        c += d
 *
 * where the gradient and d are of the same w: the local step comes before d is subtracted. What a worker gives to the
 * centre is what it loses, so the sum of all weights moves by gradients alone. The centre is the result of the run. It
 * has the statistics, too, which move like the weights. One worker is not serial SGD: the centre follows it only.
 *
 * eamsgd: the local steps are Nesterov's, with momentum 0.99 unless optim.momentum says otherwise. They have the form
 * of nn/optimizer.h, so that w is the point where the gradient is taken.
 *
 * Staleness: how often others have moved the centre since this worker did. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/centre.h"
#include "mpi/async/peers.h"

enum kind { LOOK, PULL_TOGETHER };

struct easgd {
  struct peers peers;
  float *distance;            /* d */
  double alpha;
  bool has_looked;            /* knows the clock of the centre */
  struct trm_optimizer local; /* eamsgd */
};

/* LOOK: the answer tells the clock. */
static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  (void)context;
  float *restrict centre = service_array(piece, 0), *restrict d = call->out;
  const float *restrict w = call->in;
  if (call->kind == LOOK) {
    memcpy(d, centre, piece->n * sizeof *d);
    return;
  }
  const float alpha = (float)call->value[0];
  for (size_t i = 0; i < piece->n; i++) {
    d[i] = alpha * (w[i] - centre[i]);
    centre[i] += d[i];
  }
  ++*piece->clock;
}

static int create(struct trm_strategy *s)
{
  const double alpha = s->options->strategy.alpha;
  if (alpha < 0 && alpha != -1)
    return trm_error(TRM_USAGE, "strategy.alpha: %g would push worker and centre apart (0 to 1; -1: 0.9 / workers)",
                     alpha);
  const struct worker_plan plan = {.centre = true, .arrays = 1, .function = serve, .local = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct easgd)));
  struct worker *w = worker_of(s);
  struct easgd *own = w->own;
  own->alpha = alpha < 0 ? 0.9 / w->workers : alpha;
  return trm_agree(s->comm, worker_array(s, "distances to the centre", false, &own->distance));
}

/* The strategy's optimizer becomes one with Nesterov's rule. */
static int eamsgd_create(struct trm_strategy *s)
{
  const char *name = s->options->optim.name;
  if (strcmp(name, "sgd") != 0 && strcmp(name, "nesterov") != 0)
    return trm_error(TRM_USAGE, "optim.name=%s: the workers of eamsgd make Nesterov's steps (optim.name=nesterov)",
                     name);
  struct trm_optimizer nesterov = *s->optimizer;
  const double momentum = s->options->optim.momentum;
  nesterov.update.rule = TRM_UPDATE_NESTEROV;
  nesterov.update.momentum = (float)(momentum > 0 ? momentum : 0.99);
  nesterov.states = 1 + (nesterov.ema > 0);
  const struct trm_optimizer *given = s->optimizer;
  s->optimizer = &nesterov;
  const int status = create(s);
  s->optimizer = given;
  if (status != TRM_OK)
    return status;
  struct easgd *own = worker_of(s)->own;
  own->local = nesterov;
  s->optimizer = &own->local;
  return TRM_OK;
}

static int step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct easgd *own = worker_of(s)->own;
  struct trm_update how;
  bool meets;
  TRM_CHECK(peers_step(s, rate, tally, &how, &meets));
  if (!own->has_looked)
    worker_exchange(s, LOOK, NULL, NULL, own->distance, false);
  own->has_looked = true;
  if (meets)
    worker_exchange(s, PULL_TOGETHER, (const double[SERVICE_VALUES]){own->alpha}, s->w, own->distance, true);
  worker_apply(s, &how);
  if (meets) {
    const struct trm_update subtract = {.rule = TRM_UPDATE_SGD, .rate = 1, .scale = 1};
    s->device->ops->update(s->device, &subtract, s->w, own->distance, NULL, NULL, s->elements);
  }
  return TRM_OK;
}

static int restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct easgd *own = w->own;
  if (!s->kept_given)
    own->peers.batches = (int64_t)updates / w->workers;
  own->has_looked = false;
  return centre_restore(s, from, updates);
}

static void destroy(struct trm_strategy *s)
{
  struct easgd *own = worker_of(s)->own;
  s->device->ops->release(s->device, own->distance);
  worker_destroy(s);
}

const struct trm_strategy_ops trm_strategy_easgd = {
  .name = "easgd",
  .help = "workers with weights of their own, tied to a common centre (elastic averaging)",
  .create = create,
  .claim = worker_claim,
  .step = step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = restore,
  .destroy = destroy,
};

const struct trm_strategy_ops trm_strategy_eamsgd = {
  .name = "eamsgd",
  .help = "elastic averaging of workers that make Nesterov's steps",
  .create = eamsgd_create,
  .claim = worker_claim,
  .step = step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = restore,
  .destroy = destroy,
};
