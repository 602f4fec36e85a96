/* Chunks of the parameter server: their owners, the memory of their state, and calls within a node. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

#define PAGE ((size_t)4096)
#define CACHE_LINE ((size_t)64)

static size_t server_align(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

bool server_is_centralized(const struct param_server *s)
{
  return s->plan.replicas == 1;
}

int server_node_rank(const struct param_server *s, int rank)
{
  int low = 0, high = s->plan.node->size;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (s->node_rank[middle] < rank)
      low = middle + 1;
    else
      high = middle;
  }
  return low < s->plan.node->size && s->node_rank[low] == rank ? low : -1;
}

/* Bytes from the state of one chunk to the next. */
static size_t server_state_stride(const struct param_server *s)
{
  return server_align(sizeof(struct chunk_state) + (size_t)s->plan.method_states * sizeof(double), CACHE_LINE);
}

struct server_shard server_shard_of(const struct param_server *s, int owner)
{
  struct server_shard shard = {.last = s->chunks};
  if (owner < s->first_owner)
    return (struct server_shard){0};
  if (server_is_centralized(s))
    trm_interval(s->chunks, (size_t)s->owners, (size_t)(owner - s->first_owner), &shard.first, &shard.last);
  const size_t low = shard.first * SERVER_CHUNK, high = shard.last * SERVER_CHUNK;
  shard.low = low < s->plan.elements ? low : s->plan.elements;
  shard.high = high < s->plan.elements ? high : s->plan.elements;
  shard.stride = server_align(shard.high - shard.low, 16);
  shard.state_bytes = (shard.last - shard.first) * server_state_stride(s);
  const int local = s->shared.base ? server_node_rank(s, owner) : -1;
  if (local >= 0) {
    shard.state = s->shared.base[local];
    shard.number = s->numbers.base ? s->numbers.base[local] : NULL;
    shard.arrays = (float *)((char *)s->shared.base[local] + server_align(shard.state_bytes, PAGE));
  }
  return shard;
}

struct chunk_state *server_state_at(const struct param_server *s, const struct server_shard *shard, size_t chunk)
{
  return (struct chunk_state *)((char *)shard->state + (chunk - shard->first) * server_state_stride(s));
}

int server_shards_create(struct param_server *s)
{
  struct trm_comm *comm = s->plan.comm, *node = s->plan.node;
  const struct server_shard mine = server_shard_of(s, comm->rank);
  const size_t arrays = (size_t)s->plan.arrays * mine.stride * sizeof *mine.arrays;
  const size_t bytes = server_align(mine.state_bytes, PAGE) + arrays;
  s->node_rank = trm_alloc((size_t)node->size * sizeof *s->node_rank, "ranks of the node");
  node->ops->allgather(node, &(int32_t){comm->rank}, s->node_rank, 1, TRM_INT32);
  TRM_CHECK(trm_agree(comm, node->ops->share(node, bytes, TRM_MEMORY_BUFFERS, &s->shared)));
  const size_t numbers = (mine.last - mine.first) * sizeof *mine.number;
  return s->plan.order ? trm_agree(comm, node->ops->share(node, numbers, TRM_MEMORY_BUFFERS, &s->numbers)) : TRM_OK;
}

int param_server_owner(const struct param_server *s, int replica, size_t chunk)
{
  if (!server_is_centralized(s))
    return replica;
  return s->first_owner + (int)(((chunk + 1) * (size_t)s->owners - 1) / s->chunks); /* inverse of trm_interval */
}

int server_active_owners(const struct param_server *s)
{
  return !server_is_centralized(s) ? 1 : (size_t)s->owners < s->chunks ? s->owners : (int)s->chunks;
}

int server_active_owner(const struct param_server *s, int replica, int number)
{
  if (server_is_centralized(s) && (size_t)s->owners < s->chunks)
    return s->first_owner + number;
  return param_server_owner(s, replica, (size_t)number);
}

/* Dedicated servers (strategy.servers) are always sent to: workers do none of their work. */
bool param_server_is_direct(const struct param_server *s, int owner)
{
  return s->plan.servers == 0 && server_node_rank(s, owner) >= 0;
}

bool param_server_runs_calls(const struct param_server *s, int replica, size_t chunk)
{
  return param_server_is_direct(s, param_server_owner(s, replica, chunk));
}

int64_t param_server_clock(const struct param_server *s, int replica, size_t chunk)
{
  const struct server_shard shard = server_shard_of(s, param_server_owner(s, replica, chunk));
  return trm_counter_get(&server_state_at(s, &shard, chunk)->clock);
}

int server_reply_arrays(const struct param_server *s)
{
  return s->plan.reply_arrays > 0 ? s->plan.reply_arrays : 1;
}

