/* Ringleader ASGD (Maranjyan & Richtarik 2026), Malenia SGD, and incremental aggregated ASGD: every update takes the
 * mean over a table that has a gradient of each of the n workers, so that the fast ones do not count more. That matters
 * where workers have different data (strategy.data=static; the methods work with dynamic batches, too).
 *
 * Ringleader's table has a running mean of each worker's gradients, all at the same weights. A round has two phases:
 *
 *   1  gradients are collected until every worker has given one; the weights do not change
 *   2  n updates w -= rate * mean of the n means, one for each worker: the first by the worker that ended phase 1, the
 *      others by the next gradient of each, which is part of its mean. With its update a worker gets the new weights;
 *      its gradients after that are collected in a second table, which is the next round's.
 *
 * A worker computes at the same weights until its next update. So none of the gradients in an update has missed more
 * than 2 n - 2 updates (lemma of the paper), however slow a worker is.
 *
 * Malenia SGD (Tyurin & Richtarik 2023) has phase 1 alone: the gradient that completes the table ends in an update by the
 * mean of the means, and the table is empty again. Gradients of older weights are dropped, and the staleness tells how
 * many. Every gradient's worker gets the current weights.
 *
 * Incremental aggregation (iaasgd) has the latest gradient of each worker. From when all have given one, every arrival
 * replaces its worker's gradient, is an update by the mean of the n, and gets the new weights.
 *
 * One worker is serial training. The optimizer's rule gets the mean, at the rate of the latest gradient. A chunk of the
 * server is such a server for itself. The tables are arrays of the server: 2 n + 2 times the model, n + 1 with the others;
 * checkpoints keep them for runs with the same number of ranks. At a quiesce point all workers get the current weights.
 * A worker that fails gives nothing more: Ringleader and Malenia make no update without it. */
#include <string.h>

#include "core/status.h"
#include "mpi/strategies.h"
#include "mpi/async/server_weights.h"

/* A gradient of the call, clipped; statistics are not. */
struct table_gradient {
  const float *g;
  float scale;
  size_t trained; /* of the chunk's elements, the first */
};

static struct table_gradient ringleader_gradient(const struct trm_strategy *s, const struct server_chunk *chunk,
                                                 const struct server_call *call)
{
  return (struct table_gradient){
    call->in, (float)call->value[SERVER_SCALE], server_weights_trained(s, chunk->low, chunk->n)};
}

static inline float ringleader_element(const struct table_gradient *of, size_t i)
{
  return i < of->trained ? of->scale * of->g[i] : of->g[i];
}

/* Arrays after the optimizer's: of each table its mean, then the row of each worker. */
static float *ringleader_mean(const struct trm_strategy *s, const struct server_chunk *chunk, int table)
{
  return server_array(chunk, 1 + s->optimizer->states + table * (1 + worker_count(s)));
}

static float *ringleader_row(const struct trm_strategy *s, const struct server_chunk *chunk, int table, int worker)
{
  return server_array(chunk, 1 + s->optimizer->states + table * (1 + worker_count(s)) + 1 + worker);
}

static void ringleader_update(const struct trm_strategy *s, const struct server_chunk *chunk,
                              const struct server_call *call, int table)
{
  const struct trm_update rule = server_weights_rule(s, call->value[SERVER_RATE], 1);
  server_weights_update(s, chunk, rule, ringleader_mean(s, chunk, table));
}

/* -- Ringleader */

/* method_state. TABLE: 0 or 1, that of this round. UPDATES: left in phase 2; 0: phase 1. Then a number for each worker
 * whether it has made its update of the round; gradients in its row of table 0; and of table 1. */
enum ringleader_state { TABLE, UPDATES, WORKERS };

static double *ringleader_has_updated(const struct server_chunk *chunk, int worker)
{
  return &chunk->method_state[WORKERS + worker];
}

static double *ringleader_count(const struct trm_strategy *s, const struct server_chunk *chunk, int table, int worker)
{
  return &chunk->method_state[WORKERS + (1 + table) * worker_count(s) + worker];
}

/* Adds the gradient to its worker's running mean, and the change to the mean of the table. */
static void ringleader_collect(const struct trm_strategy *s, const struct server_chunk *chunk,
                               const struct server_call *call, int table)
{
  const struct table_gradient of = ringleader_gradient(s, chunk, call);
  const float count = (float)++*ringleader_count(s, chunk, table, call->caller), workers = (float)worker_count(s);
  float *mean = ringleader_mean(s, chunk, table), *row = ringleader_row(s, chunk, table, call->caller);
  for (size_t i = 0; i < chunk->n; i++) {
    const float change = (ringleader_element(&of, i) - row[i]) / count;
    row[i] += change;
    mean[i] += change / workers;
  }
  trm_strategy_pass_time(s, 5 * chunk->n);
}

