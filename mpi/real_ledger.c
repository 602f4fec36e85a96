/* The communication contract over MPI with the ledger (core/ledger.h): the slots of real_ops that block, or begin what
 * is waited for later, each between an entry of what it does and the end of that. Collectives are numbered on each
 * communicator, non-blocking ones too: all its ranks must give one number to the same operation. */
#include "core/ledger.h"
#include "mpi/real_private.h"

uint64_t real_ledger_group(MPI_Comm mpi, const struct real_comm *parent)
{
  const int first = 0;
  int world_rank = 0;
  MPI_Group group, world;
  MPI_Comm_group(mpi, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, 1, &first, world, &world_rank);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  const uint64_t parts[] = {parent->group, parent->collectives, (uint64_t)world_rank};
  uint64_t hash = 0xcbf29ce484222325; /* FNV-1a, a word at a time */
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    hash = (hash ^ parts[i]) * 0x100000001b3;
  return hash >> 12; /* exact in a double */
}

static struct trm_ledger_call ledger_collective(struct trm_comm *comm, enum trm_ledger_operation operation,
                                                uint64_t bytes)
{
  struct real_comm *real = real_of(comm);
  return (struct trm_ledger_call){.operation = operation, .role = comm->role, .group = real->group,
                                  .number = ++real->collectives, .bytes = bytes, .peer = -1};
}

static enum trm_ledger_operation ledger_enter(struct trm_comm *comm, enum trm_ledger_operation operation,
                                              uint64_t bytes)
{
  const struct trm_ledger_call call = ledger_collective(comm, operation, bytes);
  return trm_ledger_enter(&call);
}

/* -- collectives */

static void ledger_barrier(struct trm_comm *comm)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_BARRIER, 0);
  real_ops.barrier(comm);
  trm_ledger_leave(before);
}

static void ledger_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_BROADCAST, count * trm_type_bytes(type));
  real_ops.broadcast(comm, data, count, type, root);
  trm_ledger_leave(before);
}

static void ledger_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_ALLREDUCE, count * trm_type_bytes(type));
  real_ops.allreduce(comm, data, count, type, op);
  trm_ledger_leave(before);
}

static void ledger_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_ALLGATHER, count * trm_type_bytes(type));
  real_ops.allgather(comm, mine, all, count, type);
  trm_ledger_leave(before);
}

static void ledger_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                  enum trm_op op)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_REDUCE_SCATTER, count * trm_type_bytes(type));
  real_ops.reduce_scatter(comm, all, mine, count, type, op);
  trm_ledger_leave(before);
}

/* -- requests remember what they are, for those that wait */

static void ledger_remember(struct trm_request *request, struct trm_ledger_call call)
{
  if (request)
    request->ledger = call;
}

static void ledger_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                   struct trm_request **request)
{
  real_ops.allreduce_begin(comm, data, count, type, op, request);
  ledger_remember(*request, ledger_collective(comm, TRM_LEDGER_ALLREDUCE, count * trm_type_bytes(type)));
}

static void ledger_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                   struct trm_request **request)
{
  real_ops.allgather_begin(comm, mine, all, count, type, request);
  ledger_remember(*request, ledger_collective(comm, TRM_LEDGER_ALLGATHER, count * trm_type_bytes(type)));
}

static void ledger_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                        enum trm_op op, struct trm_request **request)
{
  real_ops.reduce_scatter_begin(comm, all, mine, count, type, op, request);
  ledger_remember(*request, ledger_collective(comm, TRM_LEDGER_REDUCE_SCATTER, count * trm_type_bytes(type)));
}

static struct trm_ledger_call ledger_with_peer(struct trm_comm *comm, enum trm_ledger_operation operation, size_t bytes,
                                               int peer)
{
  return (struct trm_ledger_call){.operation = operation, .role = comm->role, .group = real_of(comm)->group,
                                  .bytes = bytes, .peer = peer};
}

static void ledger_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to,
                              int tag, struct trm_request **request)
{
  real_ops.send_begin(comm, data, count, type, to, tag, request);
  ledger_remember(*request, ledger_with_peer(comm, TRM_LEDGER_SEND, count * trm_type_bytes(type), to));
}

static void ledger_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                                 struct trm_request **request)
{
  real_ops.receive_begin(comm, data, count, type, from, tag, request);
  ledger_remember(*request, ledger_with_peer(comm, TRM_LEDGER_RECEIVE, count * trm_type_bytes(type), from));
}

static void ledger_wait(struct trm_request **request)
{
  if (!*request)
    return;
  const struct trm_ledger_call call = (*request)->ledger;
  const enum trm_ledger_operation before = trm_ledger_enter(&call);
  real_wait(request);
  trm_ledger_leave(before);
}

static void ledger_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context)
{
  const struct trm_ledger_call call = ledger_with_peer(comm, TRM_LEDGER_CHANGE, 0, -1);
  const enum trm_ledger_operation before = trm_ledger_enter(&call);
  real_wait_until(comm, done, context);
  trm_ledger_leave(before);
}

