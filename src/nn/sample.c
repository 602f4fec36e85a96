#include "nn/sample.h"

#include <math.h>
#include <stdbool.h>

#include "core/memory.h"
#include "core/random.h"

struct candidate {
  double weight; /* its unnormalized probability */
  int32_t class;
};

/* Candidates by decreasing weight, in a tie by class. They are sorted only as far as they are asked for: a heap of the
 * others, its largest first, and behind it those that were taken, the latest first. */
struct sample_order {
  struct candidate *candidate; /* (n) */
  size_t n, taken;
};

static bool sample_precedes(const struct candidate *a, const struct candidate *b)
{
  return a->weight > b->weight || (a->weight == b->weight && a->class < b->class);
}

static void sample_swap(struct candidate *a, struct candidate *b)
{
  const struct candidate c = *a;
  *a = *b;
  *b = c;
}

/* Restores the heap of n below `at`, whose candidate may come after its children. */
static void sample_sift(struct candidate *heap, size_t n, size_t at)
{
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    child += child + 1 < n && sample_precedes(&heap[child + 1], &heap[child]);
    if (sample_precedes(&heap[at], &heap[child]))
      return;
    sample_swap(&heap[at], &heap[child]);
  }
}

/* Returns the i-th candidate in order, i < n. */
static const struct candidate *sample_get(struct sample_order *order, size_t i)
{
  while (order->taken <= i) {
    const size_t rest = order->n - ++order->taken;
    sample_swap(&order->candidate[0], &order->candidate[rest]);
    sample_sift(order->candidate, rest, 0);
  }
  return &order->candidate[order->n - 1 - i];
}

/* [0, 1), 53 bits */
static double sample_uniform(uint64_t seed, uint64_t index)
{
  uint32_t word[4];
  trm_random_block(seed, TRM_RANDOM_SAMPLE, 0, index, word);
  return (double)((uint64_t)word[0] << 21 | word[1] >> 11) * 0x1p-53;
}

/* Returns the total weight of the first n candidates. */
static double sample_weight(struct sample_order *order, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += n < order->n ? sample_get(order, i)->weight : order->candidate[i].weight; /* of all: in any order */
  return sum;
}

/* Returns the fewest first candidates, of n whose weight is `sum`, that have at least p of it. */
static size_t sample_nucleus(struct sample_order *order, size_t n, double sum, double p)
{
  double part = 0;
  size_t count = 0;
  while (count < n && (count == 0 || part < p * sum))
    part += sample_get(order, count++)->weight;
  return count;
}

/* Draws one of the first n candidates, whose weight is `sum`, by u in [0, 1). */
static int32_t sample_draw(struct sample_order *order, size_t n, double sum, double u)
{
  double at = 0;
  for (size_t i = 0; i < n; i++) {
    at += sample_get(order, i)->weight;
    if (u * sum < at)
      return sample_get(order, i)->class;
  }
  return sample_get(order, n - 1)->class;
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
  struct sample_order order = {candidate, n, 0};
  for (size_t i = n / 2; i-- > 0;)
    sample_sift(candidate, n, i);
  size_t kept = sampling->top_k && sampling->top_k < n ? sampling->top_k : n;
  double sum = sample_weight(&order, kept);
  if (sampling->top_p < 1) {
    kept = sample_nucleus(&order, kept, sum, sampling->top_p);
    sum = sample_weight(&order, kept);
  }
  const int32_t drawn = sample_draw(&order, kept, sum, sample_uniform(sampling->seed, index));
  trm_free(candidate);
  return drawn;
}
