/* Shares of the data ranks in a batch: whole rows, each once, in proportion; largest
 * remainders; texts; equal shares are trm_interval's. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/comm.h"
#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "train/shares.h"

enum { RANKS = 5, ROWS = 300 };

/* Counts what is wrong with the intervals of up to ROWS rows. */
static int wrong_intervals(const struct trm_shares *shares, const double *share, const int32_t *shard)
{
  int wrong = 0;
  double sum = 0;
  for (int rank = 0; rank < RANKS; rank++)
    sum += share[rank];
  for (size_t rows = 0; rows < ROWS; rows++) {
    size_t count[RANKS], end = 0;
    for (int i = 0; i < RANKS; i++) {
      size_t low, high;
      trm_shares_interval(shares, rows, i, &low, &high);
      wrong += low != end || high < low || high - low > trm_shares_max_rows(shares, rows, i);
      count[i] = high - low;
      end = high;
    }
    wrong += end != rows;
    for (int rank = 0; rank < RANKS; rank++) {
      const double error = (double)count[shard[rank]] - (double)rows * share[rank] / sum;
      wrong += fabs(error) >= 1 || (share[rank] == 0 && count[shard[rank]] != 0);
    }
  }
  return wrong;
}

static void test_intervals(void)
{
  static const double share[][RANKS] = {
    {5, 2, 0, 1, 1}, {0, 0, 1, 0, 0}, {1, 1, 1, 1, 1}, {1000, 333, 1, 0.25, 77.7}, {0.1, 0.2, 0.3, 0.3, 0.1}};
  static const int32_t shard[][RANKS] = {{0, 1, 2, 3, 4}, {0, 2, 4, 1, 3}};
  struct trm_shares shares = {.shards = RANKS};
  for (size_t s = 0; s < sizeof share / sizeof *share; s++)
    for (size_t p = 0; p < sizeof shard / sizeof *shard; p++) {
      trm_shares_set(&shares, share[s], shard[p], RANKS);
      CU_ASSERT_EQUAL(wrong_intervals(&shares, share[s], shard[p]), 0);
    }
  trm_shares_free(&shares);
}

/* By hand: quotas of 10 rows are 5.3, 0.7, 0, 0.9, 3.1; of 9 rows 4.77, 0.63, 0, 0.81, 2.79. Of equal remainders
 * (one row, quotas of 1/4) the first shard's counts. */
static void test_largest_remainders(void)
{
  static const double share[] = {53, 7, 0, 9, 31}, alike[] = {1, 0, 1, 1, 1};
  static const int32_t shard[] = {0, 1, 2, 3, 4}, turned[] = {4, 3, 2, 1, 0};
  static const struct {
    const double *share;
    const int32_t *shard;
    size_t rows, count[RANKS];
  } of[] = {{share, shard, 10, {5, 1, 0, 1, 3}}, {share, shard, 9, {5, 0, 0, 1, 3}}, {share, turned, 10, {3, 1, 0, 1, 5}},
            {alike, shard, 1, {1, 0, 0, 0, 0}}, {alike, turned, 3, {1, 1, 1, 0, 0}}, {alike, shard, 0, {0}}};
  struct trm_shares shares = {.shards = RANKS};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    trm_shares_set(&shares, of[i].share, of[i].shard, RANKS);
    for (int s = 0; s < RANKS; s++) {
      size_t low, high;
      trm_shares_interval(&shares, of[i].rows, s, &low, &high);
      CU_ASSERT_EQUAL(high - low, of[i].count[s]);
    }
  }
  trm_shares_free(&shares);
}

static void test_equal(void)
{
  static const double alike[] = {7, 7, 7, 7, 7};
  static const int32_t shard[] = {4, 0, 1, 3, 2};
  struct trm_shares shares = {.shards = RANKS};
  size_t wrong = 0;
  trm_shares_set(&shares, alike, shard, RANKS);
  for (size_t rows = 0; rows < ROWS; rows++)
    for (int i = 0; i < RANKS; i++) {
      size_t low, high, from, to;
      trm_shares_interval(&shares, rows, i, &low, &high);
      trm_interval(rows, RANKS, (size_t)i, &from, &to);
      wrong += low != from || high != to || high - low > trm_shares_max_rows(&shares, rows, i);
    }
  CU_ASSERT_EQUAL(wrong, 0);
}

static void test_text(void)
{
  static const char *const wrong[] = {"", "fast", "1,2", "1,2,3,4", "1,,2", "1,2,", "-1,1,1", "nan,1,1", "0,0,0",
                                      "1;1;1", "1e30,1,1"};
  double share[3];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(trm_shares_parse(wrong[i], 3, share), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "parallel.shares"));
  }
  CU_ASSERT_EQUAL(trm_shares_parse("3, 0.5,0", 3, share), TRM_OK);
  CU_ASSERT(share[0] == 3 && share[1] == 0.5 && share[2] == 0);
  char *text = trm_shares_text(share, 3);
  CU_ASSERT_STRING_EQUAL(text, "3,0.5,0");
  trm_free(text);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"intervals of whole rows", test_intervals},
    {"largest remainders", test_largest_remainders},
    {"equal shares", test_equal},
    {"texts", test_text},
    CU_TEST_INFO_NULL,
  };
  return suite_run("shares", tests);
}
