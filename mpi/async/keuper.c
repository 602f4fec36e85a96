/* The asynchronous SGD of Keuper & Pfreundt (2015): workers send one another their weights, and accept some of them.
 *
 * The replica of a rank is a slot, which any rank may overwrite: the paper's one external buffer (N = 1; with more the
 * mean would be over 1 + N states). Every strategy.tau batches a worker i with gradient g reads its slot. The weights
 * w_j that it finds are accepted if the worker's own step leads towards them, and then change the step:
 *
 *   |w' - w_j|^2 < |w_i - w_j|^2,  w' = w_i - rate g        the Parzen gate; statistics are left out of it
 *   w_i <- w_i - rate (w_i - (w_i + w_j) / 2 + g)           that is w' - (rate / 2) (w_i - w_j)
 *
 * The mean is part of the direction, so that the rate scales it, too; here by 1 at most, which makes it the mean
 * itself. With another rule than sgd, w' is what the optimizer makes of w_i, whose states follow the gradients alone.
 * After the step w_i goes into the slot of another rank, chosen at random. The chunks of a slot are written and read
 * one by one, as remote memory is; the gate is computed over those that have arrived. The result of the run is the
 * mean of all workers' weights, not those of one worker as in the paper.
 *
 * Staleness is not defined: weights are rejected or overwritten, and the accepted ones carry the gradients of others in
 * part, so there is no number of those that a gradient has not seen. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/peers.h"
#include "mpi/strategies.h"

enum kind { PUT, FETCH };
enum method_state { FILLED }; /* 1: the slot has weights that its owner has not read */

struct keuper {
  struct peers peers;
  float *found;   /* (elements) weights read from the slot */
  float *before;  /* (elements) the worker's weights before its step */
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
  const struct worker_plan plan = {
    .arrays = 1, .method_states = 1, .handler = keuper_serve, .local = true, .no_staleness = true,
    .snapshot = peers_snapshot};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct keuper)));
  struct worker *w = worker_of(s);
  struct keuper *k = w->method;
  k->filled = worker_alloc(s, param_server_chunks(w->server) * sizeof *k->filled);
  TRM_CHECK(trm_agree(s->comm, worker_array(s, s->elements, NULL, &k->found)));
  return trm_agree(s->comm, worker_array(s, s->elements, NULL, &k->before));
}

/* Returns |w - found|^2 over the trained elements that have been found. w (elements) */
static double keuper_distance(const struct trm_strategy *s, const float *w)
{
  const struct keuper *k = worker_of(s)->method;
  const size_t trained = trm_optimizer_trained(s->optimizer);
  double sum = 0;
  for (size_t i = 0; i < trained; i++) {
    const double apart = (double)w[i] - (double)k->found[i];
    sum += k->filled[i / SERVER_CHUNK] > 0 ? apart * apart : 0;
  }
  return sum;
}

/* Reads the slot; false: it is empty. */
static bool keuper_read_slot(struct trm_strategy *s)
{
  const struct worker *w = worker_of(s);
  const struct keuper *k = w->method;
  const struct server_request fetch = {
    .replica = s->comm->rank, .kind = FETCH, .per_chunk = k->filled, .out = k->found};
  peers_exchange(s, &fetch);
  for (size_t i = 0; i < param_server_chunks(w->server); i++)
    if (k->filled[i] > 0)
      return true;
  return false;
}

/* Makes the step, and mixes it with the weights found if the gate accepts them. */
static void keuper_step_mixed(struct trm_strategy *s, const struct trm_update *update)
{
  struct keuper *k = worker_of(s)->method;
  const float pull = update->rate < 1 ? update->rate / 2 : 0.5f;
  memcpy(k->before, s->w, s->elements * sizeof *s->w);
  worker_apply_all(s, update);
  const bool accepts = keuper_distance(s, s->w) < keuper_distance(s, k->before);
  ++*(accepts ? &k->accepted : &k->rejected);
  for (size_t i = 0; i < s->elements && accepts; i++)
    if (k->filled[i / SERVER_CHUNK] > 0)
      s->w[i] -= pull * (k->before[i] - k->found[i]);
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
  if (exchanges && keuper_read_slot(s))
    keuper_step_mixed(s, &update);
  else
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
  .takes = PEERS_TAKE,
  PEERS_SLOTS,
  .create = keuper_create,
  .step = keuper_step,
  .quiesce = peers_quiesce,
  .restore = peers_restore,
  .destroy = keuper_destroy,
};
