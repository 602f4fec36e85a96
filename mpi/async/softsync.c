/* n-softsync (Zhang, Gupta, Lian & Liu 2016): the service waits for some gradients, and nobody waits for it.
 *
 * Of P workers' gradients c = max(1, P / n) make an update, in the order of arrival: the optimizer's rule gets their
 * mean, and the rate of the one that came last. n = 1 (strategy.splits) moves the weights as often as synchronous SGD
 * would, n = P as often as asgd does, and is the same method.
 *
 * The clock of a piece counts updates, so the staleness of a gradient is how often the weights have changed since its
 * worker read them: about n where all are equally fast. strategy.rate=staleness divides each gradient by its own.
 *
 * What waits for its update stays where it is when the workers settle, also at the end of the run: fewer than c
 * gradients, which a checkpoint keeps for a run that goes on with as many ranks. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/centre.h"

enum note { WAITING }; /* gradients in the mean so far */

/* Gradients of an update. */
static int together(const struct trm_strategy *s)
{
  const int64_t workers = s->comm->size - s->options->strategy.servers, splits = s->options->strategy.splits;
  return splits < workers ? (int)(workers / splits) : 1;
}

static void take(const struct trm_strategy *s, const struct service_piece *piece, const struct service_call *call)
{
  const int count = together(s);
  const bool divide = strcmp(s->options->strategy.rate, "staleness") == 0 && call->late > 1;
  const double scale = call->value[CENTRE_SCALE] / (divide ? (double)call->late : 1);
  struct trm_update how = s->optimizer->update;
  how.rate = (float)call->value[CENTRE_RATE];
  how.scale = count > 1 ? 1 : (float)scale;
  float *mean = count > 1 ? service_array(piece, 1 + s->optimizer->states) : NULL;
  if (mean) {
    centre_add(s, scale / count, 1, piece->low, piece->n, mean, call->in);
    if (++piece->note[WAITING] < count)
      return;
    piece->note[WAITING] = 0;
  }
  how.step = (uint64_t)++*piece->clock;
  centre_apply(s, piece, &how, mean ? mean : call->in);
  if (mean)
    s->device->ops->fill(s->device, mean, 0, piece->n);
}

static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  if (call->kind == CENTRE_PUSH)
    take(context, piece, call);
  centre_answer(piece, call);
}

static int softsync_create(struct trm_strategy *s)
{
  TRM_CHECK(centre_check(s, true));
  const struct worker_plan plan = {
    .centre = true,
    .arrays = 1 + s->optimizer->states + (together(s) > 1),
    .function = serve,
  };
  return worker_create(s, &plan, 0);
}

/* Clocks count updates, each of several batches. */
static int softsync_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(centre_restore(s, from, updates));
  if (!s->kept_given)
    service_set_clocks(worker_of(s)->service, (int64_t)updates / together(s));
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_softsync = {
  .name = "softsync",
  .help = "an update takes the mean of the first workers / n gradients that come (n-softsync)",
  .create = softsync_create,
  .claim = worker_claim,
  .before_forward = centre_before_forward,
  .step = centre_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = softsync_restore,
  .destroy = worker_destroy,
};
