#include "cli/bench/bench_collective.h"

#include <math.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"
#include "plan/planner.h"

#define MIN_POOL_BYTES ((size_t)64 << 20)
#define PAGE_BYTES ((size_t)4096)
#define TARGET_S 0.5 /* of an algorithm at a size */
enum { MIN_ROUNDS = 3 };

/* -- pools */

size_t bench_pool_bytes(int ranks, size_t max_bytes)
{
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE); /* of all cores: 0 or -1 where it is not known */
  size_t bytes = cache > 0 ? 5 * (size_t)cache / 2 / (size_t)ranks : 0;
  bytes = bytes > MIN_POOL_BYTES ? bytes : MIN_POOL_BYTES;
  return bytes > 2 * max_bytes ? bytes : 2 * max_bytes;
}

static size_t bench_pool_stride(size_t bytes)
{
  return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

size_t bench_pool_rounds(const struct bench_pool *pool, size_t bytes)
{
  const size_t rounds = pool->bytes / 2 / bench_pool_stride(bytes);
  return rounds > 0 ? rounds : 1;
}

void bench_pool_fill(const struct bench_pool *pool, float value)
{
  float *to = (float *)pool->data;
  for (size_t i = 0; i < pool->bytes / sizeof *to; i++)
    to[i] = value;
}

void *bench_pool_array(const struct bench_pool *pool, size_t bytes, size_t round)
{
  return pool->data + round * bench_pool_stride(bytes);
}

struct bench_spread bench_spread(double *seconds, size_t n)
{
  return (struct bench_spread){.median = bench_median(seconds, n),
                               .low = trm_quantile(seconds, n, 0.25),
                               .high = trm_quantile(seconds, n, 0.75)};
}

/* -- one collective */

/* Elements of the array, or of each rank's row of it. */
static size_t bench_collective_count(const struct bench_collective *c)
{
  const bool has_rows = c->kind == COLL_ALLGATHER || c->kind == COLL_REDUCE_SCATTER;
  return c->bytes / sizeof(float) / (has_rows ? (size_t)c->comm->size : 1);
}

/* mine: of reduce-scatter, (count). */
static void bench_collective_once(const struct bench_collective *c, float *data, float *mine)
{
  const struct trm_comm_ops *ops = c->comm->ops;
  const size_t count = bench_collective_count(c);
  switch (c->kind) {
  case COLL_ALLREDUCE:
    ops->allreduce(c->comm, data, count, TRM_FLOAT, TRM_SUM);
    break;
  case COLL_TREE_SUM:
    ops->allreduce(c->comm, data, count, TRM_FLOAT, TRM_TREE_SUM);
    break;
  case COLL_ALLGATHER:
    ops->allgather(c->comm, data + (size_t)c->comm->rank * count, data, count, TRM_FLOAT);
    break;
  case COLL_REDUCE_SCATTER:
    ops->reduce_scatter(c->comm, data, mine, count, TRM_FLOAT, TRM_SUM);
    break;
  case COLL_BROADCAST:
    ops->broadcast(c->comm, data, count, TRM_FLOAT, 0);
    break;
  case COLL_KINDS:
    break;
  }
}

/* Every float of rank r was r + 1. */
static int bench_collective_verify(const struct bench_collective *c, const float *data, const float *mine)
{
  const size_t count = bench_collective_count(c), size = (size_t)c->comm->size;
  const bool gathers = c->kind == COLL_ALLGATHER;
  const float *result = c->kind == COLL_REDUCE_SCATTER ? mine : data;
  for (size_t i = 0; i < count * (gathers ? size : 1); i++) {
    const float expected = gathers                     ? (float)(i / count + 1)
                           : c->kind == COLL_BROADCAST ? 1
                                                       : (float)(size * (size + 1) / 2);
    if (result[i] != expected)
      return trm_error(TRM_FAILED, "bench allreduce: %s by %s of %zu bytes: element %zu is %g, must be %g",
                       coll_kind_names[c->kind], coll_name(c->ops), c->bytes, i, (double)result[i], (double)expected);
  }
  return TRM_OK;
}

/* One round; its seconds are this rank's. */
static double bench_collective_time(const struct bench_collective *c, size_t round, float *mine)
{
  float *data = bench_pool_array(c->pool, c->bytes, round);
  c->world->ops->barrier(c->world);
  const double begin = c->world->ops->clock(c->world);
  bench_collective_once(c, data, mine);
  return c->world->ops->clock(c->world) - begin;
}

static int bench_collective_measure(struct bench_collective *c, float *mine)
{
  const float value = (float)(c->comm->rank + 1);
  const size_t batch = bench_pool_rounds(c->pool, c->bytes);
  bench_pool_fill(c->pool, value);
  double first = bench_collective_time(c, 0, mine);
  TRM_CHECK(trm_agree(c->world, bench_collective_verify(c, bench_pool_array(c->pool, c->bytes, 0), mine)));
  bench_slowest(c->world, &first, 1);
  const double wanted = c->rounds > 0 ? (double)c->rounds : fmax(MIN_ROUNDS, ceil(TARGET_S / first));
  c->measured = (size_t)fmin(wanted, (double)c->max_rounds);
  for (size_t round = 0; round < c->measured; round++) {
    if (round % batch == 0)
      bench_pool_fill(c->pool, value);
    c->seconds[round] = bench_collective_time(c, round % batch, mine);
  }
  bench_slowest(c->world, c->seconds, c->measured);
  return TRM_OK;
}

int bench_collective_run(struct bench_collective *c)
{
  float *mine = trm_alloc(bench_collective_count(c) * sizeof *mine, "bench: a row");
  struct coll_choices choices = {0};
  for (int across = 0; across < 2; across++)
    coll_choices_add(&choices, &(struct coll_choice){c->kind, across, c->comm->size, 0, c->ops, NAN});
  trm_comm_set_collectives(c->world, &choices);
  const int status = bench_collective_measure(c, mine);
  trm_comm_set_collectives(c->world, NULL);
  coll_choices_free(&choices);
  trm_free(mine);
  return status;
}
