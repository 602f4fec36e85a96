/* Asynchronous SGD with a parameter service: Downpour (Dean et al. 2012), and groups (Kurth et al. 2017).
 *
 * A worker computes a gradient at the weights it has, sends it, and gets back the weights as they are then. The
 * service applies the optimizer to whatever comes, in the order of arrival: others' updates lie between the weights a
 * gradient was computed at and the weights it changes. With strategy.tau > 1 the worker goes on alone meanwhile by
 * plain SGD, and sends the sum of tau gradients. Gradients of several workers are summed, not averaged: P workers move
 * the weights P times in the time of one synchronous step.
 *
 * Groups: the ranks of a group work on a batch together, like one faster worker. One group is synchronous SGD, as many
 * groups as ranks is Downpour.
 *
 * strategy.rate=staleness divides the rate by the number of updates a gradient has missed (Zhang et al. 2016). */
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/centre.h"

struct asgd {
  float *sum; /* of the gradients not sent yet, tau > 1 */
  int64_t summed;
  double rate;
};

static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == CENTRE_PUSH) {
    const bool divide = strcmp(s->options->strategy.rate, "staleness") == 0 && call->late > 1;
    struct trm_update how = s->optimizer->update;
    how.rate = (float)(call->value[CENTRE_RATE] / (divide ? (double)call->late : 1));
    how.scale = (float)call->value[CENTRE_SCALE];
    how.step = (uint64_t)++*piece->clock;
    centre_apply(s, piece, &how, call->in);
  }
  centre_answer(piece, call);
}

static void push(struct trm_strategy *s, const float *g, double rate, double scale)
{
  const double value[SERVICE_VALUES] = {[CENTRE_RATE] = rate, [CENTRE_SCALE] = scale};
  worker_exchange(s, CENTRE_PUSH, value, g, s->w, true);
}

/* What is summed and not sent. */
static void drain(struct trm_strategy *s)
{
  struct asgd *own = worker_of(s)->own;
  if (own->summed > 0) {
    push(s, own->sum, own->rate, 1);
    s->device->ops->fill(s->device, own->sum, 0, s->elements);
  }
  own->summed = 0;
}

static void asgd_destroy(struct trm_strategy *s)
{
  struct asgd *own = worker_of(s)->own;
  if (own->sum)
    s->device->ops->release(s->device, own->sum);
  worker_destroy(s);
}

static int create(struct trm_strategy *s, bool groups)
{
  const struct worker_plan plan = {
    .centre = true,
    .arrays = 1 + s->optimizer->states,
    .function = serve,
    .groups = groups,
    .drain = drain,
  };
  TRM_CHECK(worker_create(s, &plan, sizeof(struct asgd)));
  struct asgd *own = worker_of(s)->own;
  if (s->options->strategy.tau == 1)
    return TRM_OK;
  const int status = trm_agree(s->comm, worker_array(s, "sum of gradients", false, &own->sum));
  if (status != TRM_OK)
    asgd_destroy(s);
  return status;
}

static int asgd_create(struct trm_strategy *s)
{
  return create(s, false);
}

static int groups_create(struct trm_strategy *s)
{
  return create(s, true);
}

/* The local step between two exchanges: plain SGD on the own copy. Statistics are added as they are. */
static void go_on_alone(struct trm_strategy *s, double rate, double scale)
{
  struct asgd *own = worker_of(s)->own;
  centre_add(s, scale, 1, 0, s->elements, own->sum, s->g);
  centre_add(s, -rate * scale, 1, 0, s->elements, s->w, s->g);
  own->summed++;
}

static int asgd_step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct worker *w = worker_of(s);
  struct asgd *own = w->own;
  TRM_CHECK(worker_check(s, tally));
  if (w->group->size > 1)
    w->group->ops->allreduce(w->group, s->g, s->elements, TRM_FLOAT, TRM_SUM);
  centre_share_statistics(s);
  const struct trm_update how = worker_update(s, rate, 0);
  own->rate = rate;
  if (!own->sum)
    push(s, s->g, rate, how.scale);
  else {
    go_on_alone(s, rate, how.scale);
    if (own->summed == s->options->strategy.tau)
      drain(s);
  }
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_asgd = {
  .name = "asgd",
  .help = "every rank sends gradients to a parameter service and waits for nobody (Downpour)",
  .create = asgd_create,
  .claim = worker_claim,
  .before_forward = centre_before_forward,
  .step = asgd_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = centre_restore,
  .destroy = asgd_destroy,
};

const struct trm_strategy_ops trm_strategy_groups = {
  .name = "groups",
  .help = "synchronous inside of groups of ranks, asynchronous between them",
  .create = groups_create,
  .claim = worker_claim,
  .before_forward = centre_before_forward,
  .step = asgd_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = centre_restore,
  .destroy = asgd_destroy,
};
