/* FedAsync (Xie, Koyejo & Gupta 2019, arXiv 1903.03934, algorithm 1): a worker makes strategy.tau local steps from the
 * server weights and sends the weights w_i where it has arrived, which are mixed into those of the server:
 *
 *   w = (1 - a) w + a w_i        a = alpha s(staleness)
 *
 * alpha: strategy.alpha (-1: 0.6, as in the paper); s: strategy.rate, where polynomial and hinge are the paper's, with
 * its numbers. The proximal term of the paper's local problem is left out (rho = 0). One worker with alpha = 1 is
 * serial training. Local steps may be any optimizer's. */
#include "core/status.h"
#include "mpi/async/local_work.h"
#include "mpi/strategies.h"

struct fedasync {
  struct local_work work;
  double alpha;
};

static void fedasync_mix(const struct trm_strategy *s, const struct server_chunk *chunk,
                         const struct server_call *call)
{
  const struct fedasync *fedasync = worker_of(s)->method;
  const double alpha = fedasync->alpha / server_weights_rate_divisor(s, call);
  const float new = (float)alpha, old = (float)(1 - alpha);
  float *restrict w = server_array(chunk, 0);
  const float *restrict sent = call->in;
  for (size_t i = 0; i < chunk->n; i++)
    w[i] = old * w[i] + new * sent[i];
  trm_strategy_pass_time(s, 3 * chunk->n);
  ++*chunk->clock;
  snapshots_count(s, chunk, (int64_t)call->value[LOCAL_STEPS]);
}

static bool fedasync_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    fedasync_mix(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int fedasync_create(struct trm_strategy *s)
{
  const double alpha = s->options->alpha;
  if (alpha < 0 && alpha != -1)
    return trm_error(TRM_USAGE, "strategy.alpha: %g would move the server weights away from a worker's (0 to 1; -1: "
                     "0.6)", alpha);
  const struct local_work_plan plan = {.handler = fedasync_serve, .arrays = 1, .sends_weights = true};
  TRM_CHECK(local_work_create(s, &plan, sizeof(struct fedasync)));
  struct fedasync *fedasync = worker_of(s)->method;
  fedasync->alpha = alpha < 0 ? 0.6 : alpha;
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_fedasync = {
  .name = "fedasync",
  .help = "local steps, whose end is mixed into the server weights, less if it is stale (FedAsync)",
  .takes = LOCAL_WORK_TAKES | TRM_TAKES_STALE_RATE,
  LOCAL_WORK_SLOTS,
  .create = fedasync_create,
};
