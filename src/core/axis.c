/* Collectives of an axis by messages: shards are packed, sent and unpacked. */
#include <string.h>

#include "core/axis_shared.h"
#include "core/memory.h"
#include "core/trace.h"

enum { BUFFER_SHARD, BUFFER_RANKS, BUFFER_FULL, BUFFER_WIDE, BUFFER_SUM, BUFFERS }; /* indices of trm_axis.buffer */

void trm_axis_open(struct trm_axis *axis, struct trm_comm *comm, struct trm_device *device)
{
  *axis = (struct trm_axis){.comm = comm, .device = device};
}

static void axis_free_buffer(struct trm_axis *axis, int which)
{
  if (axis->buffer[which])
    axis->device->ops->unpin(axis->device, axis->buffer[which]);
  trm_free(axis->buffer[which]);
}

void trm_axis_close(struct trm_axis *axis)
{
  for (int b = 0; b < BUFFERS; b++)
    axis_free_buffer(axis, b);
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
  const double ended = axis_clock(axis);
  axis->comm_s += ended - began;
  trm_trace_add(name, TRM_TRACE_COMMUNICATION, began, ended, TRM_TRACE_NO_IDS);
}

/* Returns memory for n elements of `size` bytes. */
static void *axis_buffer(struct trm_axis *axis, int which, size_t n, size_t size)
{
  if (axis->capacity[which] < n * size) {
    axis_free_buffer(axis, which);
    axis->buffer[which] = trm_alloc(n * size, "parts of other ranks");
    axis->device->ops->pin(axis->device, axis->buffer[which], n * size);
    axis->capacity[which] = n * size;
  }
  return axis->buffer[which];
}

/* Returns a device array in host memory for reading; a copy if the device has separate memory. */
static const void *axis_host_input(struct trm_axis *axis, int which, const void *x, size_t n, size_t size)
{
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    return x;
  }
  void *host = axis_buffer(axis, which, n, size);
  axis->device->ops->download(axis->device, host, x, n * size);
  return host;
}

/* Returns host memory to write, which axis_upload_output then copies to the device array x. */
static void *axis_host_output(struct trm_axis *axis, int which, void *x, size_t n, size_t size)
{
  return axis->device->host_memory ? x : axis_buffer(axis, which, n, size);
}

static void axis_upload_output(struct trm_axis *axis, const void *host, void *x, size_t n, size_t size)
{
  if (host != x)
    axis->device->ops->upload(axis->device, x, host, n * size);
}

static struct axis_sharding axis_sharding_of(const struct trm_axis *axis, size_t outer, size_t n, size_t inner,
                                             size_t size)
{
  const size_t ranks = (size_t)axis->comm->size;
  return (struct axis_sharding){
    .outer = outer, .n = n, .inner = inner, .size = size, .ranks = ranks, .max_n = (n + ranks - 1) / ranks};
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

/* All-gather of `count` elements of `size` bytes of each rank. */
static void axis_message_allgather(struct trm_axis *axis, const void *mine, void *all, size_t count, size_t size)
{
  const bool floats = size == sizeof(float);
  axis->comm->ops->allgather(axis->comm, mine, all, floats ? count : count * size, floats ? TRM_FLOAT : TRM_BYTE);
}

static void axis_host_allgather(struct trm_axis *axis, const struct axis_sharding *s, const void *shard, void *full)
{
  const size_t block = axis_max_shard_count(s), self = (size_t)axis->comm->rank;
  if (axis->node) {
    axis_shared_allgather(axis, s, shard, full);
  } else if (s->outer == 1 && s->n % s->ranks == 0) { /* shards are contiguous and equal */
    axis_message_allgather(axis, shard, full, block, s->size);
  } else {
    char *all = axis_buffer(axis, BUFFER_RANKS, s->ranks * block, s->size), *mine = all + self * block * s->size;
    memcpy(mine, shard, axis_local_count(axis, s) * s->size);
    axis_message_allgather(axis, mine, all, block, s->size);
    for (size_t rank = 0; rank < s->ranks; rank++)
      axis_insert(s, rank, 0, axis_shard_count(s, rank), all + rank * block * s->size, full);
  }
}

/* Reduce-scatter of floats over messages, in buffers all (ranks, block) and mine (block): smaller shards are padded. */
static void axis_message_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full,
                                        float *shard)
{
  const size_t block = axis_max_shard_count(s);
  float *all = axis_buffer(axis, BUFFER_RANKS, s->ranks * block, sizeof *all);
  float *mine = axis_buffer(axis, BUFFER_SHARD, block, sizeof *mine);
  for (size_t rank = 0; rank < s->ranks; rank++)
    axis_extract(s, rank, 0, axis_shard_count(s, rank), full, all + rank * block);
  axis->comm->ops->reduce_scatter(axis->comm, all, mine, block, TRM_FLOAT, TRM_SUM); /* padding included */
  if (shard != mine)
    memcpy(shard, mine, axis_local_count(axis, s) * sizeof *shard);
}

