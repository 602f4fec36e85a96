/* Staleness: counts, mean, quantiles, sums over ranks, values beyond the last bin, and its fields in the run
 * directory's files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "suite.h"
#include "train/run_dir.h"

static void test_none(void)
{
  const struct trm_staleness none = {0};
  CU_ASSERT(isnan(trm_staleness_mean(&none)));
  CU_ASSERT_EQUAL(trm_staleness_quantile(&none, 0.99), 0);
}

/* staleness 0 nine times, 1 ninety times, 7 once */
static void test_values(void)
{
  struct trm_staleness s = {0};
  for (int i = 0; i < 100; i++)
    trm_staleness_add(&s, i == 50 ? 7 : i % 10 == 0 ? 0 : 1);
  CU_ASSERT(s.count[0] == 9 && s.count[1] == 90 && s.count[7] == 1);
  CU_ASSERT(s.updates == 100 && s.sum == 97 && s.max == 7);
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
  CU_ASSERT(sum.updates == all.updates && sum.sum == all.sum && sum.max == all.max);
  CU_ASSERT_EQUAL(trm_staleness_mean(&sum), trm_staleness_mean(&all));
}

/* With values beyond the last bin the mean is exact, and a quantile in the last bin is the maximum. */
static void test_overflow(void)
{
  struct trm_staleness s = {0};
  const uint64_t last = TRM_STALENESS_BINS - 1;
  trm_staleness_add(&s, last - 1);
  trm_staleness_add(&s, last);
  trm_staleness_add(&s, last + 1);
  trm_staleness_add(&s, 1000000);
  CU_ASSERT(s.count[last - 1] == 1 && s.count[last] == 3 && s.updates == 4);
  CU_ASSERT(s.max == 1000000 && s.sum == 3 * last + 1000000);
  CU_ASSERT_DOUBLE_EQUAL(trm_staleness_mean(&s), (double)(3 * last + 1000000) / 4, 1e-9);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.25), last - 1);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.26), 1000000);
  CU_ASSERT_EQUAL(trm_staleness_quantile(&s, 0.99), 1000000);
}

/* Staleness of three ranks: 0, 0, 1, 3; no updates; one update beyond the last bin. */
static struct trm_staleness of_rank[3];

static void ranks_make(void)
{
  memset(of_rank, 0, sizeof of_rank);
  trm_staleness_add(&of_rank[0], 0);
  trm_staleness_add(&of_rank[0], 0);
  trm_staleness_add(&of_rank[0], 1);
  trm_staleness_add(&of_rank[0], 3);
  trm_staleness_add(&of_rank[2], 999);
}

/* Returns the line of an evaluation in metrics.jsonl. Caller frees with free(). */
static char *test_line(const struct trm_staleness *of, int ranks)
{
  char *text = NULL;
  size_t bytes = 0;
  struct trm_run_dir dir = {.path = (char *)"run", .metrics = open_memstream(&text, &bytes)};
  const struct trm_progress_point at = {.step = 5, .epoch = 1, .samples = 50, .wall_s = 0.5};
  const struct trm_dataset rows = {.rows = 1};
  const struct trm_score score = {0.25, 0.5};
  CU_ASSERT_EQUAL(trm_run_dir_log_evaluation(&dir, &at, TRM_SPLIT_VALIDATION, &rows, &score, of, ranks), 0);
  fclose(dir.metrics);
  return text;
}

static void line_is(const struct trm_staleness *of, int ranks, const char *expected)
{
  char *line = test_line(of, ranks);
  CU_ASSERT_STRING_EQUAL(line, expected);
  if (strcmp(line, expected))
    printf("found: %s", line);
  free(line);
}

#define PLAIN                                                 \
  "{\"step\":5,\"epoch\":1,\"samples\":50,\"wall_s\":0.5,"        \
  "\"validation_loss\":0.25,\"validation_accuracy\":0.5"

static void test_lines(void)
{
  ranks_make();
  line_is(of_rank, 3, PLAIN ",\"staleness_mean\":200.6,\"staleness_p99\":999,\"staleness_max\":999,"
                      "\"staleness_workers\":[1,null,999]}\n");
  line_is(of_rank, 1, PLAIN ",\"staleness_mean\":1,\"staleness_p99\":3,\"staleness_max\":3,"
                      "\"staleness_workers\":[1]}\n");
  line_is(of_rank + 1, 1, PLAIN "}\n"); /* no updates */
  line_is(NULL, 0, PLAIN "}\n");
}

/* Returns the summary.json of a run with these ranks. Caller frees. */
static char *summary(const struct trm_staleness *of, int ranks)
{
  char folder[] = "/tmp/trireme-test-XXXXXX", *text = trm_alloc(1 << 16, "test");
  const struct trm_options options = {.run = {.seed = 1}};
  const struct trm_strategy_ops strategy = {.name = "asgd"};
  struct trm_device device = {.threads = 1};
  const struct trm_grid grid = {.size = {1, 1, 1}};
  const struct trm_modules parts = {.comm = trm_comm_self(), .grid = &grid, .device = &device, .strategy = &strategy};
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 2};
  const struct trm_result result = {.status = "done"};
  struct trm_model model;
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 2", "auto", &spec), 0);
  const struct trm_run_dir dir = {.path = folder};
  CU_ASSERT_EQUAL(trm_run_dir_write_summary(&dir, &options, &parts, &model, &result, of, ranks), 0);
  char *path = trm_format("%s/summary.json", folder);
  FILE *file = fopen(path, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT(fread(text, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  unlink(path);
  rmdir(folder);
  trm_free(path);
  trm_model_free(&model);
  return text;
}

static void test_summary(void)
{
  ranks_make();
  char *text = summary(of_rank, 3);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"staleness\":[{\"rank\":0,\"updates\":4,\"mean\":1,\"p99\":3,\"max\":3,"
                                      "\"histogram\":[2,1,0,1]},{\"rank\":2,\"updates\":1,\"mean\":999,\"p99\":999,"
                                      "\"max\":999,\"histogram\":[0,0,"));
  /* TRM_STALENESS_BINS counts, the last of them 1 */
  const char *list = strstr(text, "\"max\":999,\"histogram\":[");
  size_t commas = 0;
  for (const char *c = list ? strchr(list, '[') : ""; *c && *c != ']'; c++)
    commas += *c == ',';
  CU_ASSERT_EQUAL(commas, TRM_STALENESS_BINS - 1);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, ",0,0,1]}]}\n"));
  trm_free(text);
  text = summary(NULL, 0);
  CU_ASSERT_PTR_NULL(strstr(text, "staleness"));
  trm_free(text);
  text = summary(of_rank + 1, 1);
  CU_ASSERT_PTR_NULL(strstr(text, "staleness"));
  trm_free(text);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"none", test_none},
    {"values", test_values},
    {"sums of ranks", test_merge},
    {"beyond the last bin", test_overflow},
    {"lines of evaluations", test_lines},
    {"the summary", test_summary},
    CU_TEST_INFO_NULL,
  };
  return suite_run("staleness", tests);
}
