#include "mpi/async/worker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/slowdown.h"
#include "train/stop.h"

/* -- creation */

static int worker_check_options(const struct trm_strategy *s)
{
  const struct trm_strategy_options *o = s->options;
  const int ranks = s->comm->size;
  if (o->servers >= ranks)
    return trm_error(TRM_USAGE, "strategy.servers: %lld of %d ranks leave no worker", (long long)o->servers, ranks);
  if (o->groups > ranks)
    return trm_error(TRM_USAGE, "strategy.groups: %lld groups of %d ranks", (long long)o->groups, ranks);
  return TRM_OK;
}

/* Sets the number and group of this rank's worker, and its shard of a batch. Servers are the last ranks. */
static void worker_assign_roles(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const size_t rank = (size_t)s->comm->rank, workers = (size_t)worker_count(s);
  const bool groups = (s->ops->takes & TRM_TAKES_GROUPS) && s->options->groups > 0 && !w->plan.groups_of_workers;
  w->workers = groups ? (int)s->options->groups : (int)workers;
  w->number = rank < workers ? (int)(((rank + 1) * (size_t)w->workers - 1) / workers) : -1; /* inverse of trm_interval */
  w->group = s->comm->ops->split(s->comm, w->number >= 0 ? w->number : w->workers + (int)rank, 0);
  const bool splits_batch = w->plan.splits_batch && w->number >= 0;
  s->batch_shard = splits_batch ? w->number : w->group->rank;
  s->batch_shards = splits_batch ? w->workers : w->group->size;
}

int worker_array(struct trm_strategy *s, size_t elements, const char *name, float **array)
{
  struct worker *w = worker_of(s);
  void *memory;
  TRM_CHECK(s->device->ops->alloc(s->device, elements * sizeof(float), TRM_MEMORY_BUFFERS, &memory));
  w->array[w->arrays++] = *array = memory;
  return name ? trm_strategy_keep(s, name, memory, elements * sizeof(float)) : TRM_OK;
}

void *worker_alloc(struct trm_strategy *s, size_t bytes)
{
  struct worker *w = worker_of(s);
  return w->block[w->blocks++] = trm_alloc(bytes, "a worker");
}

static int worker_alloc_arrays(struct trm_strategy *s)
{
  static const char *const name[TRM_MAX_STATES - 1] = {"worker state 1", "worker state 2", "worker state 3"};
  struct worker *w = worker_of(s);
  TRM_CHECK(worker_array(s, s->elements, NULL, &s->g));
  if (w->plan.shared_weights)
    return TRM_OK;
  TRM_CHECK(worker_array(s, s->elements, w->plan.local ? "worker weights" : NULL, &s->w));
  TRM_CHECK(worker_array(s, s->elements, NULL, &s->eval_weights));
  for (int i = 0; w->plan.local && i < s->optimizer->states; i++)
    TRM_CHECK(worker_array(s, s->elements, name[i], &w->state[i]));
  return TRM_OK;
}

/* Registers the worker's local state for checkpoints. */
static int worker_keep_states(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const struct worker_plan *plan = &w->plan;
  if (s->staleness)
    TRM_CHECK(trm_strategy_keep(s, "staleness", s->staleness, sizeof *s->staleness));
  size_t bytes;
  void *data = param_server_local_states(w->server, &bytes);
  if (bytes > 0)
    TRM_CHECK(trm_strategy_keep(s, "clocks", data, bytes));
  /* without states that the checkpoint has as whole arrays */
  const int first = plan->centralized ? 1 + (plan->local ? 0 : s->optimizer->states) : 0, others = plan->arrays - first;
  data = param_server_local_arrays(w->server, first, &bytes);
  if (others <= plan->transient || bytes == 0)
    return TRM_OK;
  return trm_strategy_keep(s, "shared state", data, bytes / (size_t)others * (size_t)(others - plan->transient));
}

/* Gradients that strategy.batch divides a batch into. */
static int worker_parts(const struct trm_strategy *s)
{
  const struct worker *w = worker_of(s);
  if (w->plan.splits_batch || s->options->batch == TRM_BATCH_WORKER)
    return 1;
  if (s->options->batch == TRM_BATCH_GLOBAL)
    return w->workers;
  return w->plan.update_gradients > 0 ? w->plan.update_gradients : 1;
}

