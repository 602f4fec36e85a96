/* Stale synchronous parallel (Ho et al. 2013), and its eager form (Dai et al. 2015).
 *
 * Every worker computes its shard of every batch, and the batches are its clock. A worker may be `strategy.slack` = s
 * clocks ahead of the slowest: clock c begins with weights that have the updates of all clocks before c - s, and the
 * worker's own gradients since. With s = 0 this is synchronous SGD, bit for bit where the ranks share a node.
 *
 * The server keeps each worker's gradients of the clocks in flight. When the last one of a clock has arrived they are
 * added in the fixed tree over the workers, as in the synchronous method, and the optimizer makes one update. So
 * momentum and Adam work as usual, and the order of arrival changes no bit of any version of the weights.
 *
 *   ssp    reads weights when its copy has become too old; the server holds the reply back until they are new enough
 *   essp   servers send weights when a clock is complete: a worker has a call in progress for weights that are newer
 *          than its own, which the server holds back until there are such; when they have arrived, the worker's next
 *          batch begins with them, and it makes the next call. It waits only if its weights have become too old. So a
 *          batch has no round trip of a read, and a server that is busy skips clocks. With s > 0 a worker does not wait
 *          for the answer to a push either, before its next push. Chunks in memory that it shares with their owner are
 *          read before every batch.
 *
 * A worker also sees its own gradients: to weights of clock v it applies the optimizer's rule with those of clocks v,
 * v + 1, .. as if the other workers' gradients, which are not known yet, were 0. With a rule with states a reply has
 * these, of the same clock, after the weights. Staleness is the clock of a gradient less that of its weights.
 *
 * Memory: (s + 1) arrays of the model's size per worker on the server; at each worker s more, and one for each state of
 * the rule; and those of a reply, if the rule has states or servers send weights. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/server_weights.h"
#include "mpi/strategies.h"

/* of a gradient; that the weights must have at least (there is no clipping) */
enum value { CLOCK = SERVER_SCALE };
/* essp: calls in progress on a chunk */
enum slot { PUSH_SLOT, REQUEST_SLOT, SLOTS };

struct ssp {
  float *gradient; /* device, (slack, elements) of this worker; row c % slack is that of clock c */
  double *rate;    /* (slack) rate of each gradient */
  struct trm_optimizer own; /* for own steps: without average, and without statistics, which training does not read */
  float *state[TRM_MAX_STATES - 1]; /* device, (elements) each: the rule's, as of the weights */
  float *reply;    /* device, (chunks; reply arrays, n); NULL: replies go to the weights */
  bool *requested; /* (chunks) essp: weights are requested that have not been taken */
};

static size_t ssp_slack(const struct trm_strategy *s)
{
  return (size_t)s->options->slack;
}

static bool ssp_is_eager(const struct trm_strategy *s)
{
  return s->ops == &trm_strategy_essp;
}

/* Weights, and for own steps the rule's states; an average comes after these. */
static int ssp_reply_arrays(const struct trm_strategy *s)
{
  return 1 + (ssp_slack(s) > 0 ? s->optimizer->states - (s->optimizer->ema > 0) : 0);
}

/* -- the server. Arrays after the optimizer's: slack + 1 slots of a gradient for each worker; then arrays of counters,
 * each with as many as the smallest chunk has elements. */

static float *ssp_gradient(const struct trm_strategy *s, const struct server_chunk *chunk, size_t slot, int worker)
{
  return server_array(chunk, 1 + s->optimizer->states + (int)slot * worker_count(s) + worker);
}

static size_t ssp_smallest_chunk(const struct trm_strategy *s)
{
  const size_t rest = s->elements % SERVER_CHUNK;
  return rest > 0 ? rest : SERVER_CHUNK;
}

