/* The lists, settings, choice and statistics of `trireme sweep`. */
#include <math.h>
#include <string.h>

#include "cli/sweep.h"
#include "core/memory.h"
#include "core/status.h"
#include "messages.h"
#include "suite.h"

static void test_sweep_lists(void)
{
  static const struct {
    const char *name, *list, *values; /* values: with a space after each; an error: its text after "!" */
  } given[] = {
    {"optim.lr", "0.1,0.2,0.4", "0.1 0.2 0.4 "},
    {"optim.lr", " 1e-1 , 2 ", "0.1 2 "},
    {"run.seed", "1..5", "1 2 3 4 5 "},
    {"run.seed", "7,1..3", "7 1 2 3 "},
    {"run.seed", "4..4", "4 "},
    {"strategy.name", "sync,asgd", "sync asgd "},
    {"optim.name", "sgd,adam", "sgd adam "},
    {"parallel.shares", "5,2,0; equal", "5,2,0 equal "},
    {"data.shuffle", "yes,no", "yes no "},
    {"optim.lr", "0.1,0.10", "!given twice"},
    {"optim.lr", "0.1..0.5", "!of whole numbers"},
    {"optim.lr", "0.1,,0.2", "!is not a number"},
    {"optim.lr", "", "!is not a number"},
    {"run.seed", "5..1", "!no range"},
    {"run.seed", "1..", "!no range"},
    {"run.seed", "1..1000000", "!more than"},
    {"optim.name", "sgd,sdg", "!is not one of"},
    {"optim.rl", "1,2", "!did you mean \"optim.lr\"?"},
  };
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    struct sweep_axis axis;
    char *text = trm_strdup("");
    const int status = sweep_axis_read(&axis, given[i].name, given[i].list, false);
    for (int k = 0; k < axis.count; k++)
      trm_append(&text, "%s ", axis.value[k]);
    if (given[i].values[0] == '!') {
      CU_ASSERT_EQUAL(status, TRM_USAGE);
      CU_ASSERT(error_has(given[i].values + 1));
    } else {
      CU_ASSERT_EQUAL(status, TRM_OK);
      CU_ASSERT_STRING_EQUAL(text, given[i].values);
    }
    trm_free(text);
    sweep_axis_free(&axis);
  }
}

/* A sweep of method (2 values, a row for each), lr (tuned) and seeds 1..3. */
static void sweep_open(struct sweep *sweep, const char *rates, bool random)
{
  *sweep = (struct sweep){.dir = "x", .axes = 3};
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep->axis[0], "strategy.name", "sync,asgd", false), TRM_OK);
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep->axis[1], "optim.lr", rates, random), TRM_OK);
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep->axis[2], "run.seed", "1..3", false), TRM_OK);
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep->tune_seeds, "run.seed", "101,102", false), TRM_OK);
  sweep->axis[1].role = SWEEP_TUNED;
}

static void sweep_close(struct sweep *sweep)
{
  for (int i = 0; i < sweep->axes; i++)
    sweep_axis_free(&sweep->axis[i]);
  sweep_axis_free(&sweep->tune_seeds);
  sweep_runs_free(&sweep->tune);
  sweep_runs_free(&sweep->final);
  trm_free(sweep->setting);
  trm_free(sweep->halving.kept);
  trm_free(sweep->chosen);
}

