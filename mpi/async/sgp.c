/* Stochastic gradient push (Assran, Loizou, Ballas & Rabbat 2019), in the form where nobody waits.
 *
 * Push-sum: a worker has a vector x and a weight y, at first 1; gradients are computed at z = x / y. Every strategy.tau
 * batches, after the optimizer's step on x, it sends a half of (x, y) to one worker and keeps the other half; before
 * every gradient it adds what others have sent. To whom: 1, 2, 4, .. < workers places on, in turn. The sums of x and of
 * y do not change by that, wherever the halves are; their quotient is the result of the run.
 *
 * What is kept is z, so that a step of the rate on x is one of rate / y on z, and sending leaves z as it is. The object
 * of a rank is its mailbox: the sum of the x that have come, and in a note the sum of the y. Every piece is a push-sum
 * of its own. Weights are whole multiples of 2^-20, so that their sum stays exact; an odd one is nearly halved.
 *
 * The published method stays close to y = 1 because workers wait for one another after some steps. Here one that is
 * ahead would give away half after half, and its z would move by ever larger steps. So who has less than 1 sends
 * nothing until something comes: y >= 1/2, no step on z is more than twice what it was meant to be, and as all weights
 * together are one for each, somebody can always send.
 *
 * Staleness: how many halves have come to a worker since its gradient before. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/peers.h"

enum kind { PUSH, TAKE };
#define UNIT 0x1p-20

struct sgp {
  struct peers peers;
  double *weight; /* (pieces) y */
  double *half;   /* (pieces) of it, under way */
};

/* TAKE is a rank's own: in is z, which becomes out; each is y. The clock counts what has come. */
static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  float *x = service_array(piece, 0);
  double *y = &piece->note[0];
  (void)context;
  if (call->kind == PUSH) {
    const float half = (float)call->each;
    for (size_t i = 0; i < piece->n; i++)
      x[i] += half * call->in[i];
    *y += call->each;
    ++*piece->clock;
  } else if (*y > 0) {
    const double sum = call->each + *y, keep = call->each / sum, add = 1 / sum;
    for (size_t i = 0; i < piece->n; i++) {
      call->out[i] = (float)(keep * (double)call->in[i] + add * (double)x[i]);
      x[i] = 0;
    }
    call->each = sum;
    *y = 0;
  }
}

static int create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.arrays = 1, .passing = 1, .function = serve, .local = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct sgp)));
  struct worker *w = worker_of(s);
  struct sgp *own = w->own;
  const size_t bytes = service_pieces(w->service) * sizeof *own->weight;
  own->weight = trm_alloc(bytes, "push-sum weights");
  own->half = trm_alloc(bytes, "push-sum weights");
  s->kept[s->kepts++] = (struct trm_kept){.name = "push-sum weights", .data = own->weight, .bytes = bytes};
  return TRM_OK;
}

/* What has come; how many halves it is. */
static int64_t take(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct sgp *own = w->own;
  const struct service_request request = {
    .object = s->comm->rank, .kind = TAKE, .each = own->weight, .in = s->w, .out = s->w, .seen = w->seen};
  return peers_exchange(s, &request);
}

/* Where the halves go that are sent after batch number `batch` of this worker, 1-based. */
static int neighbour(const struct trm_strategy *s, int64_t batch)
{
  int64_t distances = 0;
  while ((int64_t)1 << distances < s->comm->size)
    distances++;
  const int64_t turn = (batch / s->options->strategy.tau - 1) % distances;
  return (int)((s->comm->rank + ((int64_t)1 << turn)) % s->comm->size);
}

/* Runs of pieces: nearly always one, of all. */
static void send_halves(struct trm_strategy *s)
{
  struct sgp *own = worker_of(s)->own;
  const size_t pieces = service_pieces(worker_of(s)->service);
  for (size_t low = 0, high; low < pieces; low = high + 1) {
    for (high = low; high < pieces && own->weight[high] >= 1; high++) {
      own->half[high] = floor(own->weight[high] / (2 * UNIT)) * UNIT;
      own->weight[high] -= own->half[high];
    }
    const struct service_request request = {
      .object = neighbour(s, own->peers.batches),
      .kind = PUSH,
      .first = low,
      .last = high,
      .each = own->half,
      .in = s->w,
    };
    if (low < high)
      peers_exchange(s, &request);
  }
}

/* The step, piece by piece as their weights are. */
static void apply(struct trm_strategy *s, const struct trm_update *how)
{
  const struct worker *w = worker_of(s);
  const struct sgp *own = w->own;
  for (size_t low = 0; low < s->elements; low += SERVICE_PIECE) {
    const size_t left = s->elements - low, n = left < SERVICE_PIECE ? left : SERVICE_PIECE;
    float *state[TRM_MAX_STATES - 1] = {NULL};
    for (int i = 0; i < s->optimizer->states; i++)
      state[i] = w->state[i] + low;
    struct trm_update update = *how;
    update.rate = (float)((double)how->rate / own->weight[low / SERVICE_PIECE]);
    trm_optimizer_apply(s->optimizer, s->device, &update, NULL, low, n, s->w + low, s->g + low, state);
  }
}

static int before_forward(struct trm_strategy *s)
{
  trm_staleness_add(&worker_of(s)->staleness, (uint64_t)take(s));
  return TRM_OK;
}

static int step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct trm_update how;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, tally, &how, &exchanges));
  apply(s, &how);
  if (exchanges && s->comm->size > 1)
    send_halves(s);
  return TRM_OK;
}

static int settle(struct trm_strategy *s)
{
  TRM_CHECK(peers_settle(s));
  take(s);
  peers_mean(s, ((struct sgp *)worker_of(s)->own)->weight);
  return TRM_OK;
}

static int restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct sgp *own = w->own;
  TRM_CHECK(peers_restore(s, from, updates));
  for (size_t i = 0; i < service_pieces(w->service) && !s->kept_given; i++)
    own->weight[i] = 1;
  take(s);
  peers_mean(s, own->weight);
  return TRM_OK;
}

static void destroy(struct trm_strategy *s)
{
  struct sgp *own = worker_of(s)->own;
  trm_free(own->weight);
  trm_free(own->half);
  worker_destroy(s);
}

const struct trm_strategy_ops trm_strategy_sgp = {
  .name = "sgp",
  .help = "workers push halves of their weights along a directed graph (stochastic gradient push)",
  .create = create,
  .claim = worker_claim,
  .before_forward = before_forward,
  .step = step,
  .settle = settle,
  .collect = peers_collect,
  .restore = restore,
  .destroy = destroy,
};
