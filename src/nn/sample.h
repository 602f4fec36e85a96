/* Sampling of a class by scores, such as the next token. On the host. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct trm_sampling {
  double temperature; /* divides the scores; 0: takes the largest, in a tie the first */
  size_t top_k;       /* keeps the k largest scores, in a tie the first; 0: all */
  double top_p;       /* keeps the fewest most likely classes with at least this probability (Holtzman et al. 2020); 1:
                         all; at least one */
  uint64_t seed;
};

/* Draws one of scores (n), n >= 1, as a function of the seed, `index` and the scores: with u in [0, 1) of block (seed,
 * SAMPLE, 0, index), the first class, of those kept by decreasing score, in a tie the first, whose cumulative
 * probability is above u. -1 if a score is not finite. Time: n, and log n for each class up to the drawn one. */
int32_t trm_sample(const struct trm_sampling *sampling, const float *scores, size_t n, uint64_t index);