static bool ringleader_is_full(const struct trm_strategy *s, const struct server_chunk *chunk, int table)
{
  for (int k = 0; k < worker_count(s); k++)
    if (*ringleader_count(s, chunk, table, k) == 0)
      return false;
  return true;
}

/* The next round has the other table; this round's becomes empty. */
static void ringleader_end_round(const struct trm_strategy *s, const struct server_chunk *chunk, int table)
{
  const int workers = worker_count(s);
  for (int k = 0; k < workers; k++) {
    *ringleader_has_updated(chunk, k) = *ringleader_count(s, chunk, table, k) = 0;
    s->device->ops->fill(s->device, ringleader_row(s, chunk, table, k), 0, chunk->n);
  }
  s->device->ops->fill(s->device, ringleader_mean(s, chunk, table), 0, chunk->n);
  chunk->method_state[TABLE] = 1 - table;
}

/* Returns true if the worker gets new weights. */
static bool ringleader_receive(const struct trm_strategy *s, const struct server_chunk *chunk,
                               const struct server_call *call)
{
  const int table = (int)chunk->method_state[TABLE];
  double *updates = &chunk->method_state[UPDATES];
  const bool collects = *updates == 0;
  const bool next_round = !collects && *ringleader_has_updated(chunk, call->caller) > 0;
  ringleader_collect(s, chunk, call, next_round ? 1 - table : table);
  if (collects && ringleader_is_full(s, chunk, table))
    *updates = worker_count(s);
  if (next_round || *updates == 0) {
    snapshots_count(s, chunk, 1);
    return false;
  }
  ringleader_update(s, chunk, call, table);
  *ringleader_has_updated(chunk, call->caller) = 1;
  if (--*updates == 0)
    ringleader_end_round(s, chunk, table);
  return true;
}

/* per_chunk: 1 if the reply has new weights; otherwise it has none. */
static bool ringleader_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const bool replies = call->kind == SERVER_PULL || ringleader_receive(context, chunk, call);
  if (replies)
    server_weights_reply(context, chunk, call);
  call->per_chunk = replies;
  return true;
}

struct ringleader {
  float *reply;    /* (elements) */
  int64_t *seen;   /* (chunks) clocks of the reply */
  double *renewed; /* (chunks) 1: the reply has new weights */
};

static int ringleader_create(struct trm_strategy *s)
{
  const int workers = worker_count(s);
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 2 * (1 + workers),
    .method_states = WORKERS + 3 * workers,
    .handler = ringleader_serve,
  };
  TRM_CHECK(worker_create(s, &plan, sizeof(struct ringleader)));
  struct worker *w = worker_of(s);
  struct ringleader *r = w->method;
  const size_t chunks = param_server_chunks(w->server);
  r->seen = worker_alloc(s, chunks * sizeof *r->seen);
  r->renewed = worker_alloc(s, chunks * sizeof *r->renewed);
  return trm_agree(s->comm, worker_array(s, s->elements, NULL, &r->reply));
}

/* SERVER_PUSH of s->g; the chunks of w that the reply has become the server weights. */
static void ringleader_push(struct trm_strategy *s, double rate, double scale)
{
  struct worker *w = worker_of(s);
  struct ringleader *r = w->method;
  const size_t chunks = param_server_chunks(w->server);
  const struct server_request request = {.kind = SERVER_PUSH,
                                         .value = {[SERVER_RATE] = rate, [SERVER_SCALE] = scale},
                                         .per_chunk = r->renewed,
                                         .in = s->g,
                                         .out = r->reply,
                                         .seen = r->seen};
  memcpy(r->seen, w->seen, chunks * sizeof *r->seen);
  const double before = s->comm->ops->clock(s->comm);
  const int64_t staleness = param_server_exchange(w->server, &request);
  const double held_s = param_server_held_s(w->server);
  s->comm_s += s->comm->ops->clock(s->comm) - before - held_s;
  s->wait_s += held_s;
  trm_staleness_add(&w->staleness, (uint64_t)staleness);
  for (size_t i = 0; i < chunks; i++)
    if (r->renewed[i] > 0) {
      memcpy(s->w + i * SERVER_CHUNK, r->reply + i * SERVER_CHUNK, server_chunk_size(s->elements, i) * sizeof *s->w);
      w->seen[i] = r->seen[i];
    }
}

