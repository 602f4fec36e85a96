/* Synchronous SGD with backup workers (Chen et al. 2016, arXiv 1604.00981): of P workers an update takes the first
 * N = strategy.collect gradients of the current weights, by their mean, and does not wait for the P - N others. A
 * gradient that comes later is dropped when it comes, and its worker begins with the current weights. Batches are
 * assigned in the order of arrival, so that a worker that is always late takes few of them.
 *
 * A worker gives one gradient of a version of the weights, and waits for the next version. (In rennala, which does not
 * wait, a fast worker gives several.) With N = P every update takes one of each worker.
 *
 * The first chunk's clock is that of the version: workers wait for it alone. It is the last that they send to and the
 * first that they read, so the other chunks have been updated before it, and a worker never waits for an update that
 * takes its own other chunks.
 *
 * Before a quiesce point batches run out. When more than P - N workers have no batch left, the others cannot make an
 * update, and do not wait: they give further gradients of the same weights. Gradients that are not yet part of an
 * update may remain then; a checkpoint keeps them for runs with the same number of ranks. */
#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

enum call { IDLE = SERVER_CALL_KINDS }; /* the caller has no batch before the next quiesce point */
enum value { NEEDED }; /* SERVER_PULL: the clock that the weights must have at least */
enum method_state { COLLECTED, IDLERS, METHOD_STATES }; /* gradients in the mean; callers of IDLE */

static int backup_needed(const struct trm_strategy *s)
{
  return s->options->collect > 0 ? (int)s->options->collect : worker_count(s);
}

/* -- the server. The mean is the array after the optimizer's. */

static void backup_collect(const struct trm_strategy *s, const struct server_chunk *chunk,
                           const struct server_call *call)
{
  const int count = backup_needed(s);
  float *mean = server_array(chunk, 1 + s->optimizer->states);
  server_weights_add_to_mean(s, chunk, call, call->value[SERVER_SCALE], count, mean);
  if (++chunk->method_state[COLLECTED] < count) {
    snapshots_count(s, chunk, 1);
    return;
  }
  server_weights_update(s, chunk, server_weights_rule(s, call->value[SERVER_RATE], 1), mean);
  s->device->ops->fill(s->device, mean, 0, chunk->n);
  chunk->method_state[COLLECTED] = 0;
}

static bool backup_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == IDLE) {
    chunk->method_state[IDLERS]++;
  } else if (call->kind == SERVER_PUSH && call->staleness == 0) {
    backup_collect(s, chunk, call);
  } else if (call->kind == SERVER_PUSH) {
    snapshots_count(s, chunk, 1);
  } else {
    if ((double)*chunk->clock < call->value[NEEDED] &&
        chunk->method_state[IDLERS] <= worker_count(s) - backup_needed(s))
      return false;
    server_weights_reply(s, chunk, call);
  }
  return true;
}

/* -- a worker */

/* Counts the time since `before`, in which replies were held back for held_s. */
static void backup_count_time(struct trm_strategy *s, double before, double held_s)
{
  s->comm_s += s->comm->ops->clock(s->comm) - before - held_s;
  s->wait_s += held_s;
}

/* Makes the calls on the other chunks. Returns their maximum staleness. */
static int64_t backup_exchange_others(struct trm_strategy *s, struct server_request request)
{
  struct worker *w = worker_of(s);
  request.first = 1;
  request.last = param_server_chunks(w->server);
  return request.last > 1 ? param_server_exchange(w->server, &request) : 0;
}

static int backup_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const double before = s->comm->ops->clock(s->comm);
  struct server_request request = {.kind = SERVER_PULL, .last = 1, .out = s->w, .seen = w->seen};
  request.value[NEEDED] = w->fresh ? (double)w->seen[0] + 1 : 0;
  param_server_exchange(w->server, &request);
  const double held_s = param_server_held_s(w->server);
  request.value[NEEDED] = 0;
  backup_exchange_others(s, request);
  backup_count_time(s, before, held_s);
  w->fresh = true;
  return TRM_OK;
}

static int backup_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct worker *w = worker_of(s);
  struct server_request request = {.kind = SERVER_PUSH, .last = 1, .in = s->g, .seen = w->seen};
  request.value[SERVER_RATE] = rate;
  TRM_CHECK(server_weights_prepare(s, sums, &request.value[SERVER_SCALE]));
  const double before = s->comm->ops->clock(s->comm);
  const int64_t others = backup_exchange_others(s, request);
  const int64_t first = param_server_exchange(w->server, &request), staleness = first > others ? first : others;
  backup_count_time(s, before, 0);
  trm_staleness_add(&w->staleness, staleness > 0 ? (uint64_t)staleness : 0);
  return TRM_OK;
}

static void backup_drain(struct trm_strategy *s)
{
  const struct server_request request = {.kind = IDLE, .last = 1};
  param_server_exchange(worker_of(s)->server, &request);
}

/* -- creation, quiesce points */

static void backup_forget_idlers(void *context, const struct server_chunk *chunk)
{
  (void)context;
  chunk->method_state[IDLERS] = 0;
}

static int backup_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  param_server_visit(worker_of(s)->server, backup_forget_idlers, NULL);
  snapshots_server_weights(s, -1);
  return TRM_OK;
}

static int backup_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 1,
    .method_states = METHOD_STATES,
    .handler = backup_serve,
    .drain = backup_drain,
  };
  if (backup_needed(s) > worker_count(s))
    return trm_error(TRM_USAGE, "strategy.collect: an update of backup takes %d gradients, one of each worker, but "
                     "there are %d workers", backup_needed(s), worker_count(s));
  return worker_create(s, &plan, 0);
}

const struct trm_strategy_ops trm_strategy_backup = {
  .name = "backup",
  .help = "synchronous SGD that takes the first gradients of an update and drops the rest (backup workers)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  .next_batch = worker_next_batch,
  .quiesce = backup_quiesce,
  .snapshot = snapshots_request,
  .snapshot_weights = snapshots_server_weights,
  .read = server_weights_read,
  .write = server_weights_write,
  .create = backup_create,
  .before_forward = backup_before_forward,
  .step = backup_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
