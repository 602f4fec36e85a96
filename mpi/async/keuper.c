/* The asynchronous SGD of Keuper & Pfreundt (2015): workers put their weights before one another, and take what helps.
 *
 * The object of a rank is a slot, which anybody may write over. Every strategy.tau batches a worker i with gradient g
 * looks into its own slot. The weights w_j that it finds are accepted if the own step leads towards them,
 *
 *   |(w_i - rate g) - w_j|^2 < |w_i - w_j|^2                the Parzen gate; statistics are left out of it
 *
 * and then w_i becomes the mean of w_i and w_j, before the optimizer's step. After the step w_i goes into the slot of
 * another rank, chosen at random. The pieces of a slot are written and taken one by one, as memory of a remote rank is:
 * those that have come by then are judged together. The result of the run is the mean of all workers' weights.
 *
 * Staleness: by how many batches the sender of a state, when it sent it, was behind the worker that found it, 0 if it
 * was ahead; of the refused ones, too. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/peers.h"

enum kind { PUT, TAKE };
enum value { BATCHES };     /* of the sender */
enum note { FILLED, SENT }; /* SENT: the value that came with it */

struct keuper {
  struct peers peers;
  float *found;                /* (elements) */
  double *sent;                /* (pieces) SENT of what was found, -1: nothing was */
  int64_t accepted, refused;
};

/* TAKE is a rank's own. */
static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  float *x = service_array(piece, 0);
  (void)context;
  if (call->kind == PUT) {
    memcpy(x, call->in, piece->n * sizeof *x);
    piece->note[FILLED] = 1;
    piece->note[SENT] = call->value[BATCHES];
    return;
  }
  call->each = piece->note[FILLED] > 0 ? piece->note[SENT] : -1;
  if (piece->note[FILLED] > 0)
    memcpy(call->out, x, piece->n * sizeof *x);
  piece->note[FILLED] = 0;
}

static int create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.arrays = 1, .function = serve, .local = true};
  TRM_CHECK(peers_create(s, &plan, sizeof(struct keuper)));
  struct worker *w = worker_of(s);
  struct keuper *own = w->own;
  own->sent = trm_alloc(service_pieces(w->service) * sizeof *own->sent, "notes of a slot");
  return trm_agree(s->comm, worker_array(s, "weights of another worker", false, &own->found));
}

static size_t piece_end(const struct trm_strategy *s, size_t piece)
{
  const size_t end = (piece + 1) * SERVICE_PIECE;
  return end < s->elements ? end : s->elements;
}

/* By how much the square of the distance to what was found changes along -rate g. */
static double approach(const struct trm_strategy *s, const struct trm_update *how)
{
  const struct keuper *own = worker_of(s)->own;
  const size_t trained = trm_optimizer_trained(s->optimizer);
  const double rate = (double)how->rate * (double)how->scale;
  double change = 0;
  for (size_t piece = 0; piece < service_pieces(worker_of(s)->service); piece++) {
    const size_t end = piece_end(s, piece) < trained ? piece_end(s, piece) : trained;
    for (size_t i = piece * SERVICE_PIECE; i < end && own->sent[piece] >= 0; i++) {
      const double move = rate * (double)s->g[i];
      change += move * (move - 2 * ((double)s->w[i] - (double)own->found[i]));
    }
  }
  return change;
}

static void mix(struct trm_strategy *s)
{
  const struct keuper *own = worker_of(s)->own;
  for (size_t piece = 0; piece < service_pieces(worker_of(s)->service); piece++)
    for (size_t i = piece * SERVICE_PIECE; i < piece_end(s, piece) && own->sent[piece] >= 0; i++)
      s->w[i] = 0.5f * (s->w[i] + own->found[i]);
}

static void look_into_slot(struct trm_strategy *s, const struct trm_update *how)
{
  struct worker *w = worker_of(s);
  struct keuper *own = w->own;
  const struct service_request take = {.object = s->comm->rank, .kind = TAKE, .each = own->sent, .out = own->found};
  peers_exchange(s, &take);
  double newest = -1;
  for (size_t i = 0; i < service_pieces(w->service); i++)
    newest = own->sent[i] > newest ? own->sent[i] : newest;
  if (newest < 0)
    return;
  const double behind = (double)own->peers.batches - 1 - newest;
  trm_staleness_add(&w->staleness, behind > 0 ? (uint64_t)behind : 0);
  if (approach(s, how) < 0) {
    own->accepted++;
    mix(s);
  } else
    own->refused++;
}

static void put_before_another(struct trm_strategy *s)
{
  const struct keuper *own = worker_of(s)->own;
  const int draw = peers_draw(s, s->comm->size - 1);
  const struct service_request put = {
    .object = draw + (draw >= s->comm->rank),
    .kind = PUT,
    .value = {[BATCHES] = (double)own->peers.batches},
    .in = s->w,
  };
  peers_exchange(s, &put);
}

static int step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct trm_update how;
  bool exchanges;
  TRM_CHECK(peers_step(s, rate, tally, &how, &exchanges));
  exchanges = exchanges && s->comm->size > 1;
  if (exchanges)
    look_into_slot(s, &how);
  worker_apply(s, &how);
  if (exchanges)
    put_before_another(s);
  return TRM_OK;
}

static int settle(struct trm_strategy *s)
{
  TRM_CHECK(peers_settle(s));
  peers_mean(s, NULL);
  return TRM_OK;
}

static int restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(peers_restore(s, from, updates));
  peers_mean(s, NULL);
  return TRM_OK;
}

static void destroy(struct trm_strategy *s)
{
  struct keuper *own = worker_of(s)->own;
  int64_t count[] = {own->accepted, own->refused};
  s->comm->ops->allreduce(s->comm, count, 2, TRM_INT64, TRM_SUM);
  if (count[0] + count[1] > 0)
    trm_info("keuper: workers accepted %lld states of others and refused %lld", (long long)count[0],
             (long long)count[1]);
  trm_free(own->sent);
  s->device->ops->release(s->device, own->found);
  worker_destroy(s);
}

const struct trm_strategy_ops trm_strategy_keuper = {
  .name = "keuper",
  .help = "workers put their weights before others, who take them if they help (Keuper & Pfreundt's ASGD)",
  .create = create,
  .claim = worker_claim,
  .step = step,
  .settle = settle,
  .collect = peers_collect,
  .restore = restore,
  .destroy = destroy,
};
