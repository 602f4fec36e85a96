#include "mpi/async/param_server.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

/* Calls in progress for each owner: while one is answered the next one travels. */
#define DEPTH 4

enum { TAG_PART = 32010 };

/* -- an exchange */

/* Calls at other ranks, begun one owner after the other, so that all owners work at the same time; and between them
 * those on the chunks of this node. */
struct exchange {
  struct param_server *server;
  const struct server_request *request;
  size_t first, last;        /* chunks [first, last) */
  int owners;                /* that have chunks of the replica */
  size_t round;              /* of the next remote call: the chunk's number within its owner's part of the request */
  int turn;                  /* of the next remote call: the owner */
  size_t begun, ended;       /* remote calls: they end in the order in which they begin */
  size_t direct;             /* of the next direct call */
  int64_t staleness;
  double direct_s, remote_s; /* seconds held back: these are one after the other, those side by side */
};

/* The next chunk to call another rank for; false: none is left. */
static bool server_next_remote(struct exchange *x, int *owner, size_t *chunk)
{
  const struct param_server *s = x->server;
  for (; x->round < x->last - x->first; x->round++, x->turn = 0)
    while (x->turn < x->owners) {
      *owner = server_active_owner(s, x->request->replica, (s->plan.comm->rank + x->turn++) % x->owners);
      const struct server_shard shard = server_shard_of(s, *owner);
      *chunk = (shard.first > x->first ? shard.first : x->first) + x->round;
      if (!param_server_is_direct(s, *owner) && *chunk < shard.last && *chunk < x->last)
        return true;
    }
  return false;
}

/* The next chunk of this node; false: none is left. Callers start with different chunks, to avoid contention for
 * locks. */
static bool server_next_direct(struct exchange *x, size_t *chunk)
{
  const struct param_server *s = x->server;
  const size_t count = x->last - x->first;
  const size_t start = count * (size_t)s->plan.comm->rank / (size_t)s->plan.comm->size;
  while (x->direct < count) {
    *chunk = x->first + (start + x->direct++) % count;
    if (param_server_is_direct(s, param_server_owner(s, x->request->replica, *chunk)))
      return true;
  }
  return false;
}

static void server_call_begin(struct param_server *s, const struct server_request *request, int owner, size_t chunk,
                              struct remote_call *remote)
{
  remote->head = server_head_of(s, request, chunk);
  const size_t bytes = server_chunk_size(s->plan.elements, chunk) * sizeof(float);
  const struct server_call *call = &remote->head.call;
  s->plan.comm->ops->call_begin(s->calls, owner, &remote->head, call->in, bytes, call->out,
                                bytes * (size_t)server_reply_arrays(s), &remote->request);
}

/* Ends the oldest remote call; false: it is still in progress, and not waited for. */
static bool server_end_remote(struct exchange *x, bool waits)
{
  struct param_server *s = x->server;
  struct remote_call *remote = &s->remote[x->ended % s->remotes];
  if (waits)
    s->plan.comm->ops->wait(&remote->request);
  else if (!s->plan.comm->ops->test(&remote->request))
    return false;
  server_call_done(x->request, &remote->head, &x->staleness);
  x->remote_s = remote->head.held_s > x->remote_s ? remote->head.held_s : x->remote_s;
  x->ended++;
  return true;
}

static void server_run_direct(struct exchange *x, size_t chunk)
{
  struct server_head head = server_head_of(x->server, x->request, chunk);
  param_server_run(x->server, &head);
  server_call_done(x->request, &head, &x->staleness);
  x->direct_s += head.held_s;
}

int64_t param_server_exchange(struct param_server *s, const struct server_request *request)
{
  struct exchange x = {
    .server = s,
    .request = request,
    .first = request->first,
    .last = request->last ? request->last : s->chunks,
    .owners = server_active_owners(s),
  };
  int owner;
  size_t chunk;
  bool remote_left = s->calls && !request->direct, direct_left = true;
  while (remote_left || direct_left || x.ended < x.begun) {
    while (remote_left && x.begun - x.ended < s->remotes)
      if ((remote_left = server_next_remote(&x, &owner, &chunk)))
        server_call_begin(s, request, owner, chunk, &s->remote[x.begun++ % s->remotes]);
    if (direct_left && (direct_left = server_next_direct(&x, &chunk)))
      server_run_direct(&x, chunk);
    if (x.ended < x.begun)
      server_end_remote(&x, !direct_left);
  }
  s->held_s = x.direct_s > x.remote_s ? x.direct_s : x.remote_s;
  return x.staleness;
}

