/* A2CiD2 (Nabli, Belilovsky & Oyallon 2023): AD-PSGD (adpsgd.c) with a continuous momentum, which makes averages
 * spread faster over graphs of few edges. A worker has beside its weights x a second vector x~, initially x. Between
 * two events the two mix; an event, at time t, is a gradient step or a meeting of neighbors i and j (algorithm 1):
 *
 *   mixing    (x, x~) = exp((t - t0) [-h h; h -h]) (x, x~)    t0: of the event before, in gradients of the worker
 *   gradient  x -= the optimizer's step                         x~ -= the same
 *   meeting   x_i += (x_j - x_i) / 2                            x~_i += a (x_j - x_i)          and the same of j
 *
 *   h = 1 / (2 sqrt(chi1 chi2))      a = sqrt(chi1 / chi2) / 2      (proposition 3.6; chi1, chi2: topology.h)
 *
 * The Laplacian has the actual rates: an active worker meets a neighbor once in strategy.tau gradients. Meetings
 * preserve the sums of all x and of all x~, and mixing that of a worker's two. Where chi1 = chi2, a is 1/2 and x~ stays
 * x: then this is AD-PSGD. The mean of all x is the result of the run. The unit of time is the duration of the worker's
 * gradients, an average of which the latest is half, as in the authors' program; nothing mixes before the first
 * gradient, nor while the workers synchronize.
 *
 * Both vectors of every worker, active or passive, are its replica in the parameter server, with the times of the
 * events as method state: every chunk has times of its own. Times are those of the calls, which a record of the run
 * keeps. A mixing's time is rounded to 1/1024 gradient, so that the time of day does not change its last bits. */
#include "mpi/async/a2cid2.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "mpi/strategies.h"

/* By the owner alone: READ; MIX, before it meets another, and AVERAGED, after that (in: the mean); STEP. By a neighbor:
 * AVERAGE (in: its x; out: the mean). MIX and READ return x. */
enum kind { READ, MIX, AVERAGE, AVERAGED, STEP };
enum array { WEIGHTS, MOMENTUM };
/* Seconds. Of the latest event, -1: none since the last quiesce point; when the weights of the gradient in progress
 * were read; duration of a gradient, 0: not known. */
enum method_state { EVENT, BEGUN, DURATION, METHOD_STATES };

/* Mixes the two until `time`. */
static void a2cid2_mix(const struct trm_strategy *s, const struct server_chunk *chunk, double time)
{
  const struct a2cid2 *a2cid2 = worker_of(s)->method;
  double *state = chunk->method_state;
  float *restrict x = server_array(chunk, WEIGHTS), *restrict tilde = server_array(chunk, MOMENTUM);
  if (state[EVENT] >= 0 && state[DURATION] > 0) {
    const double gradients = rint((time - state[EVENT]) / state[DURATION] * 1024) / 1024;
    const float part = (float)(-expm1(-2 * a2cid2->h * gradients) / 2);
    for (size_t i = 0; i < chunk->n && part > 0; i++) {
      const float d = part * (tilde[i] - x[i]);
      x[i] += d;
      tilde[i] -= d;
    }
    trm_strategy_pass_time(s, 4 * chunk->n);
  }
  state[EVENT] = time;
}

/* The worker's x becomes the mean of its x and another's: x~ += a (x of the other - x) = 2 a (mean - x). */
static void a2cid2_average(const struct trm_strategy *s, const struct server_chunk *chunk, const float *mean)
{
  const struct a2cid2 *a2cid2 = worker_of(s)->method;
  const float twice = (float)(2 * a2cid2->a);
  float *restrict x = server_array(chunk, WEIGHTS), *restrict tilde = server_array(chunk, MOMENTUM);
  for (size_t i = 0; i < chunk->n; i++) {
    tilde[i] += twice * (mean[i] - x[i]);
    x[i] = mean[i];
  }
  trm_strategy_pass_time(s, 5 * chunk->n);
}

/* call->out: the x before. */
static void a2cid2_apply(struct trm_strategy *s, const struct server_chunk *chunk, const struct server_call *call)
{
  const struct a2cid2 *a2cid2 = worker_of(s)->method;
  float *x = server_array(chunk, WEIGHTS), *tilde = server_array(chunk, MOMENTUM);
  memcpy(call->out, x, chunk->n * sizeof *x);
  worker_apply(s, &a2cid2->update, chunk->low, chunk->n, x, call->in);
  for (size_t i = 0; i < chunk->n; i++)
    tilde[i] += x[i] - call->out[i];
  trm_strategy_pass_time(s, 5 * chunk->n);
}

