/* Buckets: intervals of a flat array that are communicated at once, cut at the ends of layers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Elements [low, high) of the flat array. Those of a large layer go in `parts` messages of at most rule->max
 * elements. */
struct trm_bucket {
  size_t low, high;
  size_t parts;
};

struct trm_bucket_rule {
  size_t elements;        /* of the flat array, all of which are cut */
  const size_t *boundary; /* (boundaries) ascending ends of intervals of parameters; some may lie behind the array */
  int boundaries;
  size_t first;           /* elements of the first bucket, at least; 0: min */
  size_t min;             /* elements of the others, but the last and those that must end before */
  size_t max;             /* elements of a message */
  size_t align;           /* elements: every bucket begins at a multiple of it */
  const bool *ends;       /* (boundaries) true: a bucket must end there; NULL: nowhere */
};

/* Cuts the flat array. (*count) buckets, ascending, which the caller frees. */
struct trm_bucket *trm_buckets_cut(const struct trm_bucket_rule *rule, int *count);