static void test_sweep_grid(void)
{
  struct sweep sweep;
  sweep_open(&sweep, "0.1,0.2,0.4", false);
  CU_ASSERT_EQUAL(sweep_make_settings(&sweep, SWEEP_GRID, 1, 1), TRM_OK);
  CU_ASSERT_EQUAL(sweep.cells, 2);
  CU_ASSERT_EQUAL(sweep.settings, 3);
  CU_ASSERT_EQUAL(sweep_make_tune(&sweep), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.tune.count, 12);
  CU_ASSERT_STRING_EQUAL(sweep.tune.run[0].name, "strategy.name=sync,optim.lr=0.1,run.seed=101");
  CU_ASSERT_STRING_EQUAL(sweep.tune.run[11].name, "strategy.name=asgd,optim.lr=0.4,run.seed=102");
  /* sync: 0.2 is best in the mean, though 0.4 has the best run. asgd: 0.4 is better, but one of its runs diverged. */
  static const double score[] = {0.5, 0.6, 0.7, 0.7, 0.8, 0.4, 0.3, 0.3, 0.4, 0.4, 0.9, 0.9};
  for (int i = 0; i < 12; i++) {
    sweep.tune.run[i].outcome = i == 11 ? SWEEP_DIVERGED : SWEEP_DONE;
    sweep.tune.run[i].validation = (struct sweep_scores){score[i], 1};
  }
  sweep_choose(&sweep);
  CU_ASSERT_EQUAL(sweep.chosen[0], 1);
  CU_ASSERT_EQUAL(sweep.chosen[1], 1);
  /* Without accuracies, the lowest loss. */
  for (int i = 0; i < 12; i++)
    sweep.tune.run[i].validation = (struct sweep_scores){NAN, score[i]};
  sweep_choose(&sweep);
  CU_ASSERT_EQUAL(sweep.chosen[0], 0);
  /* A cell without any run that is done has no final runs. */
  for (int i = 6; i < 12; i++)
    sweep.tune.run[i].outcome = SWEEP_FAILED;
  sweep_choose(&sweep);
  CU_ASSERT_EQUAL(sweep.chosen[1], -1);
  CU_ASSERT_EQUAL(sweep_make_final(&sweep), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.final.count, 3);
  CU_ASSERT_STRING_EQUAL(sweep.final.run[2].name, "strategy.name=sync,optim.lr=0.1,run.seed=3");
  CU_ASSERT_TRUE(sweep_at_edge(&sweep.axis[1], "0.1"));
  CU_ASSERT_FALSE(sweep_at_edge(&sweep.axis[1], "0.2"));
  CU_ASSERT_TRUE(sweep_at_edge(&sweep.axis[1], "0.4"));
  CU_ASSERT_FALSE(sweep_at_edge(&sweep.axis[0], "sync"));
  sweep_close(&sweep);
}

/* Nine settings: all with 9 of 27 epochs, the best three of each cell with 27. */
static void test_sweep_halving(void)
{
  struct sweep sweep;
  sweep_open(&sweep, "1,2,3,4,5,6,7,8,9", false);
  sweep.options.train.epochs = 27;
  CU_ASSERT_EQUAL(sweep_make_settings(&sweep, SWEEP_HALVING, 1, 1), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.halving.rungs, 2);
  CU_ASSERT_EQUAL(sweep_make_tune(&sweep), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.tune.count, 36);
  CU_ASSERT_STRING_EQUAL(sweep.tune.run[0].name, "strategy.name=sync,optim.lr=1,run.seed=101,train.epochs=9");
  for (int i = 0; i < 36; i++) { /* sync: the largest rates are the best; asgd: the smallest */
    sweep.tune.run[i].outcome = SWEEP_DONE;
    sweep.tune.run[i].validation.accuracy = i < 18 ? i / 18.0 : (36 - i) / 18.0;
  }
  sweep_halve(&sweep);
  CU_ASSERT_EQUAL(sweep_make_tune(&sweep), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.tune.count, 48);
  for (int i = 36; i < 48; i++) { /* the best of the first rung is the worst of the second */
    CU_ASSERT_EQUAL(sweep.tune.run[i].budget, 0);
    CU_ASSERT_EQUAL(sweep.tune.run[i].setting, (i - 36) / 2 % 3 + (i < 42 ? 6 : 0));
    sweep.tune.run[i].outcome = SWEEP_DONE;
    sweep.tune.run[i].validation.accuracy = i < 42 ? (48 - i) / 1000.0 : i / 1000.0;
  }
  CU_ASSERT_STRING_EQUAL(sweep.tune.run[36].name, "strategy.name=sync,optim.lr=7,run.seed=101");
  sweep_choose(&sweep);
  CU_ASSERT_EQUAL(sweep.chosen[0], 6);
  CU_ASSERT_EQUAL(sweep.chosen[1], 2);
  sweep_close(&sweep);
}