/* Counters 0..slack: gradients that have arrived in each slot. Counter slack + 1: not 0 if a loss was not finite. */
static float *ssp_counter(const struct trm_strategy *s, const struct server_chunk *chunk, size_t number)
{
  const size_t per_chunk = ssp_smallest_chunk(s);
  return ssp_gradient(s, chunk, ssp_slack(s) + 1, (int)(number / per_chunk)) + number % per_chunk;
}

/* Updates the chunk by the gradients of one clock, which have all arrived. */
static void ssp_update(const struct trm_strategy *s, const struct server_chunk *chunk, size_t slot, double rate)
{
  const int workers = worker_count(s);
  const float **from = trm_alloc((size_t)workers * sizeof *from, "gradients");
  for (int i = 0; i < workers; i++)
    from[i] = ssp_gradient(s, chunk, slot, i);
  float *sum = ssp_gradient(s, chunk, slot, 0);
  s->device->ops->sum(s->device, &(struct trm_sum){.to = sum, .from = from, .count = workers, .n = chunk->n});
  trm_free(from);
  server_weights_update(s, chunk, server_weights_rule(s, rate, 1), sum);
}

/* Workers send their clocks in order, so clocks are completed in order. After a failure clocks advance, so that no
 * worker waits forever, but the weights no longer change. */
static void ssp_receive(const struct trm_strategy *s, const struct server_chunk *chunk, const struct server_call *call)
{
  const size_t slack = ssp_slack(s), slot = (size_t)call->value[CLOCK] % (slack + 1);
  float *received = ssp_counter(s, chunk, slot), *failed = ssp_counter(s, chunk, slack + 1);
  if (call->in) {
    memcpy(ssp_gradient(s, chunk, slot, call->caller), call->in, chunk->n * sizeof(float));
    trm_strategy_pass_time(s, 2 * chunk->n);
  } else {
    *failed = 1;
  }
  if (++*received < (float)worker_count(s))
    return;
  *received = 0;
  if (*failed == 0)
    ssp_update(s, chunk, slot, call->value[SERVER_RATE]);
  else
    ++*chunk->clock;
}

static bool ssp_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH) {
    ssp_receive(s, chunk, call);
    return true;
  }
  if ((double)*chunk->clock < call->value[CLOCK])
    return false;
  for (int i = 0; i < ssp_reply_arrays(s); i++)
    memcpy(call->out + (size_t)i * chunk->n, server_array(chunk, i), chunk->n * sizeof(float));
  trm_strategy_pass_time(s, 2 * (size_t)ssp_reply_arrays(s) * chunk->n);
  return true;
}

/* -- creation */

static bool ssp_has_remote_chunks(struct worker *w)
{
  for (size_t i = 0; i < param_server_chunks(w->server); i++)
    if (!param_server_runs_calls(w->server, 0, i))
      return true;
  return false;
}

/* Arrays of a worker. */
static int ssp_create_own(struct trm_strategy *s)
{
  struct ssp *ssp = worker_of(s)->method;
  const size_t slack = ssp_slack(s), arrays = (size_t)ssp_reply_arrays(s);
  if (arrays > 1 || (ssp_is_eager(s) && ssp_has_remote_chunks(worker_of(s))))
    TRM_CHECK(worker_array(s, arrays * s->elements, NULL, &ssp->reply));
  if (slack == 0)
    return TRM_OK;
  ssp->own = *s->optimizer;
  ssp->own.states = (int)arrays - 1;
  ssp->own.ema = 0;
  ssp->own.statistics = 0;
  for (int i = 0; i < ssp->own.states; i++)
    TRM_CHECK(worker_array(s, s->elements, NULL, &ssp->state[i]));
  return worker_array(s, slack * s->elements, NULL, &ssp->gradient);
}

static void ssp_drain(struct trm_strategy *s);

