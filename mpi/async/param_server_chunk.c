/* Chunks of the parameter server: their owners, the memory of their state, and calls within a node. */
#include <sched.h>

#include "mpi/async/param_server_private.h"

#define PAGE ((size_t)4096)

static size_t server_align(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

bool server_is_centralized(const struct param_server *s)
{
  return s->plan.replicas == 1;
}

/* The chunks [low, high) of one replica that a rank owns. */
static void server_owner_chunks(const struct param_server *s, int owner, size_t *low, size_t *high)
{
  *low = 0;
  *high = s->chunks;
  if (server_is_centralized(s))
    trm_interval(s->chunks, (size_t)s->owners, (size_t)(owner - s->first_owner), low, high);
}

void server_owner_elements(const struct param_server *s, int owner, size_t *low, size_t *high)
{
  server_owner_chunks(s, owner, low, high);
  *low *= SERVER_CHUNK;
  *high *= SERVER_CHUNK;
  *low = *low < s->plan.elements ? *low : s->plan.elements;
  *high = *high < s->plan.elements ? *high : s->plan.elements;
}

bool server_is_owner(const struct param_server *s, int rank)
{
  return rank >= s->first_owner && rank < s->first_owner + s->owners;
}

size_t server_state_bytes(const struct param_server *s, int owner)
{
  size_t low, high;
  server_owner_chunks(s, owner, &low, &high);
  return (high - low) * sizeof(struct chunk_state);
}

size_t server_stride(const struct param_server *s, int owner)
{
  size_t low, high;
  server_owner_elements(s, owner, &low, &high);
  return server_align(high - low, 16);
}

size_t server_owner_bytes(const struct param_server *s, int owner)
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

/* Dedicated servers (strategy.servers) are always sent to: workers do none of their work. */
bool param_server_is_direct(const struct param_server *s, int owner)
{
  return s->plan.servers == 0 && s->node_rank[owner] >= 0;
}

float *server_arrays(const struct param_server *s, int owner)
{
  return (float *)((char *)s->shared.base[s->node_rank[owner]] + server_align(server_state_bytes(s, owner), PAGE));
}

static struct chunk_state *server_state_at(const struct param_server *s, int owner, size_t chunk)
{
  size_t low, high;
  server_owner_chunks(s, owner, &low, &high);
  return (struct chunk_state *)s->shared.base[s->node_rank[owner]] + (chunk - low);
}

static void server_lock(_Atomic int *lock)
{
  for (int tries = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); tries++)
    if (tries > 20)
      sched_yield(); /* the lock's owner may be waiting for a core */
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
