#include "cli/bench/bench_shared.h"

#include <math.h>

#include "core/memory.h"
#include "core/status.h"

#define CHUNK_BYTES ((size_t)4 << 20) /* sent at a time, as parallel.bucket */
#define TARGET_S 0.5
enum { MIN_ROUNDS = 3 };

/* -- groups and arrays */

static void bench_shared_make_groups(struct bench_shared *s)
{
  struct trm_comm *comm = s->comm;
  int32_t slices = s->node->size, first = comm->rank;
  size_t low, high;
  comm->ops->allreduce(comm, &slices, 1, TRM_INT32, TRM_MAX);
  s->node->ops->broadcast(s->node, &first, 1, TRM_INT32, 0);
  trm_interval((size_t)slices, (size_t)s->node->size, (size_t)s->node->rank, &low, &high);
  s->slices = slices;
  s->first = (int)low;
  s->owned = (int)(high - low);
  s->cross = trm_alloc((size_t)s->owned * sizeof *s->cross, "bench: communicators");
  for (int slice = 0; slice < slices; slice++) {
    const bool owned = slice >= s->first && slice < s->first + s->owned;
    struct trm_comm *cross = comm->ops->split(comm, owned ? 0 : -1, first);
    if (owned)
      s->cross[slice - s->first] = cross;
  }
}

int bench_shared_open(struct bench_shared *s, struct trm_device *device, struct trm_comm *comm, size_t pool_bytes,
                      size_t max_bytes)
{
  *s = (struct bench_shared){.device = device, .comm = comm};
  s->node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  s->from = trm_alloc((size_t)s->node->size * sizeof *s->from, "bench: addresses");
  bench_shared_make_groups(s);
  TRM_CHECK(s->node->ops->share(s->node, pool_bytes, TRM_MEMORY_BUFFERS, &s->inputs));
  s->pool = (struct bench_pool){s->inputs.local, pool_bytes};
  return s->node->ops->share(s->node, s->node->rank == 0 ? max_bytes : 0, TRM_MEMORY_BUFFERS, &s->sum);
}

void bench_shared_close(struct bench_shared *s)
{
  if (!s->node)
    return;
  if (s->sum.base)
    s->node->ops->unshare(s->node, &s->sum);
  if (s->inputs.base)
    s->node->ops->unshare(s->node, &s->inputs);
  for (int i = 0; i < s->owned; i++)
    s->cross[i]->ops->release(s->cross[i]);
  s->node->ops->release(s->node);
  trm_free(s->cross);
  trm_free(s->from);
}

/* -- one sum */

/* The elements [low, high) of the node, then of all nodes: the request is NULL if there are no others. */
static void bench_shared_add(struct bench_shared *s, struct trm_comm *cross, size_t bytes, size_t round, size_t low,
                             size_t high, struct trm_request **request)
{
  float *to = (float *)s->sum.base[0] + low;
  for (int i = 0; i < s->node->size; i++) {
    const struct bench_pool pool = {s->inputs.base[i], s->pool.bytes};
    s->from[i] = (const float *)bench_pool_array(&pool, bytes, round) + low;
  }
  s->device->ops->sum(s->device,
                      &(struct trm_sum){.to = to, .from = s->from, .count = s->node->size, .n = high - low});
  s->device->ops->sync(s->device); /* only the CPU device shares memory, and its sums record no failure */
  *request = NULL;
  if (cross->size > 1)
    cross->ops->allreduce_begin(cross, to, high - low, TRM_FLOAT, TRM_SUM, request);
}

static size_t bench_shared_chunks(const struct trm_comm *cross, size_t elements)
{
  const size_t chunks = (elements * sizeof(float) + CHUNK_BYTES - 1) / CHUNK_BYTES;
  return cross->size > 1 && chunks > 0 ? chunks : 1;
}

/* Sends a chunk while the next one is added. */
static void bench_shared_once(struct bench_shared *s, size_t bytes, size_t round)
{
  size_t requests = 0, capacity = 0;
  struct trm_request **request = NULL;
  s->node->ops->barrier(s->node);
  for (int i = 0; i < s->owned; i++) {
    size_t low, high;
    trm_interval(bytes / sizeof(float), (size_t)s->slices, (size_t)(s->first + i), &low, &high);
    const size_t chunks = bench_shared_chunks(s->cross[i], high - low);
    for (size_t c = 0; c < chunks; c++) {
      size_t from, to;
      trm_interval(high - low, chunks, c, &from, &to);
      request = trm_grow(request, &capacity, requests, requests + 1, sizeof *request, "bench: requests");
      bench_shared_add(s, s->cross[i], bytes, round, low + from, low + to, &request[requests++]);
    }
  }
  for (size_t i = 0; i < requests; i++)
    s->comm->ops->wait(&request[i]);
  trm_free(request);
  s->node->ops->barrier(s->node);
}

static double bench_shared_time(struct bench_shared *s, size_t bytes, size_t round)
{
  s->comm->ops->barrier(s->comm);
  const double begin = s->comm->ops->clock(s->comm);
  bench_shared_once(s, bytes, round);
  return s->comm->ops->clock(s->comm) - begin;
}

/* Every float of rank r is r + 1. */
static int bench_shared_verify(const struct bench_shared *s, size_t bytes)
{
  const float *sum = s->sum.base[0];
  const float expected = (float)s->comm->size * (float)(s->comm->size + 1) / 2;
  for (size_t i = 0; i < bytes / sizeof *sum; i++)
    if (sum[i] != expected)
      return trm_error(TRM_FAILED, "bench allreduce: shared of %zu bytes: element %zu is %g, must be %g", bytes, i,
                       (double)sum[i], (double)expected);
  return TRM_OK;
}

int bench_shared_run(struct bench_shared *s, size_t bytes, size_t rounds, size_t max_rounds, double *seconds,
                     size_t *measured)
{
  const float value = (float)(s->comm->rank + 1);
  const size_t batch = bench_pool_rounds(&s->pool, bytes);
  bench_pool_fill(&s->pool, value);
  double first = bench_shared_time(s, bytes, 0);
  TRM_CHECK(trm_agree(s->comm, bench_shared_verify(s, bytes)));
  bench_slowest(s->comm, &first, 1);
  *measured = (size_t)fmin((double)max_rounds, rounds > 0 ? (double)rounds : fmax(MIN_ROUNDS, TARGET_S / first));
  for (size_t round = 0; round < *measured; round++) {
    if (round % batch == 0)
      bench_pool_fill(&s->pool, value);
    seconds[round] = bench_shared_time(s, bytes, round % batch);
  }
  bench_slowest(s->comm, seconds, *measured);
  return TRM_OK;
}