/* run.record, simulate.replay */
static int worker_create_order(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const struct trm_strategy_options *o = s->options;
  char run[256], nodes[32] = "";
  const bool by_node = w->plan.groups_of_workers && o->groups == 0;
  if ((w->plan.slots > 0 && o->servers == 0) || by_node) { /* other calls on chunks of the same node; other groups */
    int32_t count = w->node->rank == 0;
    s->comm->ops->allreduce(s->comm, &count, 1, TRM_INT32, TRM_SUM);
    snprintf(nodes, sizeof nodes, ", %d nodes", count);
  }
  snprintf(run, sizeof run, "trireme call order 2: strategy.name=%s, %d ranks, %lld servers, %d workers, %zu "
           "parameters, run.seed=%llu%s", s->ops->name, s->comm->size, (long long)o->servers, w->workers, s->elements,
           (unsigned long long)s->seed, nodes);
  const struct call_order_plan plan = {
    .comm = s->comm,
    .record = s->record,
    .replay = s->replay,
    .run = run,
    .replicas = w->plan.centralized ? 1 : s->comm->size,
    .chunks = server_chunks(s->elements),
    .timed = w->plan.timed,
  };
  return call_order_create(&w->order, &plan);
}

static int worker_create_assignment(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const struct trm_strategy_options *o = s->options;
  s->parts = worker_parts(s);
  w->assignment = (struct batch_assignment){
    .rule = o->data == TRM_ASSIGN_STATIC ? ASSIGN_STATIC : ASSIGN_DYNAMIC,
    .worker = w->number,
    .workers = w->workers,
    .parts = s->parts,
    .leader = w->number >= 0 && w->group->rank == 0,
    .order = w->order,
  };
  if (w->plan.splits_batch) {
    w->assignment.rule = ASSIGN_SPLIT;
    w->assignment.slack = (int)o->slack;
  }
  return batch_assignment_create(&w->assignment, s->comm, w->node, o->servers > 0 ? w->workers : 0);
}

static bool worker_is_dropped(const struct trm_strategy *s)
{
  const struct worker *w = worker_of(s);
  return w->stragglers && stragglers_end(w->stragglers);
}

static bool worker_abandons(const struct trm_strategy *s)
{
  const struct worker *w = worker_of(s);
  return worker_is_dropped(s) || (w->plan.abandons && w->plan.abandons(s));
}

/* strategy.stragglers=drop */
static int worker_create_stragglers(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const int servers = (int)s->options->servers;
  const bool drops = s->options->stragglers == TRM_STRAGGLERS_DROP;
  s->abandons = drops || w->plan.abandons ? worker_abandons : NULL;
  if (!drops)
    return TRM_OK;
  w->stragglers = worker_alloc(s, sizeof *w->stragglers);
  return stragglers_create(w->stragglers, s->comm, w->node, servers > 0 ? w->workers : 0, w->workers);
}

/* Centralized: adds arrays for the snapshots, which are empty at a quiesce point. Peers keep fewer: each has a copy of
 * its own. */
static void worker_limit_snapshots(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  if (w->plan.snapshot) {
    const int of_rank = TRM_MAX_SNAPSHOTS / s->comm->size, limit = of_rank > 4 ? of_rank : 4;
    s->snapshots = s->snapshots < limit ? s->snapshots : limit;
  }
  w->snapshots.max = s->snapshots;
  if (w->plan.centralized) {
    w->snapshots.array = w->plan.arrays;
    w->plan.arrays += s->snapshots;
    w->plan.transient += s->snapshots;
  }
}

int worker_create(struct trm_strategy *s, const struct worker_plan *plan, size_t method_bytes)
{
  TRM_CHECK(worker_check_options(s));
  struct trm_comm *all = s->comm;
  const struct trm_strategy_options *o = s->options;
  const enum trm_share share = s->parallel->share;
  struct worker *w = trm_alloc(sizeof *w, "a worker");
  s->impl = w;
  w->plan = *plan;
  w->node = share == TRM_SHARE_NONE ? all->ops->split(all, all->rank, 0) : all->ops->split_node(all, share);
  w->method = worker_alloc(s, method_bytes);
  worker_assign_roles(s);
  s->staleness = plan->no_staleness ? NULL : &w->staleness;

  TRM_CHECK(trm_agree(all, worker_alloc_arrays(s)));
  TRM_CHECK(worker_create_order(s));
  TRM_CHECK(worker_create_assignment(s));
  TRM_CHECK(worker_create_stragglers(s));
  worker_limit_snapshots(s);
  const struct server_plan server = {
    .comm = all,
    .node = w->node,
    .elements = s->elements,
    .replicas = plan->centralized ? 1 : all->size,
    .arrays = w->plan.arrays,
    .method_states = plan->method_states + plan->centralized, /* snapshot.c has the last */
    .reply_arrays = plan->reply_arrays,
    .slots = plan->slots,
    .servers = (int)o->servers,
    .timed = plan->timed,
    .handler = plan->handler,
    .context = s,
    .order = w->order,
  };
  TRM_CHECK(param_server_create(&w->server, &server));
  w->seen = worker_alloc(s, param_server_chunks(w->server) * sizeof *w->seen);
  return worker_keep_states(s);
}

