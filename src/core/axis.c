/* Divided arrays: parts are packed for the wire and unpacked on the other side. */
#include <string.h>

#include "core/axis_private.h"
#include "core/memory.h"
#include "core/trace.h"

enum { MINE, ALL, WHOLE }; /* the buffers */

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

static double clock_of(struct trm_axis *axis)
{
  return axis->comm->ops->clock(axis->comm);
}

static float *buffer_of(struct trm_axis *axis, int which, size_t n)
{
  if (axis->room[which] < n) {
    trm_free(axis->buffer[which]);
    axis->buffer[which] = trm_alloc(n * sizeof(float), "parts of other ranks");
    axis->room[which] = n;
  }
  return axis->buffer[which];
}

/* A device array on the host, to be read. */
static const float *host_read(struct trm_axis *axis, int which, const float *x, size_t n)
{
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    return x;
  }
  float *host = buffer_of(axis, which, n);
  axis->device->ops->download(axis->device, host, x, n * sizeof *host);
  return host;
}

/* Where the host writes what is to be in a device array; host_done then brings it there. */
static float *host_write(struct trm_axis *axis, int which, float *x, size_t n)
{
  return axis->device->host_memory ? x : buffer_of(axis, which, n);
}

static void host_done(struct trm_axis *axis, const float *host, float *x, size_t n)
{
  if (host != x)
    axis->device->ops->upload(axis->device, x, host, n * sizeof *host);
}

static struct division division_of(const struct trm_axis *axis, size_t outer, size_t n, size_t inner)
{
  const size_t ranks = (size_t)axis->comm->size;
  return (struct division){.outer = outer, .n = n, .inner = inner, .ranks = ranks, .most = (n + ranks - 1) / ranks};
}

size_t axis_run(const struct division *d, size_t rank, size_t at, size_t left, size_t *offset)
{
  size_t low, high;
  trm_interval(d->n, d->ranks, rank, &low, &high);
  const size_t row = (high - low) * d->inner, within = at % row;
  *offset = (at / row * d->n + low) * d->inner + within;
  return row - within < left ? row - within : left;
}

void axis_part_copy(const struct division *d, size_t rank, size_t at, size_t n, const float *whole, float *part)
{
  for (size_t done = 0, run, offset; done < n; done += run) {
    run = axis_run(d, rank, at + done, n - done, &offset);
    memcpy(part + done, whole + offset, run * sizeof *part);
  }
}

void axis_part_place(const struct division *d, size_t rank, size_t at, size_t n, const float *part, float *whole)
{
  for (size_t done = 0, run, offset; done < n; done += run) {
    run = axis_run(d, rank, at + done, n - done, &offset);
    memcpy(whole + offset, part + done, run * sizeof *whole);
  }
}

size_t axis_part_count(const struct division *d, size_t rank)
{
  size_t low, high;
  trm_interval(d->n, d->ranks, rank, &low, &high);
  return d->outer * (high - low) * d->inner;
}

size_t axis_block_count(const struct division *d)
{
  return d->outer * d->most * d->inner;
}

static size_t own_count(const struct trm_axis *axis, const struct division *d)
{
  return axis_part_count(d, (size_t)axis->comm->rank);
}

/* The sum on the host. */
static void host_sum(struct trm_axis *axis, float *x, size_t n)
{
  if (axis->node)
    axis_shared_sum(axis, x, n);
  else
    axis->comm->ops->allreduce(axis->comm, x, n, TRM_FLOAT, TRM_SUM);
}