double param_server_held_s(const struct param_server *s)
{
  return s->held_s;
}

/* -- calls that go on while their caller does */

void param_server_begin(struct param_server *s, const struct server_request *request, size_t slot)
{
  const size_t last = request->last ? request->last : s->chunks;
  for (size_t chunk = request->first; s->calls && chunk < last; chunk++) {
    const int owner = param_server_owner(s, request->replica, chunk);
    if (!param_server_is_direct(s, owner))
      server_call_begin(s, request, owner, chunk, &s->begun[slot * s->chunks + chunk]);
  }
}

bool param_server_end(struct param_server *s, size_t slot, size_t chunk, bool waits, int64_t *clock)
{
  if (!s->calls)
    return true;
  struct remote_call *remote = &s->begun[slot * s->chunks + chunk];
  if (waits)
    s->plan.comm->ops->wait(&remote->request);
  else if (!s->plan.comm->ops->test(&remote->request))
    return false;
  *clock = remote->head.clock;
  s->held_s = remote->head.held_s;
  return true;
}

/* -- at an owner */

static bool server_answer(void *context, int caller, void *data, const void *in, void *out)
{
  struct param_server *s = context;
  struct server_head *head = data;
  (void)caller;
  if (head->replica < 0) {
    s->finished++;
    return true;
  }
  head->call.in = in;
  head->call.out = out;
  return param_server_try(s, head);
}

void param_server_finish(struct param_server *s)
{
  struct trm_comm *comm = s->plan.comm;
  struct server_head head = {.replica = -1};
  struct trm_request *request;
  for (int i = 0; i < s->plan.servers; i++) {
    comm->ops->call_begin(s->calls, s->first_owner + i, &head, NULL, 0, NULL, 0, &request);
    comm->ops->wait(&request);
  }
}

/* Arguments of server_is_done, for wait_until. */
struct server_service {
  const struct param_server *server;
  int callers;
  bool (*interrupted)(void *context);
  void *context;
};

static bool server_is_done(void *context)
{
  const struct server_service *service = context;
  return service->server->finished == service->callers ||
         (service->interrupted && service->interrupted(service->context));
}

bool param_server_serve(struct param_server *s, int callers, bool (*interrupted)(void *context), void *context)
{
  struct server_service service = {s, callers, interrupted, context};
  s->plan.comm->ops->wait_until(s->plan.comm, server_is_done, &service);
  if (s->finished < callers)
    return false;
  s->finished = 0;
  return true;
}

int64_t param_server_calls(const struct param_server *s)
{
  const struct server_shard mine = server_shard_of(s, s->plan.comm->rank);
  int64_t calls = 0;
  for (size_t i = 0; i < mine.last - mine.first; i++)
    calls += mine.number[i];
  return calls;
}

size_t param_server_chunks(const struct param_server *s)
{
  return s->chunks;
}

/* -- creation */

static int server_calls_create(struct param_server *s)
{
  struct trm_comm *comm = s->plan.comm;
  bool *owner = trm_alloc((size_t)comm->size * sizeof *owner, "the parameter server");
  const bool all = !server_is_centralized(s) || s->plan.servers > 0;
  for (int i = 0; i < (all ? s->owners : server_active_owners(s)); i++)
    owner[all ? s->first_owner + i : server_active_owner(s, 0, i)] = true;
  const struct trm_call_plan plan = {
    .head_bytes = sizeof(struct server_head),
    .max_bytes = server_chunk_size(s->plan.elements, 0) * sizeof(float) * (size_t)server_reply_arrays(s),
    .owner = owner,
    .node = s->plan.node,
    .attended = s->plan.servers > 0,
    .function = server_answer,
    .context = s,
  };
  /* A call whose turn has not come must not keep later ones, which others may wait for, from beginning. */
  s->remotes = call_order_is_followed(s->plan.order) ? s->chunks : DEPTH * (size_t)server_active_owners(s);
  s->remote = trm_alloc(s->remotes * sizeof *s->remote, "the parameter server");
  s->begun = trm_alloc((size_t)s->plan.slots * s->chunks * sizeof *s->begun, "the parameter server");
  const int status = comm->ops->calls_create(comm, &plan, &s->calls);
  trm_free(owner);
  return status;
}