static int ssp_create(struct trm_strategy *s)
{
  const size_t slack = ssp_slack(s), per_chunk = ssp_smallest_chunk(s);
  const int transient = (int)(slack + 1) * worker_count(s) + (int)((slack + 2 + per_chunk - 1) / per_chunk);
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + transient,
    .transient = transient,
    .reply_arrays = ssp_reply_arrays(s),
    .slots = ssp_is_eager(s) ? SLOTS : 0,
    .handler = ssp_serve,
    .splits_batch = true,
    .drain = ssp_is_eager(s) ? ssp_drain : NULL,
  };
  TRM_CHECK(worker_create(s, &plan, sizeof(struct ssp)));
  struct worker *w = worker_of(s);
  struct ssp *ssp = w->method;
  ssp->rate = worker_alloc(s, slack * sizeof *ssp->rate);
  ssp->requested = worker_alloc(s, param_server_chunks(w->server) * sizeof *ssp->requested);
  return trm_agree(s->comm, w->number >= 0 ? ssp_create_own(s) : TRM_OK);
}

/* -- a worker */

/* The clock of this worker's current batch. */
static int64_t ssp_clock(const struct trm_strategy *s)
{
  return worker_of(s)->assignment.next - 1;
}

/* Of `gradient`. */
static size_t ssp_row(const struct trm_strategy *s, int64_t clock)
{
  return ssp_slack(s) > 0 ? (size_t)clock % ssp_slack(s) : 0;
}

/* The clock of the oldest chunk of this worker's weights. */
static int64_t ssp_oldest_clock(struct worker *w)
{
  int64_t min = w->seen[0];
  for (size_t i = 1; i < param_server_chunks(w->server); i++)
    min = w->seen[i] < min ? w->seen[i] : min;
  return min;
}

/* Applies the worker's own gradients of clocks [from, clock) to one chunk of its weights. */
static void ssp_apply_own(struct trm_strategy *s, size_t chunk, int64_t from, int64_t clock)
{
  const struct ssp *ssp = worker_of(s)->method;
  const size_t low = chunk * SERVER_CHUNK;
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < ssp->own.states; i++)
    state[i] = ssp->state[i] + low;
  const struct trm_update_interval to = {low, server_chunk_size(s->elements, chunk), s->w + low, state, NULL};
  for (int64_t c = from; c < clock; c++) {
    const size_t row = ssp_row(s, c);
    struct trm_update update = server_weights_rule(s, ssp->rate[row], 1);
    update.step = (uint64_t)c + 1;
    trm_optimizer_apply(&ssp->own, s->device, &update, NULL, &to, ssp->gradient + row * s->elements + low);
  }
}

/* Copies a chunk of the reply to weights and states. */
static void ssp_copy(struct trm_strategy *s, size_t chunk)
{
  const struct ssp *ssp = worker_of(s)->method;
  const size_t low = chunk * SERVER_CHUNK, n = server_chunk_size(s->elements, chunk);
  const float *from = ssp->reply + low * (size_t)ssp_reply_arrays(s);
  s->device->ops->copy(s->device, s->w + low, from, n * sizeof *from);
  for (int i = 0; i < ssp->own.states; i++)
    s->device->ops->copy(s->device, ssp->state[i] + low, from + (size_t)(1 + i) * n, n * sizeof *from);
}

/* Counts the time since `before`; of that `held_s` at most is waiting for other workers. */
static void ssp_count_time(struct trm_strategy *s, double before, double held_s)
{
  const double seconds = s->comm->ops->clock(s->comm) - before, wait_s = fmin(seconds, held_s);
  s->wait_s += wait_s;
  s->comm_s += seconds - wait_s;
}

