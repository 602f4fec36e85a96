#include "nn/sample.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"

struct candidate {
  double weight; /* its unnormalized probability */
  int32_t class;
};

static int sample_compare(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->weight != y->weight)
    return x->weight > y->weight ? -1 : 1;
  return (x->class > y->class) - (x->class < y->class);
}

/* [0, 1), 53 bits */
static double sample_uniform(uint64_t seed, uint64_t index)
{
  uint32_t word[4];
  trm_random_block(seed, TRM_RANDOM_SAMPLE, 0, index, word);
  return (double)((uint64_t)word[0] << 21 | word[1] >> 11) * 0x1p-53;
}

/* Returns the number of most likely candidates whose total probability is p. */
static size_t sample_nucleus(const struct candidate *candidate, size_t n, double p)
{
  double sum = 0, part = 0;
  for (size_t i = 0; i < n; i++)
    sum += candidate[i].weight;
  size_t count = 0;
  while (count < n && (count == 0 || part < p * sum))
    part += candidate[count++].weight;
  return count;
}

static int32_t sample_draw(const struct candidate *candidate, size_t n, double u)
{
  double sum = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    sum += candidate[i].weight;
  for (size_t i = 0; i < n; i++) {
    at += candidate[i].weight;
    if (u * sum < at)
      return candidate[i].class;
  }
  return candidate[n - 1].class;
}

int32_t trm_sample(const struct trm_sampling *sampling, const float *scores, size_t n, uint64_t index)
{
  size_t best = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(scores[i]))
      return -1;
    if (scores[i] > scores[best])
      best = i;
  }
  if (sampling->temperature == 0)
    return (int32_t)best;
  struct candidate *candidate = trm_alloc(n * sizeof *candidate, "candidates");
  for (size_t i = 0; i < n; i++)
    candidate[i] = (struct candidate){.weight = exp(((double)scores[i] - (double)scores[best]) / sampling->temperature),
                                      .class = (int32_t)i};
  qsort(candidate, n, sizeof *candidate, sample_compare);
  if (sampling->top_k && sampling->top_k < n)
    n = sampling->top_k;
  if (sampling->top_p < 1)
    n = sample_nucleus(candidate, n, sampling->top_p);
  const int32_t drawn = sample_draw(candidate, n, sample_uniform(sampling->seed, index));
  trm_free(candidate);
  return drawn;
}
