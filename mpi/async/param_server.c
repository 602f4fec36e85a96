#include "mpi/async/param_server.h"

#include <sched.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

#define PAGE ((size_t)4096)

static size_t server_align(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

/* -- where everything is */

static bool server_is_centralized(const struct param_server *s)
{
  return s->plan.replicas == 1;
}

/* The pieces that a home has of one object. */
static void server_owner_chunks(const struct param_server *s, int owner, size_t *low, size_t *high)
{
  *low = 0;
  *high = s->chunks;
  if (server_is_centralized(s))
    trm_interval(s->chunks, (size_t)s->owners, (size_t)(owner - s->first_owner), low, high);
}

/* The elements that a home has of each array. */
static void server_owner_elements(const struct param_server *s, int owner, size_t *low, size_t *high)
{
  server_owner_chunks(s, owner, low, high);
  *low *= SERVER_CHUNK;
  *high *= SERVER_CHUNK;
  *low = *low < s->plan.elements ? *low : s->plan.elements;
  *high = *high < s->plan.elements ? *high : s->plan.elements;
}

static bool server_is_owner(const struct param_server *s, int rank)
{
  return rank >= s->first_owner && rank < s->first_owner + s->owners;
}

static size_t server_state_bytes(const struct param_server *s, int owner)
{
  size_t low, high;
  server_owner_chunks(s, owner, &low, &high);
  return (high - low) * sizeof(struct chunk_state);
}

/* From array to array at a home, elements. */
static size_t server_stride(const struct param_server *s, int owner)
{
  size_t low, high;
  server_owner_elements(s, owner, &low, &high);
  return server_align(high - low, 16);
}

static size_t server_owner_bytes(const struct param_server *s, int owner)
{
  if (!server_is_owner(s, owner))
    return 0;
  return server_align(server_state_bytes(s, owner), PAGE) +
         (size_t)s->plan.arrays * server_stride(s, owner) * sizeof(float);
}

int param_server_owner(const struct param_server *s, int replica, size_t chunk)
{
  if (!server_is_centralized(s))
    return replica;
  for (int i = 0; i < s->owners; i++) {
    size_t low, high;
    server_owner_chunks(s, s->first_owner + i, &low, &high);
    if (chunk < high)
      return s->first_owner + i;
  }
  return s->first_owner;
}

/* Dedicated servers are always sent to: they are asked for so that workers need not do their work. */
bool param_server_is_direct(const struct param_server *s, int owner)
{
  return s->plan.servers == 0 && s->node_rank[owner] >= 0;
}

static float *server_arrays(const struct param_server *s, int owner)
{
  return (float *)((char *)s->shared.base[s->node_rank[owner]] + server_align(server_state_bytes(s, owner), PAGE));
}

static struct chunk_state *server_state_at(const struct param_server *s, int owner, size_t chunk)
{
  size_t low, high;
  server_owner_chunks(s, owner, &low, &high);
  return (struct chunk_state *)s->shared.base[s->node_rank[owner]] + (chunk - low);
}

/* -- calls */

static void server_lock(_Atomic int *lock)
{
  for (int tries = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); tries++)
    if (tries > 20)
      sched_yield(); /* who has it may be waiting for a core */
}

static void server_unlock(_Atomic int *lock)
{
  atomic_store_explicit(lock, 0, memory_order_release);
}

int64_t param_server_run(struct param_server *s, int replica, size_t chunk, int64_t seen, struct server_call *call)
{
  const int owner = param_server_owner(s, replica, chunk);
  struct chunk_state *state = server_state_at(s, owner, chunk);
  size_t low, high;
  server_owner_elements(s, owner, &low, &high);
  const size_t at = chunk * SERVER_CHUNK, left = s->plan.elements - at;
  const struct server_chunk view = {
    .replica = replica,
    .low = at,
    .n = left < SERVER_CHUNK ? left : SERVER_CHUNK,
    .base = server_arrays(s, owner) + (at - low),
    .stride = server_stride(s, owner),
    .clock = &state->clock,
    .method_state = state->method_state,
  };
  server_lock(&state->lock);
  call->staleness = state->clock - seen;
  s->plan.handler(s->plan.context, &view, call);
  const int64_t clock = state->clock;
  server_unlock(&state->lock);
  return clock;
}

static void server_run_directly(struct param_server *s, size_t chunk, const struct server_request *request,
                                int64_t *staleness)
{
  const size_t at = chunk * SERVER_CHUNK;
  struct server_call call = {
    .kind = request->kind,
    .caller = s->plan.comm->rank,
    .per_chunk = request->per_chunk ? request->per_chunk[chunk] : 0,
    .in = request->in ? request->in + at : NULL,
    .out = request->out ? request->out + at : NULL,
  };
  memcpy(call.value, request->value, sizeof call.value);
  const int64_t clock = param_server_run(s, request->replica, chunk, request->seen ? request->seen[chunk] : 0, &call);
  if (call.staleness > *staleness)
    *staleness = call.staleness;
  if (request->per_chunk)
    request->per_chunk[chunk] = call.per_chunk;
  if (request->seen && request->out)
    request->seen[chunk] = clock;
}

