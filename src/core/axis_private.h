/* What the files of the axis have in common: axis.c sends messages, axis_shared.c goes through memory. */
#ifndef TRM_CORE_AXIS_PRIVATE_H
#define TRM_CORE_AXIS_PRIVATE_H

#include "core/axis.h"

/* An array (outer, n, inner) and its parts, packed: (outer, own interval, inner). */
struct axis_sharding {
  size_t outer, n, inner;
  size_t ranks, max_n; /* most: of the middle dimension that a rank has */
};

size_t axis_shard_count(const struct axis_sharding *s, size_t rank);  /* floats of a part */
size_t axis_max_shard_count(const struct axis_sharding *s);              /* of the room that any part needs */
/* Of a part as many floats from `at` on as lie together in the whole, `left` at most; *offset: there. */
size_t axis_contiguous_run(const struct axis_sharding *s, size_t rank, size_t at, size_t limit, size_t *offset);
/* Elements [at, at + n) of a part, to and from the whole. */
void axis_extract(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const float *full, float *shard);
void axis_insert(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const float *shard, float *full);

/* -- axis_shared.c: host arrays, where the axis shares memory */
void axis_shared_allreduce(struct trm_axis *axis, float *x, size_t n);
void axis_shared_allgather(struct trm_axis *axis, const struct axis_sharding *s, const float *shard, float *full);
void axis_shared_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full, float *shard);

#endif