/* Names with characters that folders or shells mind, and long ones, stay apart. */
static void test_sweep_names(void)
{
  struct sweep sweep;
  sweep_open(&sweep, "0.1,0.2", false);
  sweep_axis_free(&sweep.axis[0]);
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep.axis[0], "model", "mlp 784-10 relu; mlp 784/10 relu", false), TRM_OK);
  CU_ASSERT_EQUAL(sweep_make_settings(&sweep, SWEEP_GRID, 1, 1), TRM_OK);
  CU_ASSERT_EQUAL(sweep_make_tune(&sweep), TRM_OK);
  for (int i = 0; i < sweep.tune.count; i++) {
    CU_ASSERT_PTR_NULL(strpbrk(sweep.tune.run[i].name, "/ |;"));
    for (int k = 0; k < i; k++)
      CU_ASSERT(strcmp(sweep.tune.run[i].name, sweep.tune.run[k].name) != 0);
  }
  sweep_close(&sweep);
}

/* Own values are the choice of their variant alone, with edges of their own; a value that no option lists is given to
 * the variants that have it. */
static void test_sweep_variants(void)
{
  static const char lines[] = "# name | options\n\nplain | --optim.lr=1,2,4\n"
                              "  outer, b| --strategy.outer_momentum=0.5,0.9 --run.jitter=lognormal 0.2 --run.slow=0:2,1:3\n";
  static const char tune[] = "optim.lr,strategy.outer_momentum";
  struct sweep sweep = {.dir = "x", .axes = 1};
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep.axis[0], "optim.lr", "0.5,1", false), TRM_OK);
  sweep.axis[0].role = SWEEP_TUNED;
  CU_ASSERT_EQUAL(sweep_read_variants(&sweep, lines, tune), TRM_OK);
  CU_ASSERT_EQUAL(sweep_finish_variants(&sweep), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.axes, 3); /* variant, lr, outer momentum */
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep.axis[sweep.axes++], "run.seed", "1", false), TRM_OK);
  CU_ASSERT_EQUAL(sweep_axis_read(&sweep.tune_seeds, "run.seed", "101", false), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(sweep.variants, 2);
  CU_ASSERT_STRING_EQUAL(sweep.axis[0].value[1], "outer, b");
  CU_ASSERT_STRING_EQUAL(sweep.variant[0].options, "");
  CU_ASSERT_STRING_EQUAL(sweep.variant[1].options, "--run.jitter=lognormal 0.2 --run.slow=0:2,1:3");
  CU_ASSERT_EQUAL(sweep_make_settings(&sweep, SWEEP_GRID, 1, 1), TRM_OK);
  CU_ASSERT_EQUAL(sweep_make_tune(&sweep), TRM_OK);
  static const char *const expected[][2] = {{"1", ""}, {"2", ""}, {"4", ""}, {"0.5", "0.5"}, {"0.5", "0.9"},
                                            {"1", "0.5"}, {"1", "0.9"}};
  CU_ASSERT_EQUAL_FATAL(sweep.tune.count, 7);
  for (int i = 0; i < 7; i++) {
    CU_ASSERT_EQUAL(sweep.tune.run[i].cell, i > 2);
    CU_ASSERT_STRING_EQUAL(sweep.tune.run[i].value[1], expected[i][0]);
    CU_ASSERT_STRING_EQUAL(sweep.tune.run[i].value[2], expected[i][1]);
  }
  const struct sweep_axis own = sweep_values_of(&sweep, 0, 1), listed = sweep_values_of(&sweep, 1, 1);
  CU_ASSERT(sweep_at_edge(&own, "1") && sweep_at_edge(&own, "4") && !sweep_at_edge(&own, "2"));
  CU_ASSERT_TRUE(sweep_at_edge(&listed, "1"));
  CU_ASSERT_EQUAL(sweep_add_variant(&sweep, "plain | --optim.lr=1", tune), TRM_USAGE);
  CU_ASSERT_EQUAL(sweep_add_variant(&sweep, "c | --optim.rl=1", tune), TRM_USAGE);
  CU_ASSERT_EQUAL(sweep_add_variant(&sweep, "d | optim.lr=1", tune), TRM_USAGE);
  sweep_variants_free(&sweep);
  sweep_close(&sweep);
}

