/* HALoS, hierarchical asynchronous local SGD (Kim et al., ICML 2025): groups of workers, each with server weights x of
 * its own, and global weights w. A worker makes strategy.tau steps from its group's x, and sends how far it has come; x
 * takes that as in asynchronous DiLoCo, by delayed Nesterov momentum (delayed_nesterov.h). Every K pushes of a group,
 * what x has moved since its last exchange with w is a push to w, with momentum of its own, and then:
 *
 *   x = (1 - alpha) x + alpha w
 *
 * w is evaluated and is the result. Groups: strategy.groups (0: the nodes, as of parallel.share); of a group:
 * strategy.outer_rate (0.2 N, so that a push moves x by 0.2 of its length), strategy.outer_momentum (0.9), N =
 * strategy.collect (0: the workers of the largest group); of w: strategy.global_rate (0.3), strategy.global_momentum
 * (0.5), N = 2; K: strategy.global_every (32); alpha: strategy.alpha (-1: 0.25). Defaults are those of the authors'
 * code, where N is 16.
 *
 * What a group has pushed since its last exchange with w is no part of w: in a run of fewer than K pushes a group w
 * stays as it began. A checkpoint keeps it for runs with the same number of ranks.
 *
 * All weights lie on the parameter server, in chunks over all ranks: a group's are no nearer to its workers. Staleness
 * counts the pushes of all groups. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/delayed_nesterov.h"
#include "mpi/async/local_work.h"
#include "mpi/strategies.h"

enum { GLOBAL_PERIOD = 2 };
enum array { WEIGHTS, MOMENTUM, SUM, ARRAYS }; /* of w */
/* of each group; BASE: x after its last exchange with w */
enum group_array { OWN, BASE, OWN_MOMENTUM, OWN_SUM, GROUP_ARRAYS };
enum method_state { GLOBAL_PUSHES, GROUP_PUSHES }; /* and of each group */

struct halos {
  struct local_work work;
  struct delayed_nesterov group, global;
  int64_t global_every;
  double alpha;
  int groups;
  int32_t *group_of; /* (ranks) */
};

static float *halos_array(const struct server_chunk *chunk, int group, enum group_array array)
{
  return server_array(chunk, ARRAYS + group * GROUP_ARRAYS + (int)array);
}

/* A push of a group's move to the global weights, of which it then takes a part. */
static void halos_exchange(const struct trm_strategy *s, const struct server_chunk *chunk, int group)
{
  const struct halos *h = worker_of(s)->method;
  float *restrict w = server_array(chunk, WEIGHTS), *restrict x = halos_array(chunk, group, OWN);
  float *restrict base = halos_array(chunk, group, BASE);
  for (size_t i = 0; i < chunk->n; i++)
    base[i] = x[i] - base[i];
  chunk->method_state[GLOBAL_PUSHES]++;
  delayed_nesterov_update(s, &h->global, (int64_t)chunk->method_state[GLOBAL_PUSHES], chunk->n,
                          server_weights_trained(s, chunk->low, chunk->n), w, server_array(chunk, MOMENTUM),
                          server_array(chunk, SUM), base);
  const float alpha = (float)h->alpha;
  for (size_t i = 0; i < chunk->n; i++)
    base[i] = x[i] = (1 - alpha) * x[i] + alpha * w[i];
  trm_strategy_pass_time(s, 7 * chunk->n);
}

static void halos_update(const struct trm_strategy *s, const struct server_chunk *chunk, const struct server_call *call,
                         int group)
{
  const struct halos *h = worker_of(s)->method;
  double *pushes = &chunk->method_state[GROUP_PUSHES + group];
  ++*pushes;
  delayed_nesterov_update(s, &h->group, (int64_t)*pushes, chunk->n, server_weights_trained(s, chunk->low, chunk->n),
                          halos_array(chunk, group, OWN), halos_array(chunk, group, OWN_MOMENTUM),
                          halos_array(chunk, group, OWN_SUM), call->in);
  if ((int64_t)*pushes % h->global_every == 0)
    halos_exchange(s, chunk, group);
  ++*chunk->clock;
  snapshots_count(s, chunk, (int64_t)call->value[LOCAL_STEPS]);
}

static bool halos_serve(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  const struct trm_strategy *s = context;
  const struct halos *h = worker_of(s)->method;
  const int group = h->group_of[call->caller];
  if (call->kind == SERVER_PUSH)
    halos_update(s, chunk, call, group);
  if (call->out)
    memcpy(call->out, halos_array(chunk, group, OWN), chunk->n * sizeof(float));
  trm_strategy_pass_time(s, 2 * chunk->n);
  return true;
}

