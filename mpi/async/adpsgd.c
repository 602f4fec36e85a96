/* AD-PSGD (Lian, Zhang, Zhang & Liu 2018): workers average their weights in pairs, and wait for nobody.
 *
 * The even ranks are active. After every strategy.tau batches one of them chooses a passive rank, an odd one, at
 * random, and both get the mean of their weights, piece by piece as one atomic change; then it makes its step, with the
 * gradient taken before. The passive ranks make steps, too, and never choose: nobody who is asked asks at the same
 * time, so no circle of waiting can close. Averaging does not change the sum of all weights.
 *
 * The weights of a passive rank are its object of the service, which others change at any time; its step changes what
 * is there by then. Those of an active rank are changed by itself alone.
 *
 * Staleness: how often weights were averaged between the copy that a gradient was computed at and its step. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/peers.h"

enum kind { READ, AVERAGE, STEP };

struct adpsgd {
  struct peers peers;
  struct trm_update how; /* of this rank's latest gradient */
};

static bool is_passive(const struct trm_strategy *s)
{
  return s->comm->rank % 2 != 0;
}

/* The clock counts averages. STEP and READ are a rank's own, and run in it. */
static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  const struct trm_strategy *s = context;
  const struct worker *w = worker_of(s);
  float *x = service_array(piece, 0);
  if (call->kind == STEP) {
    const struct adpsgd *own = w->own;
    float *state[TRM_MAX_STATES - 1] = {NULL};
    for (int i = 0; i < s->optimizer->states; i++)
      state[i] = w->state[i] + piece->low;
    trm_optimizer_apply(s->optimizer, s->device, &own->how, NULL, piece->low, piece->n, x, call->in, state);
  } else if (call->kind == AVERAGE) {
    for (size_t i = 0; i < piece->n; i++)
      call->out[i] = x[i] = 0.5f * (x[i] + call->in[i]);
    ++*piece->clock;
  } else
    memcpy(call->out, x, piece->n * sizeof *x);
}

static int create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.arrays = 1, .function = serve, .local = true};
  return peers_create(s, &plan, sizeof(struct adpsgd));
}

static int before_forward(struct trm_strategy *s)
{
  const struct service_request request = {
    .object = s->comm->rank, .kind = READ, .out = s->w, .seen = worker_of(s)->seen};
  if (is_passive(s))
    peers_exchange(s, &request);
  return TRM_OK;
}

static int step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct worker *w = worker_of(s);
  struct adpsgd *own = w->own;
  const int passive = s->comm->size / 2;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, tally, &own->how, &exchanges));
  if (is_passive(s)) {
    const struct service_request apply = {.object = s->comm->rank, .kind = STEP, .in = s->g, .seen = w->seen};
    trm_staleness_add(&w->staleness, (uint64_t)peers_exchange(s, &apply));
    return TRM_OK;
  }
  exchanges = exchanges && passive > 0;
  if (exchanges) {
    const struct service_request average = {
      .object = 1 + 2 * peers_draw(s, passive), .kind = AVERAGE, .in = s->w, .out = s->w};
    peers_exchange(s, &average);
  }
  trm_staleness_add(&w->staleness, exchanges);
  worker_apply(s, &own->how);
  return TRM_OK;
}

static int settle(struct trm_strategy *s)
{
  TRM_CHECK(peers_settle(s));
  before_forward(s);
  peers_mean(s, NULL);
  return TRM_OK;
}

static int restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(peers_restore(s, from, updates));
  if (!s->kept_given)
    memcpy(peers_object(s, 0), s->w, s->elements * sizeof *s->w);
  peers_mean(s, NULL);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_adpsgd = {
  .name = "adpsgd",
  .help = "workers average their weights in random pairs",
  .create = create,
  .claim = worker_claim,
  .before_forward = before_forward,
  .step = step,
  .settle = settle,
  .collect = peers_collect,
  .restore = restore,
  .destroy = worker_destroy,
};
