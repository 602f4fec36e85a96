#include "nn/sample.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"

struct candidate {
  double weight; /* its probability, but for a factor */
  int32_t class;
};

static int by_weight(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->weight != y->weight)
    return x->weight > y->weight ? -1 : 1;
  return (x->class > y->class) - (x->class < y->class);
}

/* [0, 1), 53 bits */
static double uniform(uint64_t seed, uint64_t index)
{
  uint32_t word[4];
  trm_random_block(seed, TRM_RANDOM_SAMPLE, 0, index, word);
  return (double)((uint64_t)word[0] << 21 | word[1] >> 11) * 0x1p-53;
}

/* How many of the likeliest candidates together have the part p of all. */
static size_t nucleus(const struct candidate *candidate, size_t n, double p)
{
  double sum = 0, part = 0;
  for (size_t i = 0; i < n; i++)
    sum += candidate[i].weight;
  size_t kept = 0;
  while (kept < n && (kept == 0 || part < p * sum))
    part += candidate[kept++].weight;
  return kept;
}

static int32_t draw(const struct candidate *candidate, size_t n, double u)
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

int32_t trm_sample(const struct trm_sampling *how, const float *scores, size_t n, uint64_t index)
{
  size_t best = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(scores[i]))
      return -1;
    if (scores[i] > scores[best])
      best = i;
  }
  if (how->temperature == 0)
    return (int32_t)best;
  struct candidate *candidate = trm_alloc(n * sizeof *candidate, "candidates");
  for (size_t i = 0; i < n; i++)
    candidate[i] = (struct candidate){.weight = exp(((double)scores[i] - (double)scores[best]) / how->temperature),
                                      .class = (int32_t)i};
  qsort(candidate, n, sizeof *candidate, by_weight);
  if (how->top_k && how->top_k < n)
    n = how->top_k;
  if (how->top_p < 1)
    n = nucleus(candidate, n, how->top_p);
  const int32_t drawn = draw(candidate, n, uniform(how->seed, index));
  trm_free(candidate);
  return drawn;
}