static void a2cid2_measure(double *state, double time)
{
  const double duration = time - state[BEGUN];
  state[DURATION] = state[DURATION] > 0 ? 0.5 * (state[DURATION] + duration) : duration;
}

static bool a2cid2_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  struct trm_strategy *s = context;
  double *state = chunk->method_state;
  const float *x = server_array(chunk, WEIGHTS);
  switch (call->kind) {
  case READ:
    state[BEGUN] = call->time;
    if (state[EVENT] < 0)
      state[EVENT] = call->time;
    break;
  case MIX:
    a2cid2_mix(s, chunk, call->time);
    break;
  case AVERAGE:
    a2cid2_mix(s, chunk, call->time);
    for (size_t i = 0; i < chunk->n; i++)
      call->out[i] = 0.5f * (x[i] + call->in[i]);
    a2cid2_average(s, chunk, call->out);
    break;
  case AVERAGED:
    a2cid2_average(s, chunk, call->in);
    break;
  default:
    a2cid2_mix(s, chunk, call->time);
    a2cid2_apply(s, chunk, call);
    a2cid2_measure(state, call->time);
  }
  if (call->kind == READ || call->kind == MIX)
    memcpy(call->out, x, chunk->n * sizeof *x);
  return true;
}

static int a2cid2_before_forward(struct trm_strategy *s)
{
  peers_exchange(s, &(struct server_request){.replica = s->comm->rank, .kind = READ, .out = s->w});
  return TRM_OK;
}

static void a2cid2_snapshot(struct trm_strategy *s)
{
  a2cid2_before_forward(s);
  peers_snapshot(s);
}

static int a2cid2_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .arrays = 2, .method_states = METHOD_STATES, .handler = a2cid2_serve, .local = true, .no_staleness = true,
    .timed = true, .snapshot = a2cid2_snapshot};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct a2cid2)));
  struct a2cid2 *a2cid2 = worker_of(s)->method;
  TRM_CHECK(topology_create(&a2cid2->topology, s->options->graph, s->comm->size));
  a2cid2->a = 0.5;
  if (s->comm->size == 1)
    return TRM_OK;
  struct topology_times times = {0};
  if (s->comm->rank == 0)
    times = topology_times(&a2cid2->topology, 1 / (double)s->options->tau);
  s->comm->ops->broadcast(s->comm, &times, sizeof times, TRM_BYTE, 0);
  a2cid2->h = 0.5 / sqrt(times.chi1 * times.chi2);
  a2cid2->a = 0.5 * sqrt(times.chi1 / times.chi2);
  return TRM_OK;
}

static int a2cid2_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct a2cid2 *a2cid2 = worker_of(s)->method;
  const int rank = s->comm->rank, neighbors = topology_neighbors(&a2cid2->topology, rank);
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &a2cid2->update, &exchanges));
  if (exchanges && neighbors > 0 && topology_is_active(&a2cid2->topology, rank)) {
    const int partner = topology_neighbor(&a2cid2->topology, rank, peers_draw(s, neighbors));
    peers_exchange(s, &(struct server_request){.replica = rank, .kind = MIX, .out = s->w});
    peers_exchange(s, &(struct server_request){.replica = partner, .kind = AVERAGE, .in = s->w, .out = s->w});
    peers_exchange(s, &(struct server_request){.replica = rank, .kind = AVERAGED, .in = s->w});
  }
  peers_exchange(s, &(struct server_request){.replica = rank, .kind = STEP, .in = s->g, .out = s->w});
  return TRM_OK;
}

static void a2cid2_forget_event(void *context, const struct server_chunk *chunk)
{
  (void)context;
  chunk->method_state[EVENT] = -1;
}

static int a2cid2_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  TRM_CHECK(a2cid2_before_forward(s));
  param_server_visit(worker_of(s)->server, a2cid2_forget_event, NULL);
  peers_mean(s);
  return TRM_OK;
}

static int a2cid2_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(peers_restore(s, from, updates));
  for (int i = WEIGHTS; i <= MOMENTUM && !s->local_state_restored; i++)
    memcpy(peers_local_array(s, i), s->w, s->elements * sizeof *s->w);
  param_server_visit(worker_of(s)->server, a2cid2_forget_event, NULL);
  s->comm->ops->barrier(s->comm); /* before others meet it */
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_a2cid2 = {
  .name = "a2cid2",
  .help = "adpsgd with a continuous momentum, which spreads averages faster over sparse graphs",
  .takes = PEERS_TAKE | TRM_TAKES_GRAPH,
  PEERS_SLOTS,
  .create = a2cid2_create,
  .before_forward = a2cid2_before_forward,
  .step = a2cid2_step,
  .quiesce = a2cid2_quiesce,
  .restore = a2cid2_restore,
  .destroy = worker_destroy,
};
