/* Asynchronous DiLoCo (Liu et al. 2024, arXiv 2401.09135): a worker makes H = strategy.tau steps of the inner
 * optimizer, AdamW in the paper, and sends how far it has come, by which the server makes an outer step at once, with
 * delayed Nesterov momentum (delayed_nesterov.h; algorithm 3).
 *
 * N: strategy.collect (0: the number of workers); c: strategy.activation, at most 1 / N, the share of the momentum in
 * every push; rate, mu: strategy.outer_rate (0.7), strategy.outer_momentum (0.9). With N = 1 one worker is diloco of
 * one replica, but that the difference is rounded.
 *
 * strategy.dylu, dynamic local updates: worker i makes floor(H v_i / v) steps, at least one, where v_i is its mean
 * number of steps a second so far, and v the largest that the server has heard of. So workers of different speeds send
 * at the same times. A worker's first period has H steps. */
#include "core/status.h"
#include "mpi/async/delayed_nesterov.h"
#include "mpi/async/local_work.h"
#include "mpi/strategies.h"

enum array { WEIGHTS, SUM, MOMENTUM, ARRAYS };
enum method_state { PUSHES, FASTEST, METHOD_STATES };

struct asyncdiloco {
  struct local_work work;
  struct delayed_nesterov rule;
};

static void asyncdiloco_update(const struct trm_strategy *s, const struct server_chunk *chunk, struct server_call *call)
{
  const struct asyncdiloco *a = worker_of(s)->method;
  double *state = chunk->method_state;
  state[PUSHES]++;
  delayed_nesterov_update(s, &a->rule, (int64_t)state[PUSHES], chunk->n,
                          server_weights_trained(s, chunk->low, chunk->n), server_array(chunk, WEIGHTS),
                          server_array(chunk, MOMENTUM), server_array(chunk, SUM), call->in);
  local_work_fastest(call, &state[FASTEST]);
  ++*chunk->clock;
  snapshots_count(s, chunk, (int64_t)call->value[LOCAL_STEPS]);
}

static bool asyncdiloco_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  if (call->kind == SERVER_PUSH)
    asyncdiloco_update(context, chunk, call);
  server_weights_reply(context, chunk, call);
  return true;
}

static int asyncdiloco_create(struct trm_strategy *s)
{
  const struct trm_strategy_options *o = s->options;
  const struct delayed_nesterov rule = {
    .period = o->collect > 0 ? o->collect : worker_count(s),
    .rate = o->outer_rate < 0 ? 0.7 : o->outer_rate,
    .momentum = o->outer_momentum < 0 ? 0.9 : o->outer_momentum,
    .activation = o->activation,
  };
  TRM_CHECK(delayed_nesterov_check(&rule));
  const struct local_work_plan plan = {
    .handler = asyncdiloco_serve, .arrays = ARRAYS, .method_states = METHOD_STATES, .adapts = o->dylu};
  TRM_CHECK(local_work_create(s, &plan, sizeof(struct asyncdiloco)));
  struct asyncdiloco *a = worker_of(s)->method;
  a->rule = rule;
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_asyncdiloco = {
  .name = "asyncdiloco",
  .help = "local steps; an outer step by each worker's difference, its Nesterov momentum delayed (async DiLoCo)",
  .takes = LOCAL_WORK_TAKES | TRM_TAKES_DYLU,
  LOCAL_WORK_SLOTS,
  .create = asyncdiloco_create,
};
