#include "core/axis_sharding.h"

#include <string.h>

#include "core/comm.h"

size_t axis_contiguous_run(const struct axis_sharding *s, size_t rank, size_t at, size_t limit, size_t *offset)
{
  size_t low, high;
  trm_interval(s->n, s->ranks, rank, &low, &high);
  const size_t row = (high - low) * s->inner, within = at % row;
  *offset = (at / row * s->n + low) * s->inner + within;
  return row - within < limit ? row - within : limit;
}

void axis_extract(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const void *full,
                  void *shard)
{
  for (size_t done = 0, run, offset; done < n; done += run) {
    run = axis_contiguous_run(s, rank, at + done, n - done, &offset);
    memcpy((char *)shard + done * s->size, (const char *)full + offset * s->size, run * s->size);
  }
}

void axis_insert(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const void *shard,
                 void *full)
{
  for (size_t done = 0, run, offset; done < n; done += run) {
    run = axis_contiguous_run(s, rank, at + done, n - done, &offset);
    memcpy((char *)full + offset * s->size, (const char *)shard + done * s->size, run * s->size);
  }
}

size_t axis_shard_count(const struct axis_sharding *s, size_t rank)
{
  size_t low, high;
  trm_interval(s->n, s->ranks, rank, &low, &high);
  return s->outer * (high - low) * s->inner;
}

size_t axis_max_shard_count(const struct axis_sharding *s)
{
  return s->outer * s->max_n * s->inner;
}