/* Collective. Returns this rank's group: of strategy.groups equal ones, or its node. Ranks that serve have the last. */
static int halos_group(struct trm_strategy *s)
{
  struct trm_comm *comm = s->comm;
  const int64_t workers = worker_count(s), groups = s->options->groups;
  const int64_t rank = comm->rank < workers ? comm->rank : workers - 1;
  const enum trm_share share = s->parallel->share;
  struct trm_comm *node =
    share == TRM_SHARE_NONE ? comm->ops->split(comm, comm->rank, 0) : comm->ops->split_node(comm, share);
  int32_t group = comm->rank, *first = trm_alloc((size_t)comm->size * sizeof *first, "groups");
  node->ops->allreduce(node, &group, 1, TRM_INT32, TRM_MIN);
  comm->ops->release(node);
  comm->ops->allgather(comm, &group, first, 1, TRM_INT32);
  group = 0;
  for (int64_t other = 0; other < first[rank]; other++)
    group += first[other] == other; /* nodes before this rank's */
  trm_free(first);
  return groups > 0 ? (int)(((rank + 1) * groups - 1) / workers) : group;
}

/* Workers of the largest group. */
static int64_t halos_largest_group(const struct trm_strategy *s, const int32_t *group_of)
{
  int64_t largest = 0;
  for (int rank = 0; rank < worker_count(s); rank++) {
    int64_t count = 0;
    for (int other = 0; other < worker_count(s); other++)
      count += group_of[other] == group_of[rank];
    largest = count > largest ? count : largest;
  }
  return largest;
}

/* Collective. The part of create that needs group_of (ranks). */
static int halos_create_groups(struct trm_strategy *s, const int32_t *group_of)
{
  const struct trm_strategy_options *o = s->options;
  const size_t ranks = (size_t)s->comm->size;
  int groups = 0;
  for (size_t rank = 0; rank < ranks; rank++)
    groups = group_of[rank] >= groups ? group_of[rank] + 1 : groups;
  struct delayed_nesterov group = {.period = o->collect > 0 ? o->collect : halos_largest_group(s, group_of),
                                   .momentum = o->outer_momentum < 0 ? 0.9 : o->outer_momentum,
                                   .activation = o->activation};
  group.rate = o->outer_rate < 0 ? 0.2 * (double)group.period : o->outer_rate;
  TRM_CHECK(delayed_nesterov_check(&group));
  const struct local_work_plan plan = {.handler = halos_serve,
                                       .arrays = ARRAYS + groups * GROUP_ARRAYS,
                                       .method_states = GROUP_PUSHES + groups,
                                       .groups_of_workers = true};
  TRM_CHECK(local_work_create(s, &plan, sizeof(struct halos)));
  struct halos *h = worker_of(s)->method;
  h->group = group;
  h->global = (struct delayed_nesterov){
    .period = GLOBAL_PERIOD, .rate = o->global_rate, .momentum = o->global_momentum};
  h->global_every = o->global_every;
  h->alpha = o->alpha < 0 ? 0.25 : o->alpha;
  h->groups = groups;
  h->group_of = worker_alloc(s, ranks * sizeof *h->group_of);
  memcpy(h->group_of, group_of, ranks * sizeof *group_of);
  return TRM_OK;
}

static int halos_create(struct trm_strategy *s)
{
  const struct trm_strategy_options *o = s->options;
  if (o->alpha < 0 && o->alpha != -1)
    return trm_error(TRM_USAGE, "strategy.alpha: %g would move a group away from the global weights (0 to 1; -1: 0.25)",
                     o->alpha);
  if (o->groups > worker_count(s))
    return trm_error(TRM_USAGE, "strategy.groups: %lld groups of %d workers", (long long)o->groups, worker_count(s));
  const int32_t mine = halos_group(s);
  int32_t *group_of = trm_alloc((size_t)s->comm->size * sizeof *group_of, "groups");
  s->comm->ops->allgather(s->comm, &mine, group_of, 1, TRM_INT32);
  const int status = halos_create_groups(s, group_of);
  trm_free(group_of);
  return status;
}

/* Every group's weights become the global ones. */
static void halos_begin(void *context, const struct server_chunk *chunk)
{
  const struct halos *h = worker_of(context)->method;
  for (int group = 0; group < h->groups; group++) {
    memcpy(halos_array(chunk, group, OWN), server_array(chunk, WEIGHTS), chunk->n * sizeof(float));
    memcpy(halos_array(chunk, group, BASE), server_array(chunk, WEIGHTS), chunk->n * sizeof(float));
  }
}

static int halos_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  TRM_CHECK(local_work_restore(s, from, updates));
  if (!s->local_state_restored)
    param_server_visit(worker_of(s)->server, halos_begin, s);
  s->comm->ops->barrier(s->comm);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_halos = {
  .name = "halos",
  .help = "asynchronous DiLoCo in groups, which exchange moves with global weights now and then (HALoS)",
  .takes = LOCAL_WORK_TAKES | TRM_TAKES_GROUPS | TRM_TAKES_WORKER_GROUPS,
  SERVER_WEIGHTS_SLOTS,
  .create = halos_create,
  .before_forward = local_work_before_forward,
  .step = local_work_step,
  .restore = halos_restore,
  .destroy = worker_destroy,
};