/* Reads weights of clock `needed` or later. essp: chunks on which this rank runs calls itself. */
static void ssp_read(struct trm_strategy *s, int64_t needed)
{
  struct worker *w = worker_of(s);
  const struct ssp *ssp = w->method;
  const bool copies = ssp_reply_arrays(s) > 1;
  const struct server_request request = {
    .kind = SERVER_PULL,
    .direct = ssp_is_eager(s),
    .value = {[CLOCK] = (double)needed},
    .out = copies ? ssp->reply : s->w,
    .seen = w->seen,
  };
  const double before = s->comm->ops->clock(s->comm);
  param_server_exchange(w->server, &request);
  ssp_count_time(s, before, param_server_held_s(w->server));
  for (size_t i = 0; copies && i < param_server_chunks(w->server); i++)
    if (!request.direct || param_server_runs_calls(w->server, 0, i))
      ssp_copy(s, i);
}

static int ssp_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const int64_t clock = ssp_clock(s), needed = clock - (int64_t)ssp_slack(s);
  const bool reads = !w->fresh || ssp_oldest_clock(w) < needed;
  if (reads)
    ssp_read(s, needed);
  for (size_t i = 0; i < param_server_chunks(w->server); i++)
    ssp_apply_own(s, i, reads ? w->seen[i] : clock - 1, clock);
  w->fresh = true;
  return TRM_OK;
}

/* -- essp */

/* Pushes go on while the worker does. */
static bool ssp_begins_pushes(const struct trm_strategy *s)
{
  return ssp_is_eager(s) && ssp_slack(s) > 0;
}

/* Requests weights of this clock or later for a chunk. */
static void ssp_request(struct trm_strategy *s, size_t chunk, int64_t clock)
{
  struct worker *w = worker_of(s);
  struct ssp *ssp = w->method;
  const struct server_request request = {
    .kind = SERVER_PULL, .first = chunk, .last = chunk + 1, .value = {[CLOCK] = (double)clock}, .out = ssp->reply};
  param_server_begin(w->server, &request, REQUEST_SLOT);
  ssp->requested[chunk] = true;
}

static void ssp_wait(struct trm_strategy *s, enum slot slot)
{
  struct worker *w = worker_of(s);
  const double before = s->comm->ops->clock(s->comm);
  double held_s = 0;
  for (size_t i = 0; i < param_server_chunks(w->server); i++) {
    int64_t answered;
    param_server_end(w->server, slot, i, true, &answered);
    held_s = fmax(held_s, param_server_held_s(w->server));
  }
  ssp_count_time(s, before, held_s);
}

/* Before a quiesce point. */
static void ssp_drain(struct trm_strategy *s)
{
  struct ssp *ssp = worker_of(s)->method;
  ssp_wait(s, PUSH_SLOT);
  ssp_wait(s, REQUEST_SLOT);
  memset(ssp->requested, 0, param_server_chunks(worker_of(s)->server) * sizeof *ssp->requested);
}

static bool ssp_has_arrived(struct trm_strategy *s, size_t chunk)
{
  struct worker *w = worker_of(s);
  int64_t answered;
  return call_order_arrived(w->order, !call_order_is_followed(w->order) &&
                                        param_server_end(w->server, REQUEST_SLOT, chunk, false, &answered));
}

/* Takes the weights of a chunk that were requested; *clock: theirs. */
static void ssp_take(struct trm_strategy *s, size_t chunk, int64_t *clock)
{
  struct worker *w = worker_of(s);
  struct ssp *ssp = w->method;
  const double before = s->comm->ops->clock(s->comm);
  param_server_end(w->server, REQUEST_SLOT, chunk, true, clock);
  ssp_count_time(s, before, param_server_held_s(w->server));
  ssp_copy(s, chunk);
  ssp->requested[chunk] = false;
}

/* A chunk of another node. A worker requests what is newer than it has seen: if it must wait, this is new enough. */
static void ssp_renew(struct trm_strategy *s, size_t chunk, int64_t clock)
{
  struct worker *w = worker_of(s);
  struct ssp *ssp = w->method;
  const bool must = !w->fresh || w->seen[chunk] < clock - (int64_t)ssp_slack(s);
  const bool takes = must || (ssp->requested[chunk] && ssp_has_arrived(s, chunk));
  if (takes)
    ssp_take(s, chunk, &w->seen[chunk]);
  ssp_apply_own(s, chunk, takes ? w->seen[chunk] : clock - 1, clock);
  if (!ssp->requested[chunk] && (uint64_t)clock + 1 < w->assignment.end)
    ssp_request(s, chunk, w->seen[chunk] + 1);
}