static int ringleader_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  double scale;
  TRM_CHECK(server_weights_prepare(s, sums, &scale));
  ringleader_push(s, rate, scale);
  return TRM_OK;
}

/* -- Malenia. method_state is Ringleader's, of which it has the counts of table 0. */

static bool ringleader_serve_malenia(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  const bool pushes = call->kind == SERVER_PUSH, collects = pushes && call->staleness == 0;
  if (collects)
    ringleader_collect(s, chunk, call, 0);
  if (collects && ringleader_is_full(s, chunk, 0)) {
    ringleader_update(s, chunk, call, 0);
    ringleader_end_round(s, chunk, 0);
  } else if (pushes)
    snapshots_count(s, chunk, 1);
  server_weights_reply(s, chunk, call);
  return true;
}

static int ringleader_create_malenia(struct trm_strategy *s)
{
  const int workers = worker_count(s);
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 1 + workers,
    .method_states = WORKERS + 2 * workers,
    .handler = ringleader_serve_malenia,
  };
  return worker_create(s, &plan, 0);
}

/* -- incremental aggregation */

/* method_state. ROWS: that are not empty. CHANGES: of rows since the mean was computed. Then a number for each worker:
 * its row is not empty. */
enum iaasgd_state { ROWS, CHANGES, HAS_ROW };

/* The mean follows the rows; every n changes it is computed afresh, so that rounding does not add up. */
static void ringleader_replace_iaasgd(const struct trm_strategy *s, const struct server_chunk *chunk,
                                      const struct server_call *call)
{
  const struct table_gradient of = ringleader_gradient(s, chunk, call);
  const int workers = worker_count(s);
  float *mean = ringleader_mean(s, chunk, 0), *row = ringleader_row(s, chunk, 0, call->caller);
  for (size_t i = 0; i < chunk->n; i++) {
    const float g = ringleader_element(&of, i);
    mean[i] += (g - row[i]) / (float)workers;
    row[i] = g;
  }
  trm_strategy_pass_time(s, 5 * chunk->n);
  if (++chunk->method_state[CHANGES] < workers)
    return;
  chunk->method_state[CHANGES] = 0;
  s->device->ops->fill(s->device, mean, 0, chunk->n);
  for (int k = 0; k < workers; k++)
    server_weights_axpy(s, 1.0 / workers, chunk->n, mean, ringleader_row(s, chunk, 0, k));
}

static bool ringleader_serve_iaasgd(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  if (call->kind == SERVER_PUSH) {
    double *has_row = &chunk->method_state[HAS_ROW + call->caller];
    ringleader_replace_iaasgd(s, chunk, call);
    chunk->method_state[ROWS] += *has_row == 0;
    *has_row = 1;
    if (chunk->method_state[ROWS] < worker_count(s))
      snapshots_count(s, chunk, 1);
    else
      ringleader_update(s, chunk, call, 0);
  }
  server_weights_reply(s, chunk, call);
  return true;
}

static int ringleader_create_iaasgd(struct trm_strategy *s)
{
  const int workers = worker_count(s);
  const struct worker_plan plan = {
    .centralized = true,
    .arrays = 1 + s->optimizer->states + 1 + workers,
    .method_states = HAS_ROW + workers,
    .handler = ringleader_serve_iaasgd,
  };
  return worker_create(s, &plan, 0);
}

const struct trm_strategy_ops trm_strategy_ringleader = {
  .name = "ringleader",
  .help = "rounds of one update a worker, by the mean of all workers' gradients (Ringleader ASGD)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = ringleader_create,
  .before_forward = server_weights_before_forward,
  .step = ringleader_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};

const struct trm_strategy_ops trm_strategy_malenia = {
  .name = "malenia",
  .help = "an update when all workers have given gradients of the current weights, by their mean (Malenia SGD)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = ringleader_create_malenia,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};

const struct trm_strategy_ops trm_strategy_iaasgd = {
  .name = "iaasgd",
  .help = "every gradient is an update by the mean of all workers' latest (incremental aggregated)",
  .takes = TRM_TAKES_ALL & ~(TRM_TAKES_TAU | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE),
  SERVER_WEIGHTS_SLOTS,
  .create = ringleader_create_iaasgd,
  .before_forward = server_weights_before_forward,
  .step = server_weights_step,
  .restore = server_weights_restore,
  .destroy = worker_destroy,
};
