#include "mpi/async/param_server.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

/* -- calls */

/* Callers start with different chunks, to avoid contention for locks. */
int64_t param_server_exchange(struct param_server *s, const struct server_request *request)
{
  const size_t first = request->first, count = (request->last ? request->last : s->chunks) - first;
  const size_t start = count * (size_t)s->plan.comm->rank / (size_t)s->plan.comm->size;
  int64_t staleness = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t chunk = first + (start + i) % count;
    const int owner = param_server_owner(s, request->replica, chunk);
    if (!param_server_is_direct(s, owner)) {
      remote_post(s, owner, chunk, request, &staleness);
      continue;
    }
    struct server_call call = server_call_of(s, request, chunk);
    const int64_t seen = request->seen ? request->seen[chunk] : 0;
    const int64_t clock = param_server_run(s, request->replica, chunk, seen, &call);
    server_call_done(request, chunk, clock, &call, &staleness);
  }
  if (s->remote)
    remote_await(s, request, &staleness);
  return staleness;
}

size_t param_server_chunks(const struct param_server *s)
{
  return s->chunks;
}

/* -- creation */

int param_server_create(struct param_server **server, const struct server_plan *plan)
{
  struct param_server *s = trm_alloc(sizeof *s, "the parameter server");
  const int ranks = plan->comm->size;
  s->plan = *plan;
  s->chunks = (plan->elements + SERVER_CHUNK - 1) / SERVER_CHUNK;
  s->owners = plan->servers > 0 ? plan->servers : ranks;
  s->first_owner = ranks - s->owners;
  int status = server_shards_create(s);
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
  trm_free(s->shard);
  trm_free(s);
}

/* -- whole arrays */

static void server_copy_full(struct param_server *s, int replica, int array, float *to, const float *from)
{
  struct trm_comm *comm = s->plan.comm;
  const int first = server_is_centralized(s) ? s->first_owner : replica;
  const int last = server_is_centralized(s) ? first + s->owners - 1 : replica;
  comm->ops->barrier(comm);
  for (int owner = first; owner <= last; owner++) {
    const struct server_shard *shard = &s->shard[owner];
    float *data = shard->arrays ? shard->arrays + (size_t)array * shard->stride : NULL;
    const size_t n = shard->high - shard->low;
    if (from && owner == comm->rank)
      memcpy(data, from + shard->low, n * sizeof *data);
    if (to && data)
      memcpy(to + shard->low, data, n * sizeof *data);
    if (to && s->plan.node->size < comm->size)
      comm->ops->broadcast(comm, to + shard->low, n, TRM_FLOAT, owner);
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
  const struct server_shard *mine = &s->shard[s->plan.comm->rank];
  for (size_t i = 0; i < mine->last - mine->first; i++)
    mine->state[i].clock = clock;
  s->plan.comm->ops->barrier(s->plan.comm);
}

void *param_server_local_states(struct param_server *s, size_t *bytes)
{
  const struct server_shard *mine = &s->shard[s->plan.comm->rank];
  *bytes = mine->state_bytes;
  return mine->state;
}

void *param_server_local_arrays(struct param_server *s, int first_array, size_t *bytes)
{
  const struct server_shard *mine = &s->shard[s->plan.comm->rank];
  *bytes = (size_t)(s->plan.arrays - first_array) * mine->stride * sizeof *mine->arrays;
  return mine->arrays + (size_t)first_array * mine->stride;
}
