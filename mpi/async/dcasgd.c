/* Delay-compensated asynchronous SGD (Zheng et al. 2017): asgd whose server keeps the weights each worker has seen.
 *
 * While a worker computed its gradient g at weights w_seen, others have moved them to w. The gradient at w is about
 * g + H (w - w_seen), where the Hessian H is estimated as lambda g g, element by element:
 *
 *   g + lambda * g * g * (w - w_seen)                       strategy.compensation=constant
 *   g + lambda / sqrt(s + 1e-7) * g * g * (w - w_seen)      adaptive; s = memory * s + (1 - memory) * g * g
 *
 * The optimizer's rule gets that in place of g; clipping comes before. w_seen and s are arrays of the server, one each
 * for every worker. A gradient without staleness has w = w_seen and is not changed. */
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

static bool dcasgd_is_adaptive(const struct trm_strategy *s)
{
  return s->options->compensation == TRM_COMPENSATION_ADAPTIVE;
}

/* Arrays after the optimizer's: s of each worker (adaptive only); w_seen of each worker. */
static float *dcasgd_mean_square(const struct trm_strategy *s, const struct server_chunk *chunk, int worker)
{
  return server_array(chunk, 1 + s->optimizer->states + worker);
}

static float *dcasgd_backup(const struct trm_strategy *s, const struct server_chunk *chunk, int worker)
{
  return server_array(chunk, 1 + s->optimizer->states + (dcasgd_is_adaptive(s) ? worker_count(s) : 0) + worker);
}

/* Writes the compensated gradient, not yet scaled by clipping, into to (chunk->n). Statistics are not compensated. */
static void dcasgd_compensate(const struct trm_strategy *s, const struct server_chunk *chunk,
                              const struct server_call *call, float *to)
{
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  const float *w = server_array(chunk, 0), *backup = dcasgd_backup(s, chunk, call->caller), *g = call->in;
  const float lambda = (float)s->options->lambda, memory = (float)s->options->memory;
  const float scale = (float)call->value[SERVER_SCALE];
  float *squares = dcasgd_is_adaptive(s) ? dcasgd_mean_square(s, chunk, call->caller) : NULL;
  for (size_t i = 0; squares && i < trained; i++)
    squares[i] = memory * squares[i] + (1 - memory) * (scale * g[i]) * (scale * g[i]);
  for (size_t i = 0; i < trained; i++) {
    const float strength = squares ? lambda / sqrtf(squares[i] + 1e-7f) : lambda, moved = w[i] - backup[i];
    to[i] = moved == 0 ? g[i] : g[i] + strength * (scale * g[i]) * g[i] * moved;
  }
  memcpy(to + trained, g + trained, (chunk->n - trained) * sizeof *to);
}

/* call->out holds the compensated gradient before it gets the reply. */
static bool dcasgd_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH) {
    dcasgd_compensate(s, chunk, call, call->out);
    const struct trm_update update = server_weights_rule(s, call->value[SERVER_RATE], call->value[SERVER_SCALE]);
    server_weights_update(s, chunk, update, call->out);
  }
  server_weights_reply(s, chunk, call);
  memcpy(dcasgd_backup(s, chunk, call->caller), call->out, chunk->n * sizeof(float));
  return true;
}

static int dcasgd_create(struct trm_strategy *s)
{
  const int workers = worker_count(s);
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + (dcasgd_is_adaptive(s) ? 2 : 1) * workers,
    .transient = workers, /* w_seen: all workers read the weights after a quiesce point */
    .handler = dcasgd_serve,
  };
  return worker_create(s, &plan, 0);
}

const struct trm_strategy_ops trm_strategy_dcasgd = {
  .name = "dcasgd",
  .help = "asgd that corrects a late gradient for how far the weights have moved (delay compensation)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = dcasgd_create,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
