/* Sampling of tokens: frequencies of many draws, top_k and top_p, ties, the draws of sorted classes, and scores that are
 * refused. */
#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "nn/sample.h"
#include "suite.h"

enum { DRAWS = 40000, CLASSES = 6 };

/* probabilities 0.4, 0.05, 0.25, 0.1, 0.15, 0.05 */
static const double probability[CLASSES] = {0.4, 0.05, 0.25, 0.1, 0.15, 0.05};

static void scores_make(float scores[CLASSES], double temperature)
{
  for (int i = 0; i < CLASSES; i++)
    scores[i] = (float)(temperature * log(probability[i]) + 3);
}

/* Draws many times; each class's frequency must be that of `wanted` within 5 standard deviations. */
static void check_frequencies(const struct trm_sampling *how, const float scores[CLASSES], const double wanted[CLASSES])
{
  int count[CLASSES] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    const int32_t drawn = trm_sample(how, scores, CLASSES, i);
    CU_ASSERT_FATAL(drawn >= 0 && drawn < CLASSES);
    count[drawn]++;
  }
  for (int c = 0; c < CLASSES; c++) {
    const double deviation = sqrt(wanted[c] * (1 - wanted[c]) * DRAWS);
    CU_ASSERT(fabs(count[c] - wanted[c] * DRAWS) <= 5 * deviation);
  }
}

static void test_temperature(void)
{
  float scores[CLASSES];
  for (int i = 0; i < 3; i++) {
    const double temperature[] = {1, 0.5, 3};
    const struct trm_sampling how = {.temperature = temperature[i], .top_p = 1, .seed = 7 + (uint64_t)i};
    scores_make(scores, temperature[i]); /* scores scaled so that the temperature cancels */
    check_frequencies(&how, scores, probability);
  }
  const struct trm_sampling greedy = {.temperature = 0, .top_p = 1}, cold = {.temperature = 1e-3, .top_p = 1};
  scores_make(scores, 1);
  for (uint64_t i = 0; i < 100; i++)
    CU_ASSERT(trm_sample(&greedy, scores, CLASSES, i) == 0 && trm_sample(&cold, scores, CLASSES, i) == 0);
  scores[4] = scores[0]; /* a tie: the first wins */
  CU_ASSERT_EQUAL(trm_sample(&greedy, scores, CLASSES, 0), 0);
}

static void test_top_k(void)
{
  float scores[CLASSES];
  scores_make(scores, 1);
  const double wanted[CLASSES] = {0.4 / 0.8, 0, 0.25 / 0.8, 0, 0.15 / 0.8, 0};
  struct trm_sampling how = {.temperature = 1, .top_p = 1, .top_k = 3, .seed = 2};
  check_frequencies(&how, scores, wanted);
  how.top_k = 1;
  for (uint64_t i = 0; i < 1000; i++)
    CU_ASSERT_EQUAL(trm_sample(&how, scores, CLASSES, i), 0);
  how.top_k = 100; /* more than there are classes */
  check_frequencies(&how, scores, probability);
  how.top_k = 5; /* classes 1 and 5 tie: the first stays */
  const double five[CLASSES] = {0.4 / 0.95, 0.05 / 0.95, 0.25 / 0.95, 0.1 / 0.95, 0.15 / 0.95, 0};
  check_frequencies(&how, scores, five);
}

static void test_top_p(void)
{
  float scores[CLASSES];
  scores_make(scores, 1);
  struct trm_sampling how = {.temperature = 1, .top_p = 0.7, .seed = 3};
  const double three[CLASSES] = {0.4 / 0.8, 0, 0.25 / 0.8, 0, 0.15 / 0.8, 0}; /* 0.65 is below 0.7, 0.8 is not */
  check_frequencies(&how, scores, three);
  how.top_p = 0.6;
  const double two[CLASSES] = {0.4 / 0.65, 0, 0.25 / 0.65, 0, 0, 0};
  check_frequencies(&how, scores, two);
  how.top_p = 0; /* keeps at least one */
  for (uint64_t i = 0; i < 1000; i++)
    CU_ASSERT_EQUAL(trm_sample(&how, scores, CLASSES, i), 0);
  how.top_p = 0.6; /* after top_k: 0.4 of 0.65 suffices */
  how.top_k = 2;
  for (uint64_t i = 0; i < 1000; i++)
    CU_ASSERT_EQUAL(trm_sample(&how, scores, CLASSES, i) == 0 || trm_sample(&how, scores, CLASSES, i) == 2, 1);
  how.top_p = 0.61;
  for (uint64_t i = 0; i < 1000; i++)
    CU_ASSERT_EQUAL(trm_sample(&how, scores, CLASSES, i), 0);
}

