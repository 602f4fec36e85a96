/* Stale synchronous parallel (Ho et al. 2013), and its eager kind (Dai et al. 2015).
 *
 * Every worker has its part of every batch, and the batches are its clock. A worker may be `strategy.slack` = s clocks
 * ahead of the slowest: clock c begins with weights that have the updates of all clocks before c - s, and with what the
 * worker itself has added since. With s = 0 that is synchronous SGD, bit for bit where the ranks share a node.
 *
 * The service keeps the gradients of the clocks under way, of each worker its own. When the last one of a clock has
 * come they are added in the fixed tree over the workers, as the synchronous method does, and the optimizer makes one
 * update. So momentum and adam work as ever, and the order of arrival changes no bit of any version of the weights.
 *
 *   ssp    reads the weights when its own have become too old
 *   essp   reads them before every batch
 *
 * On top of weights of clock v the worker applies its own gradients of clocks v, v + 1, .. by plain SGD: the optimizer
 * cannot know yet what the others will have added. Staleness is the clock of a gradient less that of its weights.
 *
 * Memory: (s + 1) arrays of the model's size for each worker in the service, and s more at each worker. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/centre.h"

enum kind { LOOK = CENTRE_KINDS };   /* the clock, into `each` */
enum value { CLOCK = CENTRE_SCALE };   /* of a gradient; there is no clipping */

struct ssp {
  bool eager;
  float *gradient; /* (slack, elements) this worker's own; that of clock c is number c % slack */
  double *rate;    /* (slack) */
  double *clock;   /* (pieces) of the centre when it was last looked at */
};

static size_t slack_of(const struct trm_strategy *s)
{
  return (size_t)s->options->strategy.slack;
}

static int workers_of(const struct trm_strategy *s)
{
  return s->comm->size - (int)s->options->strategy.servers;
}

/* -- the service. Arrays after the optimizer's: slack + 1 slots of a gradient for each worker; then counters, as many
 * to an array as the smallest piece has room for. */

static float *gradient_of(const struct trm_strategy *s, const struct service_piece *piece, size_t slot, int worker)
{
  return service_array(piece, 1 + s->optimizer->states + (int)slot * workers_of(s) + worker);
}

static size_t smallest_piece(const struct trm_strategy *s)
{
  const size_t rest = s->elements % SERVICE_PIECE;
  return rest > 0 ? rest : SERVICE_PIECE;
}

/* Counters 0..slack: the gradients that have come in each slot. Counter slack + 1: a worker's loss was not finite. */
static float *counter(const struct trm_strategy *s, const struct service_piece *piece, size_t number)
{
  const size_t room = smallest_piece(s);
  return gradient_of(s, piece, slack_of(s) + 1, (int)(number / room)) + number % room;
}

/* All gradients of a clock are there. */
static void update(const struct trm_strategy *s, const struct service_piece *piece, size_t slot, double rate)
{
  const int workers = workers_of(s);
  const float **from = trm_alloc((size_t)workers * sizeof *from, "gradients");
  for (int i = 0; i < workers; i++)
    from[i] = gradient_of(s, piece, slot, i);
  float *sum = gradient_of(s, piece, slot, 0);
  s->device->ops->sum(s->device, sum, from, workers, piece->n);
  trm_free(from);
  struct trm_update how = s->optimizer->update;
  how.rate = (float)rate;
  how.scale = 1;
  how.step = (uint64_t)*piece->clock;
  centre_apply(s, piece, &how, sum);
}

/* A worker sends its clocks in order, so no later clock is complete before this one. After a failure clocks go on, so
 * that nobody waits for ever, and the weights stay as they are. */
static void take(const struct trm_strategy *s, const struct service_piece *piece, const struct service_call *call)
{
  const size_t slack = slack_of(s), slot = (size_t)call->value[CLOCK] % (slack + 1);
  float *come = counter(s, piece, slot), *failed = counter(s, piece, slack + 1);
  if (call->in)
    memcpy(gradient_of(s, piece, slot, call->from), call->in, piece->n * sizeof(float));
  else
    *failed = 1;
  if (++*come < (float)workers_of(s))
    return;
  *come = 0;
  ++*piece->clock;
  if (*failed == 0)
    update(s, piece, slot, call->value[CENTRE_RATE]);
}

static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  if (call->kind == CENTRE_PUSH)
    take(context, piece, call);
  call->each = (double)*piece->clock;
  centre_answer(piece, call);
}

/* -- life */

static int check_request(const struct trm_strategy *s)
{
  TRM_CHECK(centre_check(s, false));
  if (s->optimizer->clip > 0)
    return trm_error(TRM_USAGE, "optim.clip: it needs the norm of all workers' gradients together, and %s adds them up "
                     "piece by piece, as they come", s->ops->name);
  return TRM_OK;
}

static void ssp_destroy(struct trm_strategy *s)
{
  struct ssp *own = worker_of(s)->own;
  if (own->gradient)
    s->device->ops->release(s->device, own->gradient);
  trm_free(own->rate);
  trm_free(own->clock);
  worker_destroy(s);
}

