/* Staleness on record: counts, mean, quantiles, sums of several ranks, values beyond the last bin. */
#include <math.h>

#include "suite.h"
#include "train/staleness.h"

static void test_none(void)
{
  const struct trm_staleness none = {0};
  CU_ASSERT(isnan(trm_staleness_mean(&none)));
  CU_ASSERT_EQUAL(trm_staleness_quantile(&none, 0.99), 0);
}

/* 0 nine times, 1 ninety times, 7 once */
static void test_values(void)
{
  struct trm_staleness s = {0};
  for (int i = 0; i < 100; i++)
    trm_staleness_add(&s, i == 50 ? 7 : i % 10 == 0 ? 0 : 1);
  CU_ASSERT(s.count[0] == 9 && s.count[1] == 90 && s.count[7] == 1);
  CU_ASSERT(s.updates == 100 && s.sum == 97 && s.most == 7);
  CU_ASSERT_DOUBLE_EQUAL(trm_staleness_mean(&s), 0.97, 1e-15);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.01), 0);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.09), 0);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.10), 1);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.99), 1);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.995), 7);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 1), 7);
}

static void test_merge(void)
{
  struct trm_staleness a = {0}, b = {0}, all = {0}, sum = {0};
  const struct trm_staleness none = {0};
  for (uint64_t i = 0; i < 60; i++) {
    trm_staleness_add(i % 3 ? &a : &b, i * i % 17);
    trm_staleness_add(&all, i * i % 17);
  }
  trm_staleness_merge(&sum, &a);
  trm_staleness_merge(&sum, &none);
  trm_staleness_merge(&sum, &b);
  int differ = 0;
  for (int i = 0; i < TRM_STALENESS_BINS; i++)
    differ += sum.count[i] != all.count[i];
  CU_ASSERT_EQUAL(differ, 0);
  CU_ASSERT(sum.updates == all.updates && sum.sum == all.sum && sum.most == all.most);
  CU_ASSERT_EQUAL(trm_staleness_mean(&sum), trm_staleness_mean(&all));
}

/* Beyond the last bin the mean stays exact, and a quantile that falls there is the most there was. */
static void test_overflow(void)
{
  struct trm_staleness s = {0};
  const uint64_t last = TRM_STALENESS_BINS - 1;
  trm_staleness_add(&s, last - 1);
  trm_staleness_add(&s, last);
  trm_staleness_add(&s, last + 1);
  trm_staleness_add(&s, 1000000);
  CU_ASSERT(s.count[last - 1] == 1 && s.count[last] == 3 && s.updates == 4);
  CU_ASSERT(s.most == 1000000 && s.sum == 3 * last + 1000000);
  CU_ASSERT_DOUBLE_EQUAL(trm_staleness_mean(&s), (double)(3 * last + 1000000) / 4, 1e-9);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.25), last - 1);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.26), 1000000);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.99), 1000000);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"none", test_none},
    {"values", test_values},
    {"sums of ranks", test_merge},
    {"beyond the last bin", test_overflow},
    CU_TEST_INFO_NULL,
  };
  return suite_run("staleness", tests);
}
