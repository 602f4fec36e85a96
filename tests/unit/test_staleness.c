/* Staleness: counts, mean, quantiles, sums over ranks, values beyond the last bin, and the run directory's
 * files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "ranks.h"
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

static struct trm_staleness total(void)
{
  struct trm_staleness all = {0};
  for (int i = 0; i < 3; i++)
    trm_staleness_merge(&all, &of_rank[i]);
  return all;
}

/* The line of an evaluation in metrics.jsonl is as expected. */
static void line_is(const struct trm_staleness *all, const double *mean, int ranks, const char *expected)
{
  char *text = NULL;
  size_t bytes = 0;
  struct trm_run_dir dir = {.path = (char *)"run", .metrics = open_memstream(&text, &bytes)};
  const struct trm_progress_point at = {.step = 5, .epoch = 1, .samples = 50, .wall_s = 0.5, .train_s = 0.25,
                                        .virtual_s = NAN};
  const struct trm_dataset rows = {.rows = 1};
  const struct trm_score score = {0.25, 0.5};
  CU_ASSERT_EQUAL(trm_run_dir_log_evaluation(&dir, &at, TRM_SPLIT_VALIDATION, &rows, &score, all, mean, ranks), 0);
  fclose(dir.metrics);
  CU_ASSERT_STRING_EQUAL(text, expected);
  if (strcmp(text, expected))
    printf("found: %s", text);
  free(text);
}

#define PLAIN                                                                       \
  "{\"step\":5,\"epoch\":1,\"samples\":50,\"wall_s\":0.5,\"train_s\":0.25,"     \
  "\"validation_loss\":0.25,\"validation_accuracy\":0.5"
#define NONE "\"staleness_mean\":null,\"staleness_p50\":null,\"staleness_p95\":null,\"staleness_max\":null"

static void test_lines(void)
{
  ranks_make();
  const struct trm_staleness all = total(), none = {0};
  const double mean[] = {1, NAN, 999};
  line_is(&all, mean, 3, PLAIN ",\"staleness_mean\":200.6,\"staleness_p50\":1,\"staleness_p95\":999,"
                         "\"staleness_max\":999,\"staleness_workers\":[1,null,999]}\n");
  line_is(&of_rank[0], mean, 1, PLAIN ",\"staleness_mean\":1,\"staleness_p50\":0,\"staleness_p95\":3,"
                                "\"staleness_max\":3,\"staleness_workers\":[1]}\n");
  const double few[] = {1, NAN, NAN}; /* ranks without updates are absent at the end of the list */
  line_is(&of_rank[0], few, 3, PLAIN ",\"staleness_mean\":1,\"staleness_p50\":0,\"staleness_p95\":3,"
                               "\"staleness_max\":3,\"staleness_workers\":[1]}\n");
  line_is(&none, few + 1, 2, PLAIN "," NONE "}\n"); /* no updates yet */
  line_is(&none, NULL, 0, PLAIN "," NONE "}\n"); /* the method has no staleness */
  line_is(NULL, NULL, 0, PLAIN "}\n");           /* synchronous */
}

/* Returns the text of a file in the folder, and removes it. Caller frees. */
static char *take_text(const char *folder, const char *name)
{
  char *path = trm_format("%s/%s", folder, name), *text = trm_alloc(1 << 16, "test");
  FILE *file = fopen(path, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT(fread(text, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  unlink(path);
  trm_free(path);
  return text;
}

/* Returns the summary.json of a run with this staleness. Caller frees. */
static char *summary(const struct trm_staleness *all)
{
  char folder[] = "/tmp/trireme-test-XXXXXX";
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
  CU_ASSERT_EQUAL(trm_run_dir_write_summary(&dir, &options, &parts, &model, &result, all), 0);
  char *text = take_text(folder, "summary.json");
  rmdir(folder);
  trm_model_free(&model);
  return text;
}

static void summary_ends_with(const struct trm_staleness *all, const char *end)
{
  char *text = summary(all);
  const size_t n = strlen(text), k = strlen(end);
  CU_ASSERT(n > k && strcmp(text + n - k, end) == 0);
  CU_ASSERT(all || !strstr(text, "staleness"));
  trm_free(text);
}

static void test_summary(void)
{
  ranks_make();
  const struct trm_staleness all = total(), none = {0};
  summary_ends_with(&all, ",\"staleness_mean\":200.6,\"staleness_p50\":1,\"staleness_p95\":999,"
                          "\"staleness_max\":999}\n");
  summary_ends_with(&none, "," NONE "}\n");
  summary_ends_with(NULL, "}\n");
}

static void test_histograms(void)
{
  char folder[] = "/tmp/trireme-test-XXXXXX";
  ranks_make();
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  struct trm_run_dir dir = {.path = folder};
  CU_ASSERT_EQUAL_FATAL(trm_run_dir_staleness_begin(&dir), 0);
  for (int i = 0; i < 3; i++)
    trm_run_dir_staleness_add(&dir, i, &of_rank[i]);
  CU_ASSERT_EQUAL(trm_run_dir_staleness_end(&dir), 0);
  char *text = take_text(folder, "staleness.json");
  rmdir(folder);
  const char *begin = "{\"ranks\":[{\"rank\":0,\"updates\":4,\"staleness_mean\":1,\"staleness_p50\":0,"
                      "\"staleness_p95\":3,\"staleness_max\":3,\"histogram\":[2,1,0,1]},{\"rank\":2,\"updates\":1,";
  CU_ASSERT(strncmp(text, begin, strlen(begin)) == 0);
  /* TRM_STALENESS_BINS counts, the last of them 1 */
  const char *list = strstr(text, "\"staleness_max\":999,\"histogram\":[");
  size_t commas = 0;
  for (const char *c = list ? strchr(list, '[') : ""; *c && *c != ']'; c++)
    commas += *c == ',';
  CU_ASSERT_EQUAL(commas, TRM_STALENESS_BINS - 1);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, ",0,0,1]}]}\n"));
  trm_free(text);
  trm_run_dir_staleness_add(&dir, 0, &of_rank[0]); /* without begin: no effect */
  CU_ASSERT_EQUAL(trm_run_dir_staleness_end(&dir), 0);
}

/* Rank 0 gets every rank's, in order. */
static void gathered(void *context, int rank, const struct trm_staleness *one)
{
  int *next = context;
  CU_ASSERT(rank == *next && one->updates == (uint64_t)rank + 1 && one->max == (uint64_t)rank);
  ++*next;
}

static void test_gather(void)
{
  struct trm_staleness mine = {0};
  int next = 0;
  for (int i = 0; i <= world->rank; i++)
    trm_staleness_add(&mine, (uint64_t)i);
  trm_staleness_gather(world, &mine, gathered, &next);
  CU_ASSERT_EQUAL(next, world->rank == 0 ? world->size : 0);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"none", test_none},
    {"values", test_values},
    {"sums of ranks", test_merge},
    {"beyond the last bin", test_overflow},
    {"lines of evaluations", test_lines},
    {"the summary", test_summary},
    {"histograms", test_histograms},
    {"from all ranks", test_gather},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "staleness", tests);
}
