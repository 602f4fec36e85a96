/* Sampling of tokens: frequencies of many draws, top_k and top_p, ties, and refused settings. */
#include <math.h>
#include <string.h>

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
    {"scores that are not finite", test_not_finite},
    CU_TEST_INFO_NULL,
  };
  return suite_run("sample", tests);
}
