/* Divided arrays: parts are packed for the wire and unpacked on the other side. */
#include "core/axis.h"

#include <string.h>

#include "core/memory.h"
#include "core/trace.h"

enum { MINE, ALL, WHOLE }; /* the buffers */

/* An array (outer, n, inner) and its parts. */
struct division {
  size_t outer, n, inner;
  size_t ranks, most; /* most: of the middle dimension that a rank has */
};

void trm_axis_open(struct trm_axis *axis, struct trm_comm *comm, struct trm_device *device)
{
  *axis = (struct trm_axis){.comm = comm, .device = device};
}

void trm_axis_close(struct trm_axis *axis)
{
  for (int b = 0; b < 3; b++)
    trm_free(axis->buffer[b]);
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

/* Between the whole array and one rank's part (outer, its interval, inner), packed. */
static void part_copy(const struct division *d, size_t rank, const float *whole, float *part)
{
  size_t low, high;
  trm_interval(d->n, d->ranks, rank, &low, &high);
  const size_t run = (high - low) * d->inner;
  for (size_t o = 0; o < d->outer; o++)
    memcpy(part + o * run, whole + (o * d->n + low) * d->inner, run * sizeof *part);
}

static void part_place(const struct division *d, size_t rank, const float *part, float *whole)
{
  size_t low, high;
  trm_interval(d->n, d->ranks, rank, &low, &high);
  const size_t run = (high - low) * d->inner;
  for (size_t o = 0; o < d->outer; o++)
    memcpy(whole + (o * d->n + low) * d->inner, part + o * run, run * sizeof *part);
}

/* Floats of this rank's part, and of the room that any part needs. */
static size_t own_count(const struct trm_axis *axis, const struct division *d)
{
  size_t low, high;
  trm_interval(d->n, d->ranks, (size_t)axis->comm->rank, &low, &high);
  return d->outer * (high - low) * d->inner;
}

static size_t block_count(const struct division *d)
{
  return d->outer * d->most * d->inner;
}

void trm_axis_sum(struct trm_axis *axis, float *x, size_t n)
{
  const double begin = clock_of(axis);
  if (axis->device->host_memory) {
    axis->device->ops->sync(axis->device);
    axis->comm->ops->allreduce(axis->comm, x, n, TRM_FLOAT, TRM_SUM);
  } else {
    float *host = buffer_of(axis, WHOLE, n);
    axis->device->ops->download(axis->device, host, x, n * sizeof *host);
    axis->comm->ops->allreduce(axis->comm, host, n, TRM_FLOAT, TRM_SUM);
    host_done(axis, host, x, n);
  }
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("sum over the axis", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

void trm_axis_gather(struct trm_axis *axis, const float *part, float *whole, size_t outer, size_t n, size_t inner)
{
  const double begin = clock_of(axis);
  const struct division d = division_of(axis, outer, n, inner);
  const size_t block = block_count(&d), own = (size_t)axis->comm->rank, total = outer * n * inner;
  const float *mine = host_read(axis, MINE, part, own_count(axis, &d));
  float *to = host_write(axis, WHOLE, whole, total);
  if (outer == 1 && n % d.ranks == 0) { /* the blocks follow one another in the whole */
    axis->comm->ops->allgather(axis->comm, mine, to, block, TRM_FLOAT);
  } else {
    float *all = buffer_of(axis, ALL, d.ranks * block);
    memcpy(all + own * block, mine, own_count(axis, &d) * sizeof *all);
    axis->comm->ops->allgather(axis->comm, all + own * block, all, block, TRM_FLOAT);
    for (size_t rank = 0; rank < d.ranks; rank++)
      part_place(&d, rank, all + rank * block, to);
  }
  host_done(axis, to, whole, total);
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("gather", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

void trm_axis_take(struct trm_axis *axis, const float *whole, float *part, size_t outer, size_t n, size_t inner)
{
  const struct division d = division_of(axis, outer, n, inner);
  const float *from = host_read(axis, WHOLE, whole, outer * n * inner);
  float *to = host_write(axis, MINE, part, own_count(axis, &d));
  part_copy(&d, (size_t)axis->comm->rank, from, to);
  host_done(axis, to, part, own_count(axis, &d));
}

void trm_axis_scatter_sum(struct trm_axis *axis, const float *whole, float *part, size_t outer, size_t n, size_t inner)
{
  const double begin = clock_of(axis);
  const struct division d = division_of(axis, outer, n, inner);
  const size_t block = block_count(&d), own = own_count(axis, &d);
  const float *from = host_read(axis, WHOLE, whole, outer * n * inner);
  float *all = buffer_of(axis, ALL, d.ranks * block), *mine = buffer_of(axis, MINE, block);
  for (size_t rank = 0; rank < d.ranks; rank++)
    part_copy(&d, rank, from, all + rank * block); /* what is beyond a small part is summed, too, and not read */
  axis->comm->ops->reduce_scatter(axis->comm, all, mine, block, TRM_FLOAT, TRM_SUM);
  if (axis->device->host_memory)
    memcpy(part, mine, own * sizeof *part);
  else
    axis->device->ops->upload(axis->device, part, mine, own * sizeof *part);
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("scatter sum", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
}

const float *trm_axis_collect(struct trm_axis *axis, const float *x, size_t n)
{
  const double begin = clock_of(axis);
  const float *mine = host_read(axis, MINE, x, n);
  float *all = buffer_of(axis, ALL, (size_t)axis->comm->size * n);
  axis->comm->ops->allgather(axis->comm, mine, all, n, TRM_FLOAT);
  axis->comm_s += clock_of(axis) - begin;
  trm_trace_end("gather", TRM_TRACE_COMMUNICATION, begin, TRM_TRACE_NOWHERE);
  return all;
}