static void host_gather(struct trm_axis *axis, const struct division *d, const float *part, float *whole)
{
  const size_t block = axis_block_count(d), own = (size_t)axis->comm->rank;
  if (axis->node) {
    axis_shared_gather(axis, d, part, whole);
  } else if (d->outer == 1 && d->n % d->ranks == 0) { /* the blocks follow one another in the whole */
    axis->comm->ops->allgather(axis->comm, part, whole, block, TRM_FLOAT);
  } else {
    float *all = buffer_of(axis, ALL, d->ranks * block);
    memcpy(all + own * block, part, own_count(axis, d) * sizeof *all);
    axis->comm->ops->allgather(axis->comm, all + own * block, all, block, TRM_FLOAT);
    for (size_t rank = 0; rank < d->ranks; rank++)
      axis_part_place(d, rank, 0, axis_part_count(d, rank), all + rank * block, whole);
  }
}

/* By messages: all (ranks, block) and mine (block) are buffers, since small parts have less than a block. */
static void messages_scatter_sum(struct trm_axis *axis, const struct division *d, const float *whole, float *part)
{
  const size_t block = axis_block_count(d);
  float *all = buffer_of(axis, ALL, d->ranks * block), *mine = buffer_of(axis, MINE, block);
  for (size_t rank = 0; rank < d->ranks; rank++)
    axis_part_copy(d, rank, 0, axis_part_count(d, rank), whole, all + rank * block);
  axis->comm->ops->reduce_scatter(axis->comm, all, mine, block, TRM_FLOAT, TRM_SUM); /* what is beyond a part, too */
  if (part != mine)
    memcpy(part, mine, own_count(axis, d) * sizeof *part);
}

void trm_axis_sum(struct trm_axis *axis, float *x, size_t n)
{
  const double begin = clock_of(axis);
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    host_sum(axis, x, n);
  } else {
    float *host = buffer_of(axis, WHOLE, n);
    axis->device->ops->download(axis->device, host, x, n * sizeof *host);
    host_sum(axis, host, n);
    host_done(axis, host, x, n);
  }
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("sum over the axis", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

void trm_axis_gather(struct trm_axis *axis, const float *part, float *whole, size_t outer, size_t n, size_t inner)
{
  const double begin = clock_of(axis);
  const struct division d = division_of(axis, outer, n, inner);
  const float *mine = host_read(axis, MINE, part, own_count(axis, &d));
  float *to = host_write(axis, WHOLE, whole, outer * n * inner);
  host_gather(axis, &d, mine, to);
  host_done(axis, to, whole, outer * n * inner);
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("gather", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

void trm_axis_take(struct trm_axis *axis, const float *whole, float *part, size_t outer, size_t n, size_t inner)
{
  const struct division d = division_of(axis, outer, n, inner);
  const float *from = host_read(axis, WHOLE, whole, outer * n * inner);
  float *to = host_write(axis, MINE, part, own_count(axis, &d));
  axis_part_copy(&d, (size_t)axis->comm->rank, 0, own_count(axis, &d), from, to);
  host_done(axis, to, part, own_count(axis, &d));
}

void trm_axis_scatter_sum(struct trm_axis *axis, const float *whole, float *part, size_t outer, size_t n, size_t inner)
{
  const double begin = clock_of(axis);
  const struct division d = division_of(axis, outer, n, inner);
  const float *from = host_read(axis, WHOLE, whole, outer * n * inner);
  float *to = host_write(axis, MINE, part, axis_block_count(&d));
  if (axis->node)
    axis_shared_scatter_sum(axis, &d, from, to);
  else
    messages_scatter_sum(axis, &d, from, to);
  host_done(axis, to, part, own_count(axis, &d));
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("scatter sum", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

const float *trm_axis_collect(struct trm_axis *axis, const float *x, size_t n)
{
  const double begin = clock_of(axis);
  const size_t ranks = (size_t)axis->comm->size;
  const float *mine = host_read(axis, MINE, x, n);
  float *all = buffer_of(axis, ALL, ranks * n);
  if (axis->node) {
    const struct division d = division_of(axis, 1, ranks * n, 1);
    axis_shared_gather(axis, &d, mine, all);
  } else {
    axis->comm->ops->allgather(axis->comm, mine, all, n, TRM_FLOAT);
  }
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("gather", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
  return all;
}