int param_server_create(struct param_server **server, const struct server_plan *plan)
{
  struct param_server *s = trm_alloc(sizeof *s, "the parameter server");
  const int ranks = plan->comm->size;
  s->plan = *plan;
  s->chunks = server_chunks(plan->elements);
  s->owners = plan->servers > 0 ? plan->servers : ranks;
  s->first_owner = ranks - s->owners;
  int status = server_shards_create(s);
  if (status == TRM_OK && (plan->servers > 0 || plan->node->size < ranks))
    status = trm_agree(plan->comm, server_calls_create(s));
  *server = s;
  if (status != TRM_OK) {
    param_server_free(s);
    *server = NULL;
  }
  return status;
}

void param_server_free(struct param_server *s)
{
  if (!s)
    return;
  if (s->calls)
    s->plan.comm->ops->calls_free(&s->calls);
  if (s->shared.base)
    s->plan.node->ops->unshare(s->plan.node, &s->shared);
  if (s->numbers.base)
    s->plan.node->ops->unshare(s->plan.node, &s->numbers);
  trm_free(s->remote);
  trm_free(s->begun);
  trm_free(s->node_rank);
  trm_free(s);
}

/* -- whole arrays */

/* Where elements of an array are in an owner's shard. */
struct server_part {
  float *data; /* NULL: in another node */
  size_t low, n; /* of the interval: from its begin */
};

static struct server_part server_part_of(const struct param_server *s, int owner, int array, size_t low, size_t n)
{
  const struct server_shard shard = server_shard_of(s, owner);
  const size_t begin = shard.low > low ? shard.low : low, end = shard.high < low + n ? shard.high : low + n;
  if (begin >= end)
    return (struct server_part){0};
  float *data = shard.arrays ? shard.arrays + (size_t)array * shard.stride + (begin - shard.low) : NULL;
  return (struct server_part){data, begin - low, end - begin};
}

void param_server_gather(struct param_server *s, int replica, int array, float *to)
{
  struct trm_comm *comm = s->plan.comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < server_active_owners(s); i++) {
    const int owner = server_active_owner(s, replica, i);
    const struct server_part part = server_part_of(s, owner, array, 0, s->plan.elements);
    if (part.data)
      memcpy(to + part.low, part.data, part.n * sizeof *to);
    if (s->plan.node->size < comm->size)
      comm->ops->broadcast(comm, to + part.low, part.n, TRM_FLOAT, owner);
  }
  comm->ops->barrier(comm);
}

void param_server_read(struct param_server *s, int replica, int array, size_t low, size_t n, float *to)
{
  struct trm_comm *comm = s->plan.comm;
  const bool sends = server_node_rank(s, 0) < 0;
  struct trm_request *request;
  comm->ops->barrier(comm);
  for (int i = 0; i < server_active_owners(s); i++) {
    const int owner = server_active_owner(s, replica, i);
    const struct server_part part = server_part_of(s, owner, array, low, n);
    if (comm->rank == 0 && part.data) {
      memcpy(to + part.low, part.data, part.n * sizeof *to);
    } else if (comm->rank == 0 && part.n > 0) {
      comm->ops->receive_begin(comm, to + part.low, part.n, TRM_FLOAT, owner, TAG_PART, &request);
      comm->ops->wait(&request);
    } else if (comm->rank == owner && part.n > 0 && sends) {
      comm->ops->send_begin(comm, part.data, part.n, TRM_FLOAT, 0, TAG_PART, &request);
      comm->ops->wait(&request);
    }
  }
  comm->ops->barrier(comm);
}

void param_server_write(struct param_server *s, int array, size_t low, size_t n, const float *from)
{
  const struct server_part part = server_part_of(s, s->plan.comm->rank, array, low, n);
  if (part.n > 0)
    memcpy(part.data, from + part.low, part.n * sizeof *from);
}

void param_server_set_clocks(struct param_server *s, int64_t clock)
{
  const struct server_shard mine = server_shard_of(s, s->plan.comm->rank);
  for (size_t chunk = mine.first; chunk < mine.last; chunk++)
    server_state_at(s, &mine, chunk)->clock.value = clock;
  s->plan.comm->ops->barrier(s->plan.comm);
}

void *param_server_local_states(struct param_server *s, size_t *bytes)
{
  const struct server_shard mine = server_shard_of(s, s->plan.comm->rank);
  *bytes = mine.state_bytes;
  return mine.state;
}

void *param_server_local_arrays(struct param_server *s, int first_array, size_t *bytes)
{
  const struct server_shard mine = server_shard_of(s, s->plan.comm->rank);
  *bytes = (size_t)(s->plan.arrays - first_array) * mine.stride * sizeof *mine.arrays;
  return mine.arrays + (size_t)first_array * mine.stride;
}
