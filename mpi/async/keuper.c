/* The asynchronous SGD of Keuper & Pfreundt (2015): workers send one another their weights, and accept some of them.
 *
 * The replica of a rank is a slot, which any rank may overwrite. Every strategy.tau batches a worker i with gradient g
 * reads its slot. The weights w_j that it finds are accepted if the worker's own step leads towards them,
 *
 *   |(w_i - rate g) - w_j|^2 < |w_i - w_j|^2                the Parzen gate; statistics are left out of it
 *
 * and then w_i becomes the mean of w_i and w_j, before the optimizer's step. After the step w_i goes into the slot of
 * another rank, chosen at random. The chunks of a slot are written and read one by one, as remote memory is; the gate
 * is computed over those that have arrived. The result of the run is the mean of all workers' weights.
 *
 * Staleness is not defined: weights are rejected or overwritten, and the accepted ones carry the gradients of others in
 * part, so there is no number of those that a gradient has not seen. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/peers.h"

enum kind { PUT, FETCH };
enum method_state { FILLED }; /* 1: the slot has weights that its owner has not read */

struct keuper {
  struct peers peers;
  float *found;   /* (elements) weights read from the slot */
  double *filled; /* (chunks) FILLED of each when it was read */
  int64_t accepted, rejected;
};

/* FETCH is called by the owner alone. */
static bool keuper_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  float *x = server_array(chunk, 0);
  (void)context;
  if (call->kind == PUT) {
    memcpy(x, call->in, chunk->n * sizeof *x);
    chunk->method_state[FILLED] = 1;
    return true;
  }
  call->per_chunk = chunk->method_state[FILLED];
  if (chunk->method_state[FILLED] > 0)
    memcpy(call->out, x, chunk->n * sizeof *x);
  chunk->method_state[FILLED] = 0;
  return true;
}

static int keuper_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.arrays = 1, .handler = keuper_serve, .local = true, .no_staleness = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct keuper)));
  struct worker *w = worker_of(s);
  struct keuper *k = w->method;
  k->filled = worker_alloc(s, param_server_chunks(w->server) * sizeof *k->filled);
  return trm_agree(s->comm, worker_array(s, s->elements, NULL, &k->found));
}

/* Returns the change of |w - found|^2 by a step -rate g. */
static double keuper_distance_change(const struct trm_strategy *s, const struct trm_update *update)
{
  const struct keuper *k = worker_of(s)->method;
  const size_t trained = trm_optimizer_trained(s->optimizer);
  const double rate = (double)update->rate * (double)update->scale;
  double change = 0;
  for (size_t i = 0; i < trained; i++)
    if (k->filled[i / SERVER_CHUNK] > 0) {
      const double move = rate * (double)s->g[i];
      change += move * (move - 2 * ((double)s->w[i] - (double)k->found[i]));
    }
  return change;
}

static void keuper_average(struct trm_strategy *s)
{
  const struct keuper *k = worker_of(s)->method;
  for (size_t i = 0; i < s->elements; i++)
    if (k->filled[i / SERVER_CHUNK] > 0)
      s->w[i] = 0.5f * (s->w[i] + k->found[i]);
}

static void keuper_read_slot(struct trm_strategy *s, const struct trm_update *update)
{
  struct worker *w = worker_of(s);
  struct keuper *k = w->method;
  const struct server_request fetch = {
    .replica = s->comm->rank, .kind = FETCH, .per_chunk = k->filled, .out = k->found};
  peers_exchange(s, &fetch);
  bool found = false;
  for (size_t i = 0; i < param_server_chunks(w->server); i++)
    found |= k->filled[i] > 0;
  if (!found)
    return;
  if (keuper_distance_change(s, update) < 0) {
    k->accepted++;
    keuper_average(s);
  } else
    k->rejected++;
}

static void keuper_send_weights(struct trm_strategy *s)
{
  const int draw = peers_draw(s, s->comm->size - 1);
  const struct server_request put = {
    .replica = draw + (draw >= s->comm->rank),
    .kind = PUT,
    .in = s->w,
  };
  peers_exchange(s, &put);
}

static int keuper_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct trm_update update;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, sums, &update, &exchanges));
  exchanges = exchanges && s->comm->size > 1;
  if (exchanges)
    keuper_read_slot(s, &update);
  worker_apply_all(s, &update);
  if (exchanges)
    keuper_send_weights(s);
  return TRM_OK;
}

static void keuper_destroy(struct trm_strategy *s)
{
  struct keuper *k = worker_of(s)->method;
  int64_t count[] = {k->accepted, k->rejected};
  s->comm->ops->allreduce(s->comm, count, 2, TRM_INT64, TRM_SUM);
  if (count[0] + count[1] > 0)
    trm_info("keuper: workers accepted %lld states of others and refused %lld", (long long)count[0],
             (long long)count[1]);
  worker_destroy(s);
}

const struct trm_strategy_ops trm_strategy_keuper = {
  .name = "keuper",
  .help = "workers send one another their weights, and accept those that help (Keuper & Pfreundt's ASGD)",
  PEERS_SLOTS,
  .create = keuper_create,
  .step = keuper_step,
  .quiesce = peers_quiesce,
  .restore = peers_restore,
  .destroy = keuper_destroy,
};
