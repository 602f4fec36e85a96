#include "mpi/async/param_server.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

/* -- calls */

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

/* Callers start with different chunks, to avoid contention for locks. */
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

/* -- creation */

/* Sets node_rank: the number in this node of each rank of comm. */
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

/* -- whole arrays */

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
