/* An array that is sharded in its middle dimension: which elements of it each rank has. */
#pragma once

#include <stddef.h>

/* An array (outer, n, inner); shards are packed (outer, the rank's interval of n, inner). */
struct axis_sharding {
  size_t outer, n, inner;
  size_t size;         /* bytes of an element */
  size_t ranks, max_n; /* max_n: the largest interval of a rank */
};

/* Elements of a rank's shard, and of the largest one. */
size_t axis_shard_count(const struct axis_sharding *s, size_t rank);
size_t axis_max_shard_count(const struct axis_sharding *s);
/* Of elements [at, at + limit) of a rank's shard, the number that follow one another in the full array, too, beginning
 * there at *offset. */
size_t axis_contiguous_run(const struct axis_sharding *s, size_t rank, size_t at, size_t limit, size_t *offset);
/* Copies elements [at, at + n) of a rank's shard from the full array, and to it. shard: element 0 is number `at`. */
void axis_extract(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const void *full, void *shard);
void axis_insert(const struct axis_sharding *s, size_t rank, size_t at, size_t n, const void *shard, void *full);