static void test_sweep_random(void)
{
  struct sweep a, b;
  enum { TRIALS = 200 };
  sweep_open(&a, "0.001..1", true);
  sweep_open(&b, "0.001..1", true);
  CU_ASSERT_EQUAL(sweep_make_settings(&a, SWEEP_RANDOM, TRIALS, 1), TRM_OK);
  CU_ASSERT_EQUAL(sweep_make_settings(&b, SWEEP_RANDOM, TRIALS, 1), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(a.settings, TRIALS);
  int decade[3] = {0};
  for (int i = 0; i < TRIALS; i++) {
    const double value = strtod(a.setting[i * 3 + 1], NULL);
    CU_ASSERT(value >= 0.001 && value <= 1);
    CU_ASSERT_STRING_EQUAL(a.setting[i * 3 + 1], b.setting[i * 3 + 1]);
    decade[value < 0.01 ? 0 : value < 0.1 ? 1 : 2]++;
  }
  for (int i = 0; i < 3; i++) /* 67 expected, standard deviation 6.7 */
    CU_ASSERT(decade[i] > 40 && decade[i] < 94);
  sweep_close(&a);
  sweep_close(&b);
  /* Fewer values than trials: each once. */
  sweep_open(&a, "0.1,0.2,0.4", true);
  CU_ASSERT_EQUAL(sweep_make_settings(&a, SWEEP_RANDOM, 20, 1), TRM_OK);
  CU_ASSERT_EQUAL(a.settings, 3);
  sweep_close(&a);
}

/* Quantiles of Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2), and closed forms at 1 and 2 degrees of freedom. */
static void test_sweep_t(void)
{
  static const struct {
    double t, freedom, p;
  } known[] = {{12.70620473617, 1, 0.05}, {4.302652729749, 2, 0.05}, {2.776445105198, 4, 0.05},
               {4.604094871349, 4, 0.01}, {2.262157162798, 9, 0.05}, {2.042272456301, 30, 0.05},
               {1.983971518450, 100, 0.05}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    CU_ASSERT_DOUBLE_EQUAL(sweep_t_probability(known[i].t, known[i].freedom), known[i].p, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(sweep_t_probability(-known[i].t, known[i].freedom), known[i].p, 1e-9);
  }
  for (double t = 0; t < 40; t += 0.37) {
    CU_ASSERT_DOUBLE_EQUAL(sweep_t_probability(t, 1), 1 - 2 * atan(t) / acos(-1), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(sweep_t_probability(t, 2), 1 - t / sqrt(2 + t * t), 1e-12);
  }
  CU_ASSERT_DOUBLE_EQUAL(sweep_t_probability(1.959963984540, 1e7), 0.05, 1e-7);
  const double differences[] = {1, 2, 3, 4, 5}; /* t = 3 / (sqrt(2.5) / sqrt(5)) = 4.242641 */
  struct sweep_sample sample = sweep_sample_of(differences, 5);
  CU_ASSERT_DOUBLE_EQUAL(sample.mean, 3, 1e-15);
  CU_ASSERT_DOUBLE_EQUAL(sample.deviation, sqrt(2.5), 1e-15);
  /* 4 degrees: p = 1 - x (3 - x^2) / 2, x = t / sqrt(4 + t^2) */
  const double x = sqrt(18.0 / 22);
  CU_ASSERT_DOUBLE_EQUAL(sweep_paired_test(&sample), 1 - x * (3 - x * x) / 2, 1e-12);
  sample = sweep_sample_of(differences, 1);
  CU_ASSERT(isnan(sample.deviation) && isnan(sweep_paired_test(&sample)));
  sample = sweep_sample_of(differences, 0);
  CU_ASSERT(isnan(sample.mean));
}

int main(void)
{
  CU_TestInfo tests[] = {{"lists", test_sweep_lists}, {"grid", test_sweep_grid},     {"halving", test_sweep_halving},
                         {"names", test_sweep_names}, {"variants", test_sweep_variants}, {"random", test_sweep_random}, {"t", test_sweep_t},
                         CU_TEST_INFO_NULL};
  return suite_run("sweep", tests);
}