static void test_seed(void)
{
  float scores[CLASSES];
  scores_make(scores, 1);
  const struct trm_sampling one = {.temperature = 1, .top_p = 1, .seed = 1};
  const struct trm_sampling two = {.temperature = 1, .top_p = 1, .seed = 2};
  int same = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    const int32_t drawn = trm_sample(&one, scores, CLASSES, i);
    CU_ASSERT_EQUAL(trm_sample(&one, scores, CLASSES, i), drawn);
    same += trm_sample(&two, scores, CLASSES, i) == drawn;
  }
  CU_ASSERT(same > 150 && same < 400); /* expected share: the sum of squared probabilities, 0.26 */
}

/* -- the draws of classes that are all sorted */

enum { MANY = 700 };

struct sorted {
  double weight;
  int32_t class;
};

static int sorted_compare(const void *a, const void *b)
{
  const struct sorted *x = a, *y = b;
  if (x->weight != y->weight)
    return x->weight > y->weight ? -1 : 1;
  return (x->class > y->class) - (x->class < y->class);
}

static double sorted_sum(const struct sorted *sorted, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += sorted[i].weight;
  return sum;
}

static int32_t sorted_draw(const struct trm_sampling *how, const float scores[MANY], uint64_t index)
{
  struct sorted sorted[MANY];
  uint32_t word[4];
  size_t n = how->top_k && how->top_k < MANY ? how->top_k : MANY, drawn = 0, kept = 0;
  for (int i = 0; i < MANY; i++)
    sorted[i] = (struct sorted){exp((double)scores[i] / how->temperature), i};
  qsort(sorted, MANY, sizeof *sorted, sorted_compare);
  const double enough = how->top_p * sorted_sum(sorted, n);
  while (how->top_p < 1 && kept < n && (kept == 0 || sorted_sum(sorted, kept) < enough))
    kept++;
  n = kept ? kept : n;
  trm_random_block(how->seed, TRM_RANDOM_SAMPLE, 0, index, word);
  const double u = ldexp((double)((uint64_t)word[0] << 21 | word[1] >> 11), -53) * sorted_sum(sorted, n);
  while (drawn < n - 1 && sorted_sum(sorted, drawn + 1) <= u)
    drawn++;
  return sorted[drawn].class;
}

static void test_sorted(void)
{
  static const struct trm_sampling how[] = {
    {.temperature = 1, .top_p = 1}, {.temperature = 30, .top_p = 1}, {.temperature = 0.2, .top_p = 1},
    {.temperature = 2, .top_p = 1, .top_k = 40}, {.temperature = 2, .top_p = 0.9},
    {.temperature = 9, .top_p = 0.7, .top_k = 300}, {.temperature = 1, .top_p = 1, .top_k = MANY},
    {.temperature = 1, .top_p = 0, .top_k = 5}, {.temperature = 9, .top_p = 0.999999},
  };
  float scores[MANY];
  for (size_t k = 0; k < sizeof how / sizeof *how; k++)
    for (uint64_t i = 0; i < 200; i++) {
      struct trm_sampling seeded = how[k];
      seeded.seed = k;
      for (int j = 0; j < MANY; j++) /* every third score is a whole number: ties */
        scores[j] = j % 3 ? 3 * trm_random_normal(k, TRM_RANDOM_BENCH, (uint32_t)i, (uint64_t)j)
                          : roundf(3 * trm_random_normal(k, TRM_RANDOM_BENCH, (uint32_t)i, (uint64_t)j));
      CU_ASSERT_EQUAL(trm_sample(&seeded, scores, MANY, i), sorted_draw(&seeded, scores, i));
    }
}

static void test_not_finite(void)
{
  const struct trm_sampling how = {.temperature = 1, .top_p = 1}, greedy = {.temperature = 0, .top_p = 1};
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    const float scores[] = {0, bad[i], 1};
    CU_ASSERT_EQUAL(trm_sample(&how, scores, 3, 0), -1);
    CU_ASSERT_EQUAL(trm_sample(&greedy, scores, 3, 0), -1);
  }
  const float far[] = {-3e38f, 3e38f, 0};
  CU_ASSERT_EQUAL(trm_sample(&how, far, 3, 0), 1);
  const float single[] = {5};
  CU_ASSERT_EQUAL(trm_sample(&how, single, 1, 0), 0);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"temperature", test_temperature},
    {"top-k", test_top_k},
    {"top-p", test_top_p},
    {"seeds", test_seed},
    {"the draws of sorted classes", test_sorted},
    {"scores that are not finite", test_not_finite},
    CU_TEST_INFO_NULL,
  };
  return suite_run("sample", tests);
}
