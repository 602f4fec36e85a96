/* Collectives of an axis by messages: shards are packed, sent and unpacked. */
#include <string.h>

#include "core/axis_shared.h"
#include "core/memory.h"
#include "core/trace.h"

enum { BUFFER_SHARD, BUFFER_RANKS, BUFFER_FULL }; /* indices of trm_axis.buffer */

void trm_axis_open(struct trm_axis *axis, struct trm_comm *comm, struct trm_device *device)
{
  *axis = (struct trm_axis){.comm = comm, .device = device};
}

void trm_axis_close(struct trm_axis *axis)
{
  for (int b = 0; b < 3; b++)
    trm_free(axis->buffer[b]);
  if (axis->node) {
    axis->node->ops->unshare(axis->node, &axis->shared);
    axis->node->ops->release(axis->node);
  }
  *axis = (struct trm_axis){0};
}

static double axis_clock(struct trm_axis *axis)
{
  return axis->comm->ops->clock(axis->comm);
}

/* Accounts for a call that began at `began`. */
static void axis_end(struct trm_axis *axis, const char *name, double began)
{
  axis->comm_s += axis_clock(axis) - began;
  trm_trace_end(name, TRM_TRACE_COMMUNICATION, began, TRM_TRACE_NO_IDS);
}

static float *axis_buffer(struct trm_axis *axis, int which, size_t n)
{
  if (axis->capacity[which] < n) {
    trm_free(axis->buffer[which]);
    axis->buffer[which] = trm_alloc(n * sizeof(float), "parts of other ranks");
    axis->capacity[which] = n;
  }
  return axis->buffer[which];
}

/* Returns a device array in host memory for reading; a copy if the device has separate memory. */
static const float *axis_host_input(struct trm_axis *axis, int which, const float *x, size_t n)
{
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    return x;
  }
  float *host = axis_buffer(axis, which, n);
  axis->device->ops->download(axis->device, host, x, n * sizeof *host);
  return host;
}

/* Returns host memory to write, which axis_upload_output then copies to the device array x. */
static float *axis_host_output(struct trm_axis *axis, int which, float *x, size_t n)
{
  return axis->device->host_memory ? x : axis_buffer(axis, which, n);
}

static void axis_upload_output(struct trm_axis *axis, const float *host, float *x, size_t n)
{
  if (host != x)
    axis->device->ops->upload(axis->device, x, host, n * sizeof *host);
}

static struct axis_sharding axis_sharding_of(const struct trm_axis *axis, size_t outer, size_t n, size_t inner)
{
  const size_t ranks = (size_t)axis->comm->size;
  return (struct axis_sharding){
    .outer = outer, .n = n, .inner = inner, .ranks = ranks, .max_n = (n + ranks - 1) / ranks};
}

static size_t axis_local_count(const struct trm_axis *axis, const struct axis_sharding *s)
{
  return axis_shard_count(s, (size_t)axis->comm->rank);
}

static void axis_host_allreduce(struct trm_axis *axis, float *x, size_t n)
{
  if (axis->node)
    axis_shared_allreduce(axis, x, n);
  else
    axis->comm->ops->allreduce(axis->comm, x, n, TRM_FLOAT, TRM_SUM);
}

static void axis_host_allgather(struct trm_axis *axis, const struct axis_sharding *s, const float *shard, float *full)
{
  const size_t block = axis_max_shard_count(s), self = (size_t)axis->comm->rank;
  if (axis->node) {
    axis_shared_allgather(axis, s, shard, full);
  } else if (s->outer == 1 && s->n % s->ranks == 0) { /* shards are contiguous and equal */
    axis->comm->ops->allgather(axis->comm, shard, full, block, TRM_FLOAT);
  } else {
    float *all = axis_buffer(axis, BUFFER_RANKS, s->ranks * block);
    memcpy(all + self * block, shard, axis_local_count(axis, s) * sizeof *all);
    axis->comm->ops->allgather(axis->comm, all + self * block, all, block, TRM_FLOAT);
    for (size_t rank = 0; rank < s->ranks; rank++)
      axis_insert(s, rank, 0, axis_shard_count(s, rank), all + rank * block, full);
  }
}

