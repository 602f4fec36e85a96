/* FedBuff (Nguyen et al. 2022, arXiv 2106.06639, algorithm 1): a worker makes strategy.tau local steps and sends how
 * far it has come; the server collects K of these differences for an update.
 *
 *   d = w_i - start                       worker
 *   D += s(staleness) d                   server, and after K of them
 *   m = mu m + D / K        w += rate m        D = 0
 *
 * K: strategy.collect (0: the number of workers); s: strategy.rate (the paper's is polynomial, 1 / sqrt(1 +
 * staleness)); rate and mu: strategy.outer_rate (1) and strategy.outer_momentum (0; the authors' code has a momentum,
 * the paper's algorithm none). Statistics move by their mean difference. K = 1 with tau = 1 is asgd, but that the
 * difference of the worker's weights is rounded.
 *
 * Fewer than K differences may remain on the server at a quiesce point and at the end of the run; a checkpoint keeps
 * them for runs with the same number of ranks. */
#include <string.h>

#include "core/status.h"
#include "mpi/async/local_work.h"
#include "mpi/strategies.h"

enum array { WEIGHTS, SUM, MOMENTUM, ARRAYS };
enum method_state { COLLECTED, STEPS, METHOD_STATES }; /* differences in the sum, and their local steps */

struct fedbuff {
  struct local_work work;
  double collect, rate, momentum;
};

static void fedbuff_update(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  const struct fedbuff *fedbuff = worker_of(s)->method;
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  const double count = chunk->method_state[COLLECTED], rate = fedbuff->rate, mu = fedbuff->momentum;
  float *restrict w = server_array(chunk, WEIGHTS), *restrict m = server_array(chunk, MOMENTUM);
  const float *restrict sum = server_array(chunk, SUM);
  for (size_t i = 0; i < trained; i++) {
    m[i] = (float)(mu * (double)m[i] + (double)sum[i] / count);
    w[i] = (float)((double)w[i] + rate * (double)m[i]);
  }
  for (size_t i = trained; i < chunk->n; i++)
    w[i] = (float)((double)w[i] + (double)sum[i] / count);
  memset(server_array(chunk, SUM), 0, chunk->n * sizeof(float));
  trm_strategy_pass_time(s, 6 * chunk->n);
  ++*chunk->clock;
}

static void fedbuff_collect(const struct trm_strategy *s, const struct server_chunk *chunk,
                            const struct server_call *call)
{
  const struct fedbuff *fedbuff = worker_of(s)->method;
  const size_t trained = server_weights_trained(s, chunk->low, chunk->n);
  const float weight = (float)(1 / server_weights_rate_divisor(s, call));
  float *restrict sum = server_array(chunk, SUM);
  const float *restrict d = call->in;
  for (size_t i = 0; i < chunk->n; i++)
    sum[i] += i < trained ? weight * d[i] : d[i];
  trm_strategy_pass_time(s, 3 * chunk->n);
  double *state = chunk->method_state;
  state[STEPS] += call->value[LOCAL_STEPS];
  if (++state[COLLECTED] < fedbuff->collect)
    return;
  fedbuff_update(s, chunk);
  snapshots_count(s, chunk, (int64_t)state[STEPS]);
  state[COLLECTED] = state[STEPS] = 0;
}

static bool fedbuff_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    fedbuff_collect(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int fedbuff_create(struct trm_strategy *s)
{
  const struct trm_strategy_options *o = s->options;
  const struct local_work_plan plan = {.handler = fedbuff_serve, .arrays = ARRAYS, .method_states = METHOD_STATES};
  TRM_CHECK(local_work_create(s, &plan, sizeof(struct fedbuff)));
  struct fedbuff *fedbuff = worker_of(s)->method;
  fedbuff->collect = (double)(o->collect > 0 ? o->collect : worker_count(s));
  fedbuff->rate = o->outer_rate < 0 ? 1 : o->outer_rate;
  fedbuff->momentum = o->outer_momentum < 0 ? 0 : o->outer_momentum;
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_fedbuff = {
  .name = "fedbuff",
  .help = "local steps; the server weights are updated by the mean of K workers' differences (FedBuff)",
  .takes = LOCAL_WORK_TAKES | TRM_TAKES_STALE_RATE,
  LOCAL_WORK_SLOTS,
  .create = fedbuff_create,
};