/* -- calls */

struct server_head server_head_of(const struct param_server *s, const struct server_request *request, size_t chunk)
{
  const size_t at = chunk * SERVER_CHUNK, arrays = (size_t)server_reply_arrays(s);
  struct server_head head = {
    .replica = request->replica,
    .chunk = (uint32_t)chunk,
    .clock = request->seen ? request->seen[chunk] : 0,
    .held_since = -1,
    .call = {.kind = request->kind,
             .caller = s->plan.comm->rank,
             .per_chunk = request->per_chunk ? request->per_chunk[chunk] : 0,
             .in = request->in ? request->in + at : NULL,
             .out = request->out ? request->out + at * arrays : NULL},
  };
  memcpy(head.call.value, request->value, sizeof head.call.value);
  return head;
}

void server_call_done(const struct server_request *request, const struct server_head *head, int64_t *staleness)
{
  if (head->call.staleness > *staleness)
    *staleness = head->call.staleness;
  if (request->per_chunk)
    request->per_chunk[head->chunk] = head->call.per_chunk;
  if (request->seen && request->out)
    request->seen[head->chunk] = head->clock;
}

static struct chunk_state *server_state_of(const struct param_server *s, const struct server_head *head)
{
  const struct server_shard shard = server_shard_of(s, param_server_owner(s, head->replica, head->chunk));
  return server_state_at(s, &shard, head->chunk);
}

/* A chunk of a shard of this node, as handlers see it. */
static struct server_chunk server_view_of(const struct param_server *s, const struct server_shard *shard, int replica,
                                          size_t chunk)
{
  struct chunk_state *state = server_state_at(s, shard, chunk);
  const size_t low = chunk * SERVER_CHUNK;
  return (struct server_chunk){
    .replica = replica,
    .low = low,
    .n = server_chunk_size(s->plan.elements, chunk),
    .base = shard->arrays + (low - shard->low),
    .stride = shard->stride,
    .clock = &state->clock.value,
    .method_state = state->method_state,
  };
}

void param_server_visit(struct param_server *s, void (*visit)(void *context, const struct server_chunk *chunk),
                        void *context)
{
  const int rank = s->plan.comm->rank;
  const struct server_shard mine = server_shard_of(s, rank);
  for (size_t chunk = mine.first; chunk < mine.last; chunk++) {
    const struct server_chunk view = server_view_of(s, &mine, server_is_centralized(s) ? 0 : rank, chunk);
    visit(context, &view);
  }
}

bool param_server_try(struct param_server *s, struct server_head *head)
{
  struct trm_comm *node = s->plan.node;
  const struct server_shard shard = server_shard_of(s, param_server_owner(s, head->replica, head->chunk));
  struct chunk_state *state = server_state_of(s, head);
  const struct server_chunk view = server_view_of(s, &shard, head->replica, head->chunk);
  int64_t *number = shard.number ? shard.number + (head->chunk - shard.first) : NULL;
  trm_lock_acquire(node, &state->lock);
  struct call_order_call call = {
    head->replica, head->chunk, number ? *number : 0, head->call.caller, head->call.kind, 0};
  head->call.staleness = state->clock.value - head->clock;
  const bool may = !number || call_order_may_answer(s->plan.order, &call);
  if (s->plan.timed && may)
    head->call.time = call.time = call_order_time(number ? s->plan.order : NULL, &call, node->ops->clock(node));
  const bool answered = may && s->plan.handler(s->plan.context, &view, &head->call);
  if (answered) {
    if (number) {
      call_order_answered(s->plan.order, &call);
      ++*number;
    }
    head->clock = state->clock.value;
    trm_counter_set(node, &state->changes, trm_counter_get(&state->changes) + 1);
  }
  trm_lock_release(node, &state->lock);
  if (answered && head->held_since >= 0)
    head->held_s = node->ops->clock(node) - head->held_since;
  else if (!answered && head->held_since < 0)
    head->held_since = node->ops->clock(node);
  return answered;
}

/* A change of the counter, for wait_until. */
struct server_change {
  const struct trm_counter *changes;
  int64_t seen;
};

static bool server_has_changed(void *context)
{
  const struct server_change *change = context;
  return trm_counter_get(change->changes) != change->seen;
}

void param_server_run(struct param_server *s, struct server_head *head)
{
  struct trm_comm *node = s->plan.node;
  struct server_change change = {.changes = &server_state_of(s, head)->changes};
  for (;;) {
    change.seen = trm_counter_get(change.changes);
    if (param_server_try(s, head))
      return;
    node->ops->wait_until(node, server_has_changed, &change);
  }
}
