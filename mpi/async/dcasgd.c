/* Delay-compensated asynchronous SGD (Zheng et al. 2017): asgd whose service knows what each worker has seen.
 *
 * While a worker computed its gradient g at weights w_seen, others have moved them to w. The gradient at w is about
 * g + H (w - w_seen); for the Hessian H stands the cheap estimate lambda g g, element by element:
 *
 *   g + lambda * g * g * (w - w_seen)                       strategy.compensation=constant
 *   g + lambda / sqrt(s + 1e-7) * g * g * (w - w_seen)      adaptive; s = memory * s + (1 - memory) * g * g
 *
 * The optimizer's rule gets that in place of g; clipping comes before. w_seen and s are arrays of the centre, one each
 * for every worker. A worker that nobody overtakes has w = w_seen: its gradients are not touched. */
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/centre.h"

static bool is_adaptive(const struct trm_strategy *s)
{
  return strcmp(s->options->strategy.compensation, "adaptive") == 0;
}

static int workers_of(const struct trm_strategy *s)
{
  return s->comm->size - (int)s->options->strategy.servers;
}

/* Arrays after the optimizer's: s of each worker, where there is any; w_seen of each worker. */
static float *squares_of(const struct trm_strategy *s, const struct service_piece *piece, int worker)
{
  return service_array(piece, 1 + s->optimizer->states + worker);
}

static float *seen_by(const struct trm_strategy *s, const struct service_piece *piece, int worker)
{
  return service_array(piece, 1 + s->optimizer->states + (is_adaptive(s) ? workers_of(s) : 0) + worker);
}

/* The compensated gradient, before clipping scales it, into `to` (piece->n). Statistics are not compensated. */
static void compensate(const struct trm_strategy *s, const struct service_piece *piece, const struct service_call *call,
                       float *to)
{
  const size_t trained = centre_trained(s, piece->low, piece->n);
  const float *w = service_array(piece, 0), *seen = seen_by(s, piece, call->from), *g = call->in;
  const float lambda = (float)s->options->strategy.lambda, memory = (float)s->options->strategy.memory;
  const float scale = (float)call->value[CENTRE_SCALE];
  float *squares = is_adaptive(s) ? squares_of(s, piece, call->from) : NULL;
  for (size_t i = 0; squares && i < trained; i++)
    squares[i] = memory * squares[i] + (1 - memory) * (scale * g[i]) * (scale * g[i]);
  for (size_t i = 0; i < trained; i++) {
    const float strength = squares ? lambda / sqrtf(squares[i] + 1e-7f) : lambda, moved = w[i] - seen[i];
    to[i] = moved == 0 ? g[i] : g[i] + strength * (scale * g[i]) * g[i] * moved;
  }
  memcpy(to + trained, g + trained, (piece->n - trained) * sizeof *to);
}

/* The caller's room for the answer holds the gradient meanwhile. */
static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == CENTRE_PUSH) {
    struct trm_update how = s->optimizer->update;
    how.rate = (float)call->value[CENTRE_RATE];
    how.scale = (float)call->value[CENTRE_SCALE];
    how.step = (uint64_t)++*piece->clock;
    compensate(s, piece, call, call->out);
    centre_apply(s, piece, &how, call->out);
  }
  centre_answer(piece, call);
  memcpy(seen_by(s, piece, call->from), call->out, piece->n * sizeof(float));
}

static int dcasgd_create(struct trm_strategy *s)
{
  TRM_CHECK(centre_check(s, false));
  const int workers = workers_of(s);
  const struct worker_plan plan = {
    .centre = true,
    .arrays = 1 + s->optimizer->states + (is_adaptive(s) ? 2 : 1) * workers,
    .passing = workers, /* after a settling all read the weights anew */
    .function = serve,
  };
  return worker_create(s, &plan, 0);
}

const struct trm_strategy_ops trm_strategy_dcasgd = {
  .name = "dcasgd",
  .help = "asgd that corrects a late gradient for how far the weights have moved (delay compensation)",
  .create = dcasgd_create,
  .claim = worker_claim,
  .before_forward = centre_before_forward,
  .step = centre_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = centre_restore,
  .destroy = worker_destroy,
};