void worker_destroy(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  param_server_free(w->server);
  batch_assignment_free(&w->assignment);
  if (w->stragglers)
    stragglers_free(w->stragglers);
  call_order_free(w->order);
  trm_free(s->undone);
  for (int i = 0; i < w->arrays; i++)
    s->device->ops->release(s->device, w->array[i]);
  for (int i = 0; i < w->blocks; i++)
    trm_free(w->block[i]);
  s->comm->ops->release(w->group);
  s->comm->ops->release(w->node);
  trm_free(w);
  s->impl = NULL;
}

/* -- batches */

/* Stops the assignment of batches, once before the next quiesce point. */
static void worker_announce_halt(struct trm_strategy *s, bool halt)
{
  struct worker *w = worker_of(s);
  if (halt && !w->halted) {
    call_order_halt(w->order);
    batch_assignment_halt(&w->assignment);
  }
  w->halted |= halt;
}

/* A signal to a dedicated server, not yet announced. */
static bool worker_stop_requested(void *context)
{
  const struct worker *w = context;
  return trm_stop_requested() && !w->halted;
}

/* Waits for the end of an outage. Returns false if the worker computes nothing before the next quiesce point. */
static bool worker_outlast_outage(struct trm_strategy *s)
{
  struct batch_assignment *assignment = &worker_of(s)->assignment;
  while (s->slowdown && trm_slowdown_is_out(s->slowdown)) {
    if (s->slowdown->failed || !batch_assignment_has_next(assignment))
      return false;
    trm_slowdown_rest(s->slowdown);
  }
  return true;
}

/* Peers: takes the snapshots that are due before this worker's batch. */
static void worker_take_snapshots(struct trm_strategy *s, uint64_t batch)
{
  struct snapshots *snapshots = &worker_of(s)->snapshots;
  for (; snapshots->taken < snapshots->count && snapshots->at[snapshots->taken] <= batch; snapshots->taken++)
    worker_of(s)->plan.snapshot(s);
}

/* Returns the part that is to be done by another worker, and tells how long the gradient took. */
static void worker_end_batch(struct trm_strategy *s, uint64_t end)
{
  struct worker *w = worker_of(s);
  const bool failed = s->slowdown && s->slowdown->failed;
  const bool restarts = s->abandoned && !failed && !worker_is_dropped(s) && w->plan.restart;
  if (s->abandoned && !restarts)
    batch_assignment_return(&w->assignment);
  if (w->stragglers && s->abandoned && !failed && !restarts)
    stragglers_dropped(w->stragglers, end);
  else if (w->stragglers)
    stragglers_done(w->stragglers, !restarts);
  if (restarts)
    w->plan.restart(s);
  s->abandoned = false;
}

/* Returns false if the worker computes nothing before the next quiesce point. */
static bool worker_may_compute(struct trm_strategy *s, uint64_t end)
{
  struct worker *w = worker_of(s);
  return !(w->stragglers && stragglers_leave_out(w->stragglers, end)) && worker_outlast_outage(s);
}

bool worker_next_batch(struct trm_strategy *s, uint64_t end, struct trm_batch_part *part)
{
  struct worker *w = worker_of(s);
  w->assignment.end = end;
  worker_announce_halt(s, s->halt);
  if (w->number < 0) {
    while (!param_server_serve(w->server, w->workers, worker_stop_requested, w))
      worker_announce_halt(s, true);
    return false;
  }
  worker_end_batch(s, end);
  struct trm_batch_part assigned = {.parts = 0};
  const bool computes = worker_may_compute(s, end);
  if (computes && w->assignment.leader && !batch_assignment_next(&w->assignment, &assigned))
    assigned.parts = 0;
  if (w->group->size > 1)
    w->group->ops->broadcast(w->group, &assigned, sizeof assigned, TRM_BYTE, 0);
  *part = assigned;
  if (assigned.parts == 0 && w->plan.drain)
    w->plan.drain(s);
  if (w->plan.snapshot)
    worker_take_snapshots(s, assigned.parts > 0 ? assigned.batch : UINT64_MAX);
  if (w->stragglers && assigned.parts > 0)
    stragglers_begin(w->stragglers);
  if (assigned.parts > 0)
    return true;
  if (w->stragglers)
    stragglers_wait(w->stragglers, computes);
  param_server_finish(w->server);
  return false;
}