void trm_axis_allreduce(struct trm_axis *axis, void *x, size_t n, enum trm_value_type type)
{
  const double begin = axis_clock(axis);
  const size_t size = trm_value_bytes(type);
  void *host = axis_host_output(axis, BUFFER_FULL, x, n, size);
  axis_host_input(axis, BUFFER_FULL, x, n, size);
  if (type == TRM_VALUES_F32) {
    axis_host_allreduce(axis, host, n);
  } else {
    float *wide = axis_buffer(axis, BUFFER_WIDE, n, sizeof *wide);
    trm_bf16_widen(wide, host, n);
    axis_host_allreduce(axis, wide, n);
    trm_bf16_narrow(host, wide, n);
  }
  axis_upload_output(axis, host, x, n, size);
  axis_end(axis, "sum over the axis", begin);
}

void trm_axis_allgather(struct trm_axis *axis, const void *shard, void *full, size_t outer, size_t n, size_t inner,
                        enum trm_value_type type)
{
  const double begin = axis_clock(axis);
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner, trm_value_bytes(type));
  const void *mine = axis_host_input(axis, BUFFER_SHARD, shard, axis_local_count(axis, &s), s.size);
  void *to = axis_host_output(axis, BUFFER_FULL, full, outer * n * inner, s.size);
  axis_host_allgather(axis, &s, mine, to);
  axis_upload_output(axis, to, full, outer * n * inner, s.size);
  axis_end(axis, "gather", begin);
}

void trm_axis_slice(struct trm_axis *axis, const void *full, void *shard, size_t outer, size_t n, size_t inner,
                    enum trm_value_type type)
{
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner, trm_value_bytes(type));
  const void *from = axis_host_input(axis, BUFFER_FULL, full, outer * n * inner, s.size);
  void *to = axis_host_output(axis, BUFFER_SHARD, shard, axis_local_count(axis, &s), s.size);
  axis_extract(&s, (size_t)axis->comm->rank, 0, axis_local_count(axis, &s), from, to);
  axis_upload_output(axis, to, shard, axis_local_count(axis, &s), s.size);
}

static void axis_host_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full,
                                     float *shard)
{
  if (axis->node)
    axis_shared_reduce_scatter(axis, s, full, shard);
  else
    axis_message_reduce_scatter(axis, s, full, shard);
}

void trm_axis_reduce_scatter(struct trm_axis *axis, const void *full, void *shard, size_t outer, size_t n, size_t inner,
                             enum trm_value_type type)
{
  const double begin = axis_clock(axis);
  const size_t size = trm_value_bytes(type);
  const struct axis_sharding s = axis_sharding_of(axis, outer, n, inner, sizeof(float));
  const size_t all = outer * n * inner, own = axis_local_count(axis, &s);
  const void *from = axis_host_input(axis, BUFFER_FULL, full, all, size);
  void *to = axis_host_output(axis, BUFFER_SHARD, shard, axis_max_shard_count(&s), sizeof(float));
  if (type == TRM_VALUES_F32) {
    axis_host_reduce_scatter(axis, &s, from, to);
  } else {
    float *wide = axis_buffer(axis, BUFFER_WIDE, all, sizeof *wide);
    float *sum = axis_buffer(axis, BUFFER_SUM, own, sizeof *sum);
    trm_bf16_widen(wide, from, all);
    axis_host_reduce_scatter(axis, &s, wide, sum);
    trm_bf16_narrow(to, sum, own);
  }
  axis_upload_output(axis, to, shard, own, size);
  axis_end(axis, "scatter sum", begin);
}

const float *trm_axis_allgather_host(struct trm_axis *axis, const float *x, size_t n)
{
  const double begin = axis_clock(axis);
  const size_t ranks = (size_t)axis->comm->size;
  const float *mine = axis_host_input(axis, BUFFER_SHARD, x, n, sizeof *x);
  float *all = axis_buffer(axis, BUFFER_RANKS, ranks * n, sizeof *all);
  if (axis->node) {
    const struct axis_sharding s = axis_sharding_of(axis, 1, ranks * n, 1, sizeof *x);
    axis_shared_allgather(axis, &s, mine, all);
  } else {
    axis->comm->ops->allgather(axis->comm, mine, all, n, TRM_FLOAT);
  }
  axis_end(axis, "gather", begin);
  return all;
}