/* Reduce-scatter over messages, in buffers all (ranks, block) and mine (block): smaller shards are padded. */
static void axis_message_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full,
                                        float *shard)
{
  const size_t block = axis_max_shard_count(s);
  float *all = axis_buffer(axis, BUFFER_RANKS, s->ranks * block), *mine = axis_buffer(axis, BUFFER_SHARD, block);
  for (size_t rank = 0; rank < s->ranks; rank++)
    axis_extract(s, rank, 0, axis_shard_count(s, rank), full, all + rank * block);
  axis->comm->ops->reduce_scatter(axis->comm, all, mine, block, TRM_FLOAT, TRM_SUM); /* padding included */
  if (shard != mine)
    memcpy(shard, mine, axis_local_count(axis, s) * sizeof *shard);
}

void trm_axis_allreduce(struct trm_axis *axis, float *x, size_t n)
{
  const double begin = axis_clock(axis);
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    axis_host_allreduce(axis, x, n);
  } else {
    float *host = axis_buffer(axis, BUFFER_FULL, n);
    axis->device->ops->download(axis->device, host, x, n * sizeof *host);
    axis_host_allreduce(axis, host, n);
    axis_upload_output(axis, host, x, n);
  }
  axis_end(axis, "sum over the axis", begin);
}

void trm_axis_allgather(struct trm_axis *axis, const float *shard, float *full, size_t outer, size_t n, size_t inner)
{
  const double begin = axis_clock(axis);
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner);
  const float *mine = axis_host_input(axis, BUFFER_SHARD, shard, axis_local_count(axis, &s));
  float *to = axis_host_output(axis, BUFFER_FULL, full, outer * n * inner);
  axis_host_allgather(axis, &s, mine, to);
  axis_upload_output(axis, to, full, outer * n * inner);
  axis_end(axis, "gather", begin);
}

void trm_axis_slice(struct trm_axis *axis, const float *full, float *shard, size_t outer, size_t n, size_t inner)
{
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner);
  const float *from = axis_host_input(axis, BUFFER_FULL, full, outer * n * inner);
  float *to = axis_host_output(axis, BUFFER_SHARD, shard, axis_local_count(axis, &s));
  axis_extract(&s, (size_t)axis->comm->rank, 0, axis_local_count(axis, &s), from, to);
  axis_upload_output(axis, to, shard, axis_local_count(axis, &s));
}

void trm_axis_reduce_scatter(struct trm_axis *axis, const float *full, float *shard, size_t outer, size_t n,
                             size_t inner)
{
  const double begin = axis_clock(axis);
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner);
  const float *from = axis_host_input(axis, BUFFER_FULL, full, outer * n * inner);
  float *to = axis_host_output(axis, BUFFER_SHARD, shard, axis_max_shard_count(&s));
  if (axis->node)
    axis_shared_reduce_scatter(axis, &s, from, to);
  else
    axis_message_reduce_scatter(axis, &s, from, to);
  axis_upload_output(axis, to, shard, axis_local_count(axis, &s));
  axis_end(axis, "scatter sum", begin);
}

const float *trm_axis_allgather_host(struct trm_axis *axis, const float *x, size_t n)
{
  const double begin = axis_clock(axis);
  const size_t ranks = (size_t)axis->comm->size;
  const float *mine = axis_host_input(axis, BUFFER_SHARD, x, n);
  float *all = axis_buffer(axis, BUFFER_RANKS, ranks * n);
  if (axis->node) {
    const struct axis_sharding s = axis_sharding_of(axis, 1, ranks * n, 1);
    axis_shared_allgather(axis, &s, mine, all);
  } else {
    axis->comm->ops->allgather(axis->comm, mine, all, n, TRM_FLOAT);
  }
  axis_end(axis, "gather", begin);
  return all;
}
