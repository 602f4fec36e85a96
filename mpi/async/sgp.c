/* Stochastic gradient push (Assran, Loizou, Ballas & Rabbat 2019; algorithm 1, and its form with overlap).
 *
 * Push-sum: a worker has a vector x and a weight y, initially 1; gradients are computed at z = x / y. An iteration is
 * strategy.tau batches, each with a step of the optimizer on x. It ends with a message: the worker sends half of (x, y)
 * to one worker and keeps the other half. The receivers are the ranks at distance 1, 2, 4, .. < workers, in turn, so
 * every worker gets one half an iteration (the directed exponential graph with one peer). The sums of x and y over all
 * workers and messages are invariant; their quotient is the result of the run.
 *
 * A worker adds the halves that have arrived when it begins an iteration. It begins iteration k only with all halves
 * that were sent to it in the iterations before k - strategy.overlap, and takes halves of iteration k only after it
 * has begun k - strategy.overlap: until then their sender waits. With overlap 0 this is algorithm 1, and the order of
 * arrival changes no bit; with 1 the message of an iteration travels during the next one. At equal speeds one half
 * arrives an iteration, and y is near 1 / (1 + overlap / 2): the rest is under way. A worker without a further batch,
 * until the next quiesce point, takes all halves, and tells its receivers to expect none. One that has failed takes no
 * more: what it would be sent, and could never send on, stays with the sender.
 *
 * A worker stores z: a step on x is a step on z with rate / y, and sending does not change z. The replica of a rank is
 * its mailbox: the sum of the x received, and as method state the sum of the y. Every chunk is a separate push-sum. The
 * y are integer multiples of 2^-20, so that their sum is exact; an odd one is not halved exactly.
 *
 * Staleness is not defined: a half carries a part of the gradients of many others, so there is no number of those that
 * a gradient has not seen. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/peers.h"
#include "mpi/strategies.h"
#include "train/slowdown.h"

/* By a sender at distance 2^d: PUSH, a half, per_chunk its y, of which a failed owner returns all; FINISH, no more
 * before the next quiesce point. By the owner alone, and run in it: RECEIVE, at the beginning of an iteration, and
 * TAKE_ALL, at a quiesce point: in is z, out the new z, per_chunk y; END: it begins no further iteration; FAIL: it has
 * failed. */
enum kind { PUSH, FINISH, RECEIVE, TAKE_ALL, END, FAIL };
enum value { DISTANCE, ITERATION }; /* d; of PUSH */
/* y; the iteration that the owner has begun, -INFINITY: it has failed; ARRIVED + d: halves since the last quiesce
 * point, INFINITY after FINISH */
enum method_state { WEIGHT, BEGUN, ARRIVED };
#define UNIT 0x1p-20

struct sgp {
  struct peers peers; /* weight: y */
  double *half;       /* (chunks) the half of y to send */
  int distances;
  int64_t first;      /* iteration of all workers at the last quiesce point */
  int64_t iteration;  /* of this worker: halves sent, in all */
  int64_t begun;      /* the latest iteration that it has begun since the last quiesce point; first - 1: none */
};

/* Returns the number of halves that the worker must have from distance 2^d: those of iterations [first, end). */
static int64_t sgp_expected(const struct sgp *sgp, int d, int64_t end)
{
  const int64_t distances = sgp->distances, before = ((d - sgp->first) % distances + distances) % distances;
  const int64_t earliest = sgp->first + before;
  return earliest < end ? (end - 1 - earliest) / distances + 1 : 0;
}

static bool sgp_has_arrived(const struct trm_strategy *s, const struct server_chunk *chunk)
{
  const struct sgp *sgp = worker_of(s)->method;
  for (int d = 0; d < sgp->distances; d++)
    if (chunk->method_state[ARRIVED + d] < (double)sgp_expected(sgp, d, sgp->iteration - s->options->overlap))
      return false;
  return true;
}

static void sgp_add_half(const struct server_chunk *chunk, struct server_call *call)
{
  float *x = server_array(chunk, 0);
  const float half = (float)call->per_chunk;
  for (size_t i = 0; i < chunk->n; i++)
    x[i] += half * call->in[i];
  chunk->method_state[WEIGHT] += call->per_chunk;
  call->per_chunk = 0;
  chunk->method_state[ARRIVED + (int)call->value[DISTANCE]]++;
}

/* Moves what has arrived to the worker's z and y. */
static void sgp_take(const struct server_chunk *chunk, struct server_call *call)
{
  float *x = server_array(chunk, 0);
  double *y = &chunk->method_state[WEIGHT];
  const double sum = call->per_chunk + *y, keep = call->per_chunk / sum, add = 1 / sum;
  if (*y == 0)
    return;
  for (size_t i = 0; i < chunk->n; i++) {
    call->out[i] = (float)(keep * (double)call->in[i] + add * (double)x[i]);
    x[i] = 0;
  }
  call->per_chunk = sum;
  *y = 0;
}