/* A wait of limited time ends by itself: each second is progress. */
static bool ledger_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when)
{
  const struct trm_ledger_call call = ledger_with_peer(comm, TRM_LEDGER_SLEEP, 0, -1);
  const enum trm_ledger_operation before = trm_ledger_enter(&call);
  bool met = false;
  for (double next; !met && (next = real_clock(comm) + 1) < when; trm_ledger_add_progress())
    met = real_wait_at_most(comm, done, context, next);
  met = met || real_wait_at_most(comm, done, context, when);
  if (before != TRM_LEDGER_OPERATIONS)
    trm_ledger_leave(before);
  return met;
}

/* A sleep ends by itself: each second is progress. */
static void ledger_sleep_until(struct trm_comm *comm, double when, bool progress)
{
  const struct trm_ledger_call call = ledger_with_peer(comm, TRM_LEDGER_SLEEP, 0, -1);
  const bool is_long = when - real_clock(comm) > 1;
  const enum trm_ledger_operation before = is_long ? trm_ledger_enter(&call) : TRM_LEDGER_OPERATIONS;
  for (double next; (next = real_clock(comm) + 1) < when; trm_ledger_add_progress())
    real_sleep_until(comm, next, progress);
  real_sleep_until(comm, when, progress);
  if (before != TRM_LEDGER_OPERATIONS)
    trm_ledger_leave(before);
}

/* -- groups, shared memory, windows, calls */

static struct trm_comm *ledger_split(struct trm_comm *comm, int color, int key)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_SPLIT, 0);
  struct trm_comm *group = real_split(comm, color, key);
  trm_ledger_leave(before);
  return group;
}

static struct trm_comm *ledger_split_node(struct trm_comm *comm, enum trm_share domain)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_SPLIT, 0);
  struct trm_comm *node = real_split_node(comm, domain);
  node->role = TRM_COMM_NODE;
  trm_ledger_leave(before);
  return node;
}

static int ledger_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_SHARE, 0);
  const int status = real_share(comm, bytes, use, shared);
  trm_ledger_leave(before);
  return status;
}

static void ledger_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_SHARE, 0);
  real_unshare(comm, shared);
  trm_ledger_leave(before);
}

static int ledger_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                                struct trm_window **window, void **base)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_WINDOW, 0);
  const int status = real_window_create(comm, count, type, what, window, base);
  trm_ledger_leave(before);
  return status;
}

static enum trm_ledger_operation ledger_access(int target)
{
  const struct trm_ledger_call call = {.operation = TRM_LEDGER_ACCESS, .peer = target};
  return trm_ledger_enter(&call);
}

static int64_t ledger_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset)
{
  const enum trm_ledger_operation before = ledger_access(target);
  const int64_t old = real_fetch_add(window, value, target, offset);
  trm_ledger_leave(before);
  return old;
}

static void ledger_flush(struct trm_window *window, int target)
{
  const enum trm_ledger_operation before = ledger_access(target);
  real_flush(window, target);
  trm_ledger_leave(before);
}

static int ledger_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls)
{
  const enum trm_ledger_operation before = ledger_enter(comm, TRM_LEDGER_CALLS, 0);
  const int status = real_calls_create(comm, plan, calls);
  trm_ledger_leave(before);
  return status;
}

static void ledger_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes,
                              void *out, size_t out_bytes, struct trm_request **request)
{
  real_call_begin(calls, owner, head, in, in_bytes, out, out_bytes, request);
  ledger_remember(*request, (struct trm_ledger_call){
    .operation = TRM_LEDGER_CALL, .bytes = in_bytes + out_bytes, .peer = owner});
}

_Static_assert(sizeof(struct trm_comm_ops) == 40 * sizeof(void *), "a slot of real_ops is not in this table, too");
const struct trm_comm_ops real_ledger_ops = {
  .name = "mpi",
  .barrier = ledger_barrier,
  .broadcast = ledger_broadcast,
  .allreduce = ledger_allreduce,
  .allgather = ledger_allgather,
  .reduce_scatter = ledger_reduce_scatter,
  .allreduce_begin = ledger_allreduce_begin,
  .allgather_begin = ledger_allgather_begin,
  .reduce_scatter_begin = ledger_reduce_scatter_begin,
  .send_begin = ledger_send_begin,
  .receive_begin = ledger_receive_begin,
  .test = real_test,
  .wait = ledger_wait,
  .progress = real_progress,
  .wait_until = ledger_wait_until,
  .wait_at_most = ledger_wait_at_most,
  .sleep_until = ledger_sleep_until,
  .region = real_region,
  .split = ledger_split,
  .split_node = ledger_split_node,
  .release = real_release,
  .share = ledger_share,
  .unshare = ledger_unshare,
  .window_create = ledger_window_create,
  .window_free = real_window_free,
  .get = real_get,
  .put = real_put,
  .accumulate = real_accumulate,
  .fetch_add = ledger_fetch_add,
  .flush = ledger_flush,
  .calls_create = ledger_calls_create,
  .calls_free = real_calls_free,
  .call_begin = ledger_call_begin,
  .clock = real_clock,
  .abort = real_abort,
  .native = real_native,
};
