/* What the files of the axis have in common: axis.c sends messages, axis_shared.c goes through memory. */
#ifndef TRM_CORE_AXIS_PRIVATE_H
#define TRM_CORE_AXIS_PRIVATE_H

#include "core/axis.h"

/* An array (outer, n, inner) and its parts, packed: (outer, own interval, inner). */
struct division {
  size_t outer, n, inner;
  size_t ranks, most; /* most: of the middle dimension that a rank has */
};

size_t axis_part_count(const struct division *d, size_t rank);  /* floats of a part */
size_t axis_block_count(const struct division *d);              /* of the room that any part needs */
/* Of a part as many floats from `at` on as lie together in the whole, `left` at most; *offset: there. */
size_t axis_run(const struct division *d, size_t rank, size_t at, size_t left, size_t *offset);
/* Elements [at, at + n) of a part, to and from the whole. */
void axis_part_copy(const struct division *d, size_t rank, size_t at, size_t n, const float *whole, float *part);
void axis_part_place(const struct division *d, size_t rank, size_t at, size_t n, const float *part, float *whole);

/* -- axis_shared.c: host arrays, where the axis shares memory */
void axis_shared_sum(struct trm_axis *axis, float *x, size_t n);
void axis_shared_gather(struct trm_axis *axis, const struct division *d, const float *part, float *whole);
void axis_shared_scatter_sum(struct trm_axis *axis, const struct division *d, const float *whole, float *part);

#endif
