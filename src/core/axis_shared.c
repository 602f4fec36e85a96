/* Collectives of an axis through shared memory: each rank has a slot, which it writes and others read. A slot is a
 * double buffer. Ranks write a half, enter a barrier, and read it; before a half is written again, the barrier of the
 * other half ensures that all ranks have read it. Large arrays are transferred in chunks of at most a half, which stay
 * in cache. A rank's own values are read and results written in place. Sums are added in rank order. */
#include <string.h>

#include "core/axis_shared.h"
#include "core/clones.h"
#include "core/log.h"
#include "core/status.h"

enum { HALF = 1 << 18 }; /* elements, of at most the bytes of a float */

void trm_axis_share_memory(struct trm_axis *axis, enum trm_share domain)
{
  struct trm_comm *comm = axis->comm, *node = comm->ops->split_node(comm, domain);
  int32_t shareable = node->size == comm->size && comm->size > 1;
  comm->ops->allreduce(comm, &shareable, 1, TRM_INT32, TRM_MIN);
  if (shareable && node->ops->share(node, 2 * HALF * sizeof(float), TRM_MEMORY_BUFFERS, &axis->shared) == TRM_OK) {
    axis->node = node;
    return;
  }
  if (shareable)
    trm_info("parallel.tensor: without shared memory, values go in messages: %s", trm_error_text());
  node->ops->release(node);
}

static float *axis_shared_slot(const struct trm_axis *axis, size_t rank)
{
  return (float *)axis->shared.base[rank] + (size_t)axis->half * HALF;
}

static void axis_shared_barrier(struct trm_axis *axis)
{
  axis->node->ops->barrier(axis->node);
}

static void axis_shared_flip(struct trm_axis *axis)
{
  axis->half = 1 - axis->half;
}

/* Sets to (n) to a + b; to may be a. */
CPU_CLONES static void axis_shared_add(float *to, const float *a, const float *b, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = a[i] + b[i];
}

/* Sets to (n) to the sum over the ranks in ascending order: of `mine` for this rank, of the slot from `at` on for the
 * others. */
static void axis_shared_sum_slots(const struct trm_axis *axis, float *to, const float *mine, size_t at, size_t n)
{
  const size_t self = (size_t)axis->node->rank;
  const float *before = self == 0 ? mine : axis_shared_slot(axis, 0) + at;
  for (size_t rank = 1; rank < (size_t)axis->node->size; rank++) {
    axis_shared_add(to, before, rank == self ? mine : axis_shared_slot(axis, rank) + at, n);
    before = to;
  }
}

static size_t axis_shared_min(size_t n, size_t max)
{
  return n < max ? n : max;
}

void axis_shared_allreduce(struct trm_axis *axis, float *x, size_t n)
{
  const size_t ranks = (size_t)axis->node->size, self = (size_t)axis->node->rank;
  for (size_t at = 0; at < n; at += HALF) {
    const size_t count = axis_shared_min(n - at, HALF);
    float *slot = axis_shared_slot(axis, self), *chunk = x + at;
    size_t low, high;
    trm_interval(count, ranks, self, &low, &high);
    memcpy(slot, chunk, low * sizeof *slot);
    memcpy(slot + high, chunk + high, (count - high) * sizeof *slot);
    axis_shared_barrier(axis);
    axis_shared_sum_slots(axis, slot + low, chunk + low, low, high - low);
    axis_shared_barrier(axis);
    for (size_t rank = 0; rank < ranks; rank++) {
      trm_interval(count, ranks, rank, &low, &high);
      memcpy(chunk + low, axis_shared_slot(axis, rank) + low, (high - low) * sizeof *chunk);
    }
    axis_shared_flip(axis);
  }
}

/* Number of elements of the rank's shard in [at, at + limit). */
static size_t axis_shared_chunk(const struct axis_sharding *s, size_t rank, size_t at, size_t limit)
{
  const size_t count = axis_shard_count(s, rank);
  return at < count ? axis_shared_min(count - at, limit) : 0;
}

void axis_shared_allgather(struct trm_axis *axis, const struct axis_sharding *s, const void *shard, void *full)
{
  const size_t self = (size_t)axis->node->rank;
  for (size_t at = 0; at < axis_max_shard_count(s); at += HALF) {
    const size_t n = axis_shared_chunk(s, self, at, HALF);
    const void *chunk = (const char *)shard + at * s->size;
    memcpy(axis_shared_slot(axis, self), chunk, n * s->size);
    axis_insert(s, self, at, n, chunk, full);
    axis_shared_barrier(axis);
    for (size_t rank = 0; rank < s->ranks; rank++)
      if (rank != self)
        axis_insert(s, rank, at, axis_shared_chunk(s, rank, at, HALF), axis_shared_slot(axis, rank), full);
    axis_shared_flip(axis);
  }
}

void axis_shared_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full, float *shard)
{
  const size_t self = (size_t)axis->node->rank, limit = HALF / s->ranks; /* floats per chunk */
  for (size_t at = 0; at < axis_max_shard_count(s); at += limit) {
    for (size_t rank = 0; rank < s->ranks; rank++)
      if (rank != self)
        axis_extract(s, rank, at, axis_shared_chunk(s, rank, at, limit), full,
                     axis_shared_slot(axis, self) + rank * limit);
    axis_shared_barrier(axis);
    const size_t n = axis_shared_chunk(s, self, at, limit);
    for (size_t done = 0, run, offset; done < n; done += run) {
      run = axis_contiguous_run(s, self, at + done, n - done, &offset);
      axis_shared_sum_slots(axis, shard + at + done, full + offset, self * limit + done, run);
    }
    axis_shared_flip(axis);
  }
}