static bool sgp_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  const struct sgp *sgp = worker_of(s)->method;
  double *state = chunk->method_state;
  const bool failed = state[BEGUN] == -INFINITY;
  if (call->kind == PUSH) {
    if (failed)
      return true;
    if (call->value[ITERATION] > state[BEGUN] + (double)s->options->overlap)
      return false;
    sgp_add_half(chunk, call);
  } else if (call->kind == FINISH) {
    state[ARRIVED + (int)call->value[DISTANCE]] = INFINITY;
  } else if (call->kind == END || call->kind == FAIL) {
    state[BEGUN] = call->kind == FAIL ? -INFINITY : INFINITY;
  } else if (call->kind == TAKE_ALL) {
    sgp_take(chunk, call);
    memset(&state[ARRIVED], 0, (size_t)sgp->distances * sizeof *state);
    state[BEGUN] = failed ? -INFINITY : (double)sgp->first - 1;
  } else {
    if (!sgp_has_arrived(s, chunk))
      return false;
    sgp_take(chunk, call);
    state[BEGUN] = (double)sgp->iteration;
  }
  return true;
}

static int sgp_receiver(const struct trm_strategy *s, int d)
{
  return (int)((s->comm->rank + ((int64_t)1 << d)) % s->comm->size);
}

/* Lets those go on that would wait for this worker. */
static void sgp_finish(struct trm_strategy *s)
{
  const struct sgp *sgp = worker_of(s)->method;
  const bool failed = s->slowdown && s->slowdown->failed;
  peers_exchange(s, &(struct server_request){.replica = s->comm->rank, .kind = failed ? FAIL : END});
  for (int d = 0; d < sgp->distances; d++) {
    const struct server_request finish = {.replica = sgp_receiver(s, d), .kind = FINISH, .value = {[DISTANCE] = d}};
    peers_exchange(s, &finish);
  }
}

static int sgp_create(struct trm_strategy *s)
{
  int distances = 0;
  while ((int64_t)1 << distances < s->comm->size)
    distances++;
  const struct worker_plan plan = {
    .arrays = 1, .transient = 1, .method_states = ARRIVED + distances, .handler = sgp_serve, .local = true,
    .drain = sgp_finish, .no_staleness = true, .snapshot = peers_snapshot};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct sgp)));
  struct worker *w = worker_of(s);
  struct sgp *sgp = w->method;
  const size_t bytes = param_server_chunks(w->server) * sizeof *sgp->half;
  sgp->peers.weight = worker_alloc(s, bytes);
  sgp->half = worker_alloc(s, bytes);
  sgp->distances = distances;
  TRM_CHECK(trm_strategy_keep(s, "iteration", &sgp->iteration, sizeof sgp->iteration));
  return trm_strategy_keep(s, "push-sum weights", sgp->peers.weight, bytes);
}

/* Adds the halves that have arrived to z and y. kind RECEIVE: waits for those that the worker must have. */
static void sgp_receive(struct trm_strategy *s, int kind)
{
  struct worker *w = worker_of(s);
  struct sgp *sgp = w->method;
  const struct server_request request = {
    .replica = s->comm->rank, .kind = kind, .per_chunk = sgp->peers.weight, .in = s->w, .out = s->w};
  peers_exchange(s, &request);
}

static int sgp_before_forward(struct trm_strategy *s)
{
  struct sgp *sgp = worker_of(s)->method;
  if (sgp->begun < sgp->iteration)
    sgp_receive(s, RECEIVE);
  sgp->begun = sgp->iteration;
  return TRM_OK;
}

/* Ends the iteration. */
static void sgp_send_half(struct trm_strategy *s)
{
  struct sgp *sgp = worker_of(s)->method;
  const int d = (int)(sgp->iteration % sgp->distances);
  double *weight = sgp->peers.weight;
  for (size_t i = 0; i < param_server_chunks(worker_of(s)->server); i++) {
    sgp->half[i] = floor(weight[i] / (2 * UNIT)) * UNIT;
    weight[i] -= sgp->half[i];
  }
  const struct server_request request = {
    .replica = sgp_receiver(s, d),
    .kind = PUSH,
    .value = {[DISTANCE] = d, [ITERATION] = (double)sgp->iteration++},
    .per_chunk = sgp->half,
    .in = s->w,
  };
  peers_exchange(s, &request);
  for (size_t i = 0; i < param_server_chunks(worker_of(s)->server); i++)
    weight[i] += sgp->half[i];
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

static int sgp_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct trm_update update;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &update, &exchanges));
  sgp_apply(s, &update);
  if (exchanges && s->comm->size > 1)
    sgp_send_half(s);
  return TRM_OK;
}

/* Adds all halves, with no worker in an iteration. All go on with one iteration, the latest: workers that are assigned
 * batches dynamically have made different numbers of them. */
static void sgp_take_all(struct trm_strategy *s)
{
  struct sgp *sgp = worker_of(s)->method;
  s->comm->ops->allreduce(s->comm, &sgp->iteration, 1, TRM_INT64, TRM_MAX);
  sgp->first = sgp->iteration;
  sgp->begun = sgp->first - 1;
  sgp_receive(s, TAKE_ALL);
  s->comm->ops->barrier(s->comm);
}

static int sgp_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  sgp_take_all(s);
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
  if (!s->local_state_restored)
    sgp->iteration = sgp->peers.batches / s->options->tau;
  sgp_take_all(s);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_sgp = {
  .name = "sgp",
  .help = "workers push halves of their weights along a directed graph (stochastic gradient push)",
  .takes = PEERS_TAKE,
  PEERS_SLOTS,
  .create = sgp_create,
  .before_forward = sgp_before_forward,
  .step = sgp_step,
  .quiesce = sgp_quiesce,
  .restore = sgp_restore,
  .destroy = worker_destroy,
};