static int ssp_eager_before_forward(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const int64_t clock = ssp_clock(s);
  const size_t chunks = param_server_chunks(w->server);
  for (size_t i = 0; i < chunks && !w->fresh; i++)
    if (!param_server_runs_calls(w->server, 0, i))
      ssp_request(s, i, clock);
  ssp_read(s, clock - (int64_t)ssp_slack(s));
  for (size_t i = 0; i < chunks; i++)
    if (param_server_runs_calls(w->server, 0, i))
      ssp_apply_own(s, i, w->seen[i], clock);
    else
      ssp_renew(s, i, clock);
  w->fresh = true;
  return TRM_OK;
}

/* Sends this worker's gradient g (elements) of a clock; NULL: there is none, since its loss was not finite. */
static void ssp_push(struct trm_strategy *s, int64_t clock, double rate, const float *g)
{
  struct worker *w = worker_of(s);
  struct server_request request = {
    .kind = SERVER_PUSH, .value = {[SERVER_RATE] = rate, [CLOCK] = (double)clock}, .in = g};
  const double before = s->comm->ops->clock(s->comm);
  if (ssp_begins_pushes(s)) {
    param_server_begin(w->server, &request, PUSH_SLOT);
    request.direct = true;
  }
  param_server_exchange(w->server, &request);
  ssp_count_time(s, before, param_server_held_s(w->server));
}

static int ssp_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct worker *w = worker_of(s);
  struct ssp *ssp = w->method;
  const int64_t clock = ssp_clock(s);
  const size_t row = ssp_row(s, clock);
  const int status = worker_check(s, sums);
  float *g = s->g;
  if (ssp_begins_pushes(s))
    ssp_wait(s, PUSH_SLOT);
  if (ssp->gradient && status == TRM_OK) {
    g = ssp->gradient + row * s->elements;
    s->device->ops->copy(s->device, g, s->g, s->elements * sizeof *g);
    ssp->rate[row] = rate;
  }
  ssp_push(s, clock, rate, status == TRM_OK ? g : NULL);
  TRM_CHECK(status);
  trm_staleness_add(&w->staleness, (uint64_t)(clock - ssp_oldest_clock(w)));
  return TRM_OK;
}

/* Clocks are batches here, whichever method wrote the checkpoint. */
static int ssp_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  TRM_CHECK(server_weights_restore(s, from, updates));
  param_server_set_clocks(w->server, (int64_t)updates);
  memset(w->seen, 0, param_server_chunks(w->server) * sizeof *w->seen);
  return TRM_OK;
}

enum {
  SSP_TAKES = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_CLIP |
                                TRM_TAKES_OWN_BATCHES)
};

const struct trm_strategy_ops trm_strategy_ssp = {
  .name = "ssp",
  .help = "workers may be some batches apart; weights are read when they are too old",
  .takes = SSP_TAKES,
  SERVER_WEIGHTS_SLOTS,
  .create = ssp_create,
  .before_forward = ssp_before_forward,
  .step = ssp_step,
  .restore = ssp_restore,
  .destroy = worker_destroy,
};

const struct trm_strategy_ops trm_strategy_essp = {
  .name = "essp",
  .help = "workers may be some batches apart; servers send weights when a clock is complete",
  .takes = SSP_TAKES,
  SERVER_WEIGHTS_SLOTS,
  .create = ssp_create,
  .before_forward = ssp_eager_before_forward,
  .step = ssp_step,
  .restore = ssp_restore,
  .destroy = worker_destroy,
};