static int create(struct trm_strategy *s, bool eager)
{
  TRM_CHECK(check_request(s));
  const size_t slack = slack_of(s), room = smallest_piece(s);
  const int passing = (int)(slack + 1) * workers_of(s) + (int)((slack + 2 + room - 1) / room);
  const struct worker_plan plan = {
    .centre = true,
    .arrays = 1 + s->optimizer->states + passing,
    .passing = passing,
    .function = serve,
    .each = true,
  };
  TRM_CHECK(worker_create(s, &plan, sizeof(struct ssp)));
  struct worker *w = worker_of(s);
  struct ssp *own = w->own;
  own->eager = eager;
  own->clock = trm_alloc(service_pieces(w->service) * sizeof *own->clock, "a worker");
  own->rate = trm_alloc(slack * sizeof *own->rate, "a worker");
  void *memory = NULL;
  int status = TRM_OK;
  if (slack > 0 && w->number >= 0)
    status = s->device->ops->alloc(s->device, slack * s->elements * sizeof(float), "a worker's own gradients", &memory);
  own->gradient = memory;
  status = trm_agree(s->comm, status);
  if (status != TRM_OK)
    ssp_destroy(s);
  return status;
}

static int ssp_create(struct trm_strategy *s)
{
  return create(s, false);
}

static int essp_create(struct trm_strategy *s)
{
  return create(s, true);
}

/* -- a worker */

/* The clock of the batch at hand. */
static int64_t clock_now(const struct trm_strategy *s)
{
  return worker_of(s)->claims.next - 1;
}

/* The clock of the oldest piece of the weights in use. */
static int64_t oldest(struct worker *w)
{
  int64_t least = w->seen[0];
  for (size_t i = 1; i < service_pieces(w->service); i++)
    least = w->seen[i] < least ? w->seen[i] : least;
  return least;
}

/* Until every piece of the centre has the updates of all clocks before `needed`. While one has not, that one alone is
 * looked at. */
static void await_clock(struct trm_strategy *s, int64_t needed)
{
  struct worker *w = worker_of(s);
  struct ssp *own = w->own;
  const size_t pieces = service_pieces(w->service);
  const double before = s->comm->ops->clock(s->comm);
  bool waiting = false;
  for (size_t i = 0; i < pieces;) {
    if (own->clock[i] >= (double)needed) {
      waiting = false;
      i++;
      continue;
    }
    const struct service_request look = {
      .kind = LOOK, .first = i, .last = waiting ? i + 1 : pieces, .each = own->clock};
    service_exchange(w->service, &look);
    waiting = true;
    s->comm->ops->idle(s->comm, before);
  }
  s->wait_s += s->comm->ops->clock(s->comm) - before;
}

/* The worker's own gradients of clocks [from, clock), on one piece of its weights. */
static void apply_own(struct trm_strategy *s, size_t piece, int64_t from, int64_t clock)
{
  const struct ssp *own = worker_of(s)->own;
  const size_t low = piece * SERVICE_PIECE, left = s->elements - low, n = left < SERVICE_PIECE ? left : SERVICE_PIECE;
  for (int64_t c = from; c < clock; c++) {
    const size_t slot = (size_t)c % slack_of(s);
    centre_add(s, -own->rate[slot], 1, low, n, s->w + low, own->gradient + slot * s->elements + low);
  }
}

static int ssp_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const struct ssp *own = w->own;
  const int64_t clock = clock_now(s), needed = clock - (int64_t)slack_of(s);
  const bool reads = own->eager || !w->fresh || oldest(w) < needed;
  if (reads) {
    await_clock(s, needed);
    worker_exchange(s, CENTRE_PULL, NULL, NULL, s->w, false);
  }
  for (size_t i = 0; i < service_pieces(w->service); i++)
    apply_own(s, i, reads ? w->seen[i] : clock - 1, clock);
  w->fresh = true;
  return TRM_OK;
}

static int ssp_step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct worker *w = worker_of(s);
  struct ssp *own = w->own;
  const int64_t clock = clock_now(s);
  const double value[SERVICE_VALUES] = {[CENTRE_RATE] = rate, [CLOCK] = (double)clock};
  const int status = worker_check(s, tally);
  worker_exchange(s, CENTRE_PUSH, value, status == TRM_OK ? s->g : NULL, NULL, false);
  TRM_CHECK(status);
  trm_staleness_add(&w->staleness, (uint64_t)(clock - oldest(w)));
  if (own->gradient) {
    const size_t slot = (size_t)clock % slack_of(s);
    s->device->ops->copy(s->device, own->gradient + slot * s->elements, s->g, s->elements * sizeof(float));
    own->rate[slot] = rate;
  }
  return TRM_OK;
}

/* Whatever method wrote the checkpoint: batches and clocks are the same here. */
static int ssp_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct ssp *own = w->own;
  TRM_CHECK(centre_restore(s, from, updates));
  service_set_clocks(w->service, (int64_t)updates);
  memset(own->clock, 0, service_pieces(w->service) * sizeof *own->clock);
  memset(w->seen, 0, service_pieces(w->service) * sizeof *w->seen);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_ssp = {
  .name = "ssp",
  .help = "workers may be some batches apart; weights are read anew when they are too old",
  .create = ssp_create,
  .claim = worker_claim,
  .before_forward = ssp_before_forward,
  .step = ssp_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = ssp_restore,
  .destroy = ssp_destroy,
};

const struct trm_strategy_ops trm_strategy_essp = {
  .name = "essp",
  .help = "workers may be some batches apart; weights are read anew before every batch",
  .create = essp_create,
  .claim = worker_claim,
  .before_forward = ssp_before_forward,
  .step = ssp_step,
  .settle = centre_settle,
  .collect = centre_collect,
  .restore = ssp_restore,
  .destroy = ssp_destroy,
};
