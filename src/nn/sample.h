/* One of the classes drawn by their scores: how a model of tokens goes on. Host arithmetic. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct trm_sampling {
  double temperature; /* scores are divided by it; 0: the largest score, the first of equal ones */
  size_t top_k;       /* only the k largest scores count, the first of equal ones; 0: all */
  double top_p;       /* only the likeliest classes count, as few as together have this probability (Holtzman et al.
                         2020); 1: all; at least one */
  uint64_t seed;
};

/* Draws one of scores (n), n >= 1. The draw is a function of the seed, `index` and the scores. -1 if a score is not
 * finite. */
int32_t trm_sample(const struct trm_sampling *sampling, const float *scores, size_t n, uint64_t index);
