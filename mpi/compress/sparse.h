/* The largest elements of an array, and sums over nodes of messages of them: for topk.c and dgc.c. */
#pragma once

#include "mpi/compress/compressor_private.h"

struct sparse_element {
  uint32_t index;
  float value;
};

/* Writes to `to` (k) the k elements of x (n) of the largest absolute values, in ascending order of index; of equal ones
 * the first. k <= n < 2^32. scratch (n). */
void sparse_select(const float *x, size_t n, size_t k, uint32_t *scratch, struct sparse_element *to);
/* Returns the number of elements that a fraction of n is: rounded up, so at least one of some. */
size_t sparse_count(double ratio, size_t n);

/* Adds buffer and scratch for messages of a fraction `largest` of the slice, rounds and sent for a fraction `ratio`. */
void sparse_sum_measure(const struct compress_part *part, double ratio, double largest, struct compress_sizes *sizes);
/* Begins to send the k largest elements of x (part->n). Returns them (k), valid within the round. */
const struct sparse_element *sparse_sum_begin(struct compressor *c, struct compress_part *part, const float *x,
                                              size_t k);
/* Sets data to the sum of the nodes' elements, in the order of the nodes. */
void sparse_sum_finish(const struct compress_part *part, size_t k);
