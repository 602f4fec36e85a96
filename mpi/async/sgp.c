/* Stochastic gradient push (Assran, Loizou, Ballas & Rabbat 2019), without synchronization.
 *
 * Push-sum: a worker has a vector x and a weight y, initially 1; gradients are computed at z = x / y. Every
 * strategy.tau batches, after the optimizer's step on x, it sends half of (x, y) to one worker and keeps the other
 * half; before every gradient it adds the halves received. Receivers are the ranks at distance 1, 2, 4, .. < workers,
 * in turn. The sums of x and y over all workers and messages are invariant; their quotient is the result of the run.
 *
 * A worker stores z: a step on x is a step on z with rate / y, and sending does not change z. The replica of a rank is
 * its mailbox: the sum of the x received, and as method state the sum of the y. Every chunk is a separate push-sum. The
 * y are integer multiples of 2^-20, so that their sum is exact; an odd one is not halved exactly.
 *
 * In the published method y stays close to 1, because workers synchronize after some steps. Here a leading rank would
 * send half after half, and its steps on z would grow. So a worker with y < 1 does not send until it has received: y >=
 * 1/2, and no step on z is more than twice the intended one. The mean of y is 1, so some worker can always send.
 *
 * Staleness is not defined: the gradients of others reach a worker in parts, halves of halves, so there is no number of
 * those that a gradient has not seen. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/peers.h"

enum kind { PUSH, RECEIVE };
#define UNIT 0x1p-20

struct sgp {
  struct peers peers; /* weight: y */
  double *half;       /* (chunks) the half of y to send */
};

/* RECEIVE is called by the owner alone: in is z, out the new z, per_chunk y. */
static bool sgp_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  float *x = server_array(chunk, 0);
  double *y = &chunk->method_state[0];
  (void)context;
  if (call->kind == PUSH) {
    const float half = (float)call->per_chunk;
    for (size_t i = 0; i < chunk->n; i++)
      x[i] += half * call->in[i];
    *y += call->per_chunk;
  } else if (*y > 0) {
    const double sum = call->per_chunk + *y, keep = call->per_chunk / sum, add = 1 / sum;
    for (size_t i = 0; i < chunk->n; i++) {
      call->out[i] = (float)(keep * (double)call->in[i] + add * (double)x[i]);
      x[i] = 0;
    }
    call->per_chunk = sum;
    *y = 0;
  }
  return true;
}

static int sgp_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {
    .arrays = 1, .transient = 1, .handler = sgp_serve, .local = true, .no_staleness = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct sgp)));
  struct worker *w = worker_of(s);
  struct sgp *sgp = w->method;
  const size_t bytes = param_server_chunks(w->server) * sizeof *sgp->half;
  sgp->peers.weight = worker_alloc(s, bytes);
  sgp->half = worker_alloc(s, bytes);
  return trm_strategy_keep(s, "push-sum weights", sgp->peers.weight, bytes);
}

/* Adds the halves that have arrived to z and y. */
static void sgp_receive(struct trm_strategy *s)
{
  const struct sgp *sgp = worker_of(s)->method;
  const struct server_request request = {
    .replica = s->comm->rank, .kind = RECEIVE, .per_chunk = sgp->peers.weight, .in = s->w, .out = s->w};
  peers_exchange(s, &request);
}

/* Returns the rank that gets the halves after this worker's batch number `batch`, 1-based. */
static int sgp_neighbor(const struct trm_strategy *s, int64_t batch)
{
  int64_t distances = 0;
  while ((int64_t)1 << distances < s->comm->size)
    distances++;
  const int64_t turn = (batch / s->options->tau - 1) % distances;
  return (int)((s->comm->rank + ((int64_t)1 << turn)) % s->comm->size);
}

/* Sends runs of chunks with y >= 1: nearly always one run, of all chunks. */
static void sgp_send_halves(struct trm_strategy *s)
{
  struct sgp *sgp = worker_of(s)->method;
  double *weight = sgp->peers.weight;
  const size_t chunks = param_server_chunks(worker_of(s)->server);
  for (size_t low = 0, high; low < chunks; low = high + 1) {
    for (high = low; high < chunks && weight[high] >= 1; high++) {
      sgp->half[high] = floor(weight[high] / (2 * UNIT)) * UNIT;
      weight[high] -= sgp->half[high];
    }
    const struct server_request request = {
      .replica = sgp_neighbor(s, sgp->peers.batches),
      .kind = PUSH,
      .first = low,
      .last = high,
      .per_chunk = sgp->half,
      .in = s->w,
    };
    if (low < high)
      peers_exchange(s, &request);
  }
}

/* Applies the step chunk by chunk, each with its own y. */
static void sgp_apply(struct trm_strategy *s, const struct trm_update *update)
{
  const struct worker *w = worker_of(s);
  const struct sgp *sgp = w->method;
  for (size_t chunk = 0; chunk < param_server_chunks(w->server); chunk++) {
    const size_t low = chunk * SERVER_CHUNK, n = server_chunk_size(s->elements, chunk);
    struct trm_update scaled = *update;
    scaled.rate = (float)((double)update->rate / sgp->peers.weight[chunk]);
    worker_apply(s, &scaled, low, n, s->w + low, s->g + low);
  }
}

static int sgp_before_forward(struct trm_strategy *s)
{
  sgp_receive(s);
  return TRM_OK;
}

static int sgp_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct trm_update update;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &update, &exchanges));
  sgp_apply(s, &update);
  if (exchanges && s->comm->size > 1)
    sgp_send_halves(s);
  return TRM_OK;
}

static int sgp_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  sgp_receive(s);
  peers_mean(s);
  return TRM_OK;
}

static int sgp_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct sgp *sgp = w->method;
  for (size_t i = 0; i < param_server_chunks(w->server) && !s->local_state_restored; i++)
    sgp->peers.weight[i] = 1;
  TRM_CHECK(peers_restore(s, from, updates));
  s->comm->ops->barrier(s->comm);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_sgp = {
  .name = "sgp",
  .help = "workers push halves of their weights along a directed graph (stochastic gradient push)",
  PEERS_SLOTS,
  .create = sgp_create,
  .before_forward = sgp_before_forward,
  .step = sgp_step,
  .quiesce = sgp_quiesce,
  .restore = sgp_restore,
  .destroy = worker_destroy,
};