/* Callers begin at different pieces, so that they do not queue up behind one another. */
int64_t param_server_exchange(struct param_server *s, const struct server_request *request)
{
  const size_t first = request->first, count = (request->last ? request->last : s->chunks) - first;
  const size_t start = count * (size_t)s->plan.comm->rank / (size_t)s->plan.comm->size;
  int64_t staleness = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t chunk = first + (start + i) % count;
    const int owner = param_server_owner(s, request->replica, chunk);
    if (param_server_is_direct(s, owner))
      server_run_directly(s, chunk, request, &staleness);
    else
      remote_post(s, owner, chunk, request, &staleness);
  }
  if (s->remote)
    remote_await(s, request, &staleness);
  return staleness;
}

bool param_server_poll(struct param_server *s)
{
  return s->remote && remote_poll(s);
}

size_t param_server_chunks(const struct param_server *s)
{
  return s->chunks;
}

/* -- life */

/* Where the ranks of comm stand in my node. */
static void server_find_neighbors(struct param_server *s)
{
  struct trm_comm *comm = s->plan.comm, *node = s->plan.node;
  int32_t *world = trm_alloc((size_t)node->size * sizeof *world, "ranks of the node");
  const int32_t rank = comm->rank;
  node->ops->allgather(node, &rank, world, 1, TRM_INT32);
  for (int i = 0; i < comm->size; i++)
    s->node_rank[i] = -1;
  for (int i = 0; i < node->size; i++)
    s->node_rank[world[i]] = i;
  trm_free(world);
}

int param_server_create(struct param_server **server, const struct server_plan *plan)
{
  struct param_server *s = trm_alloc(sizeof *s, "the parameter server");
  const int ranks = plan->comm->size;
  s->plan = *plan;
  s->chunks = (plan->elements + SERVER_CHUNK - 1) / SERVER_CHUNK;
  s->owners = plan->servers > 0 ? plan->servers : ranks;
  s->first_owner = ranks - s->owners;
  s->node_rank = trm_alloc((size_t)ranks * sizeof *s->node_rank, "the parameter server");
  server_find_neighbors(s);
  int status = trm_agree(plan->comm, plan->node->ops->share(plan->node, server_owner_bytes(s, plan->comm->rank),
                                                            TRM_MEMORY_BUFFERS, &s->shared));
  if (status == TRM_OK && (plan->servers > 0 || plan->node->size < ranks))
    status = trm_agree(plan->comm, remote_create(s));
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
  if (s->remote)
    remote_free(s);
  if (s->shared.base)
    s->plan.node->ops->unshare(s->plan.node, &s->shared);
  trm_free(s->node_rank);
  trm_free(s);
}

/* -- the state as a whole */

static void server_copy_full(struct param_server *s, int replica, int array, float *to, const float *from)
{
  struct trm_comm *comm = s->plan.comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < s->owners; i++) {
    const int owner = server_is_centralized(s) ? s->first_owner + i : replica;
    size_t low, high;
    server_owner_elements(s, owner, &low, &high);
    float *data = s->node_rank[owner] >= 0 ? server_arrays(s, owner) + (size_t)array * server_stride(s, owner) : NULL;
    const size_t bytes = (high - low) * sizeof(float);
    if (from && owner == comm->rank)
      memcpy(data, from + low, bytes);
    if (to && data)
      memcpy(to + low, data, bytes);
    if (to && s->plan.node->size < comm->size)
      comm->ops->broadcast(comm, to + low, high - low, TRM_FLOAT, owner);
    if (!server_is_centralized(s))
      break;
  }
  comm->ops->barrier(comm);
}

void param_server_gather(struct param_server *s, int replica, int array, float *to)
{
  server_copy_full(s, replica, array, to, NULL);
}

void param_server_scatter(struct param_server *s, int replica, int array, const float *from)
{
  server_copy_full(s, replica, array, NULL, from);
}

void param_server_set_clocks(struct param_server *s, int64_t clock)
{
  const int rank = s->plan.comm->rank;
  if (server_is_owner(s, rank))
    for (size_t i = 0; i < server_state_bytes(s, rank) / sizeof(struct chunk_state); i++)
      ((struct chunk_state *)s->shared.local)[i].clock = clock;
  s->plan.comm->ops->barrier(s->plan.comm);
}

void *param_server_local_states(struct param_server *s, size_t *bytes)
{
  *bytes = server_is_owner(s, s->plan.comm->rank) ? server_state_bytes(s, s->plan.comm->rank) : 0;
  return s->shared.local;
}

void *param_server_local_arrays(struct param_server *s, int first_array, size_t *bytes)
{
  const int rank = s->plan.comm->rank;
  *bytes = 0;
  if (!server_is_owner(s, rank))
    return NULL;
  const size_t stride = server_stride(s, rank);
  *bytes = (size_t)(s->plan.arrays - first_array) * stride * sizeof(float);
  return server_arrays(s, rank) + (size_t)first_array * stride;
}