void worker_quiesce(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  const double before = s->comm->ops->clock(s->comm);
  trm_free(s->undone);
  if (w->stragglers)
    stragglers_quiesce(w->stragglers, w->assignment.end, w->number >= 0 && !(s->slowdown && s->slowdown->failed));
  batch_assignment_quiesce(&w->assignment, &s->updates, &s->undone, &s->undones);
  if (w->number >= 0)
    s->wait_s += s->comm->ops->clock(s->comm) - before;
  if (w->order)
    call_order_quiesce(w->order, param_server_calls(w->server));
  s->straggler = w->stragglers && stragglers_leave_out(w->stragglers, w->assignment.end);
  snapshots_complete(s);
  w->fresh = w->halted = false;
}

void worker_restore(struct trm_strategy *s, uint64_t updates)
{
  struct worker *w = worker_of(s);
  s->updates = updates;
  batch_assignment_restart(&w->assignment, updates, s->undone, s->undones);
  s->undone = NULL;
  s->undones = 0;
  w->fresh = false;
}

int64_t worker_gradients(const struct trm_strategy *s, uint64_t updates)
{
  return (int64_t)updates * s->parts;
}

/* -- within a step */

int worker_check(struct trm_strategy *s, const struct trm_loss_sums *sums)
{
  struct worker *w = worker_of(s);
  double loss = sums->loss;
  w->group->ops->allreduce(w->group, &loss, 1, TRM_DOUBLE, TRM_SUM);
  if (isfinite(loss))
    return TRM_OK;
  return trm_error(TRM_FAILED, "the loss of worker %d is %s; its gradient is not part of the weights "
                   TRM_LOSS_NOT_FINITE, w->number, isnan(loss) ? "nan" : "inf");
}

struct trm_update worker_update(struct trm_strategy *s, double rate, uint64_t step)
{
  struct trm_update update = s->optimizer->update;
  update.rate = (float)rate;
  update.scale = 1;
  update.step = step;
  if (s->optimizer->clip > 0) {
    const size_t trained = trm_optimizer_trained(s->optimizer);
    update.scale = trm_clip_scale(s->optimizer, trm_device_norm_squared(s->device, s->g, trained));
  }
  return update;
}

void worker_apply(struct trm_strategy *s, const struct trm_update *update, size_t low, size_t n, float *w,
                  const float *g)
{
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < s->optimizer->states; i++)
    state[i] = worker_of(s)->state[i] + low;
  const struct trm_update_interval to = {low, n, w, state, NULL};
  trm_optimizer_apply(s->optimizer, s->device, update, NULL, &to, g);
}

void worker_apply_all(struct trm_strategy *s, const struct trm_update *update)
{
  worker_apply(s, update, 0, s->elements, s->w, s->g);
}

void worker_exchange(struct trm_strategy *s, int kind, const double value[SERVER_VALUES], const float *in, float *out,
                     bool counts)
{
  struct worker *w = worker_of(s);
  struct trm_comm *group = w->group;
  const size_t chunks = param_server_chunks(w->server), parts = (size_t)group->size;
  struct server_request request = {.kind = kind, .per_chunk = w->per_chunk, .in = in, .out = out,
                                   .seen = w->seen};
  if (value)
    memcpy(request.value, value, sizeof request.value);
  trm_interval(chunks, parts, (size_t)group->rank, &request.first, &request.last);
  const double before = group->ops->clock(group);
  int64_t staleness = request.first < request.last ? param_server_exchange(w->server, &request) : 0;
  for (size_t i = 0; out && group->size > 1 && i < parts; i++) {
    size_t low, high;
    trm_interval(chunks, parts, i, &low, &high);
    low *= SERVER_CHUNK;
    high = high * SERVER_CHUNK < s->elements ? high * SERVER_CHUNK : s->elements;
    if (low < high)
      group->ops->broadcast(group, out + low, high - low, TRM_FLOAT, (int)i);
  }
  if (counts && group->size > 1)
    group->ops->allreduce(group, &staleness, 1, TRM_INT64, TRM_MAX);
  const double held_s = request.first < request.last ? param_server_held_s(w->server) : 0;
  s->comm_s += group->ops->clock(group) - before - held_s;
  s->wait_s += held_s;
  if (counts && group->rank == 0)
    trm_staleness_add(&w->staleness, staleness > 0 ? (uint64_t)staleness : 0);
}
