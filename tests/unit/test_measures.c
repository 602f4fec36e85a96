/* Measures of recorded predictions are scikit-learn's (tests/reference/make_measures.py), with the rows divided among
 * the ranks, in passes of any size. */
#include <math.h>

#include "core/memory.h"
#include "ranks.h"
#include "support/reference.h"
#include "train/measures.h"

/* A case as this rank has it: the rows [low, high) of all. */
struct recorded {
  struct reference r;
  const struct trm_loss *loss;
  struct trm_input_spec spec;
  size_t rows, c, low, high;
  float *scores, *value; /* (rows, c); (rows, values) */
  int32_t *class;        /* (rows) */
};

static bool recorded_next(FILE *file, struct recorded *one)
{
  if (!reference_next(file, &one->r))
    return false;
  const int scores = reference_array(&one->r, "", "scores"), target = reference_array(&one->r, "", "target");
  const size_t targets = one->r.array[target].count;
  const char *loss = reference_setting(&one->r, "loss");
  const bool values = !strcmp(loss, "mean_squared_error") || !strcmp(loss, "binary_cross_entropy");
  one->rows = one->r.array[scores].size[0];
  one->c = one->r.array[scores].size[1];
  const struct trm_shape shape = {.dims = 1, .size = {one->c}};
  one->spec = (struct trm_input_spec){.shape = shape, .target = values ? TRM_TARGET_VALUE : TRM_TARGET_CLASS,
                                      .classes = values || one->c > 1 ? one->c : 2};
  one->loss = trm_loss_find(loss, &shape, &one->spec);
  CU_ASSERT_PTR_NOT_NULL_FATAL(one->loss);
  one->scores = trm_alloc(one->rows * one->c * sizeof(float), "scores");
  one->value = trm_alloc(targets * sizeof(float), "targets");
  one->class = trm_alloc(targets * sizeof(int32_t), "targets");
  for (size_t i = 0; i < one->rows * one->c; i++)
    one->scores[i] = (float)one->r.array[scores].values[i];
  for (size_t i = 0; i < targets; i++) {
    one->value[i] = (float)one->r.array[target].values[i];
    one->class[i] = (int32_t)one->r.array[target].values[i];
  }
  trm_interval(one->rows, (size_t)world->size, (size_t)world->rank, &one->low, &one->high);
  return true;
}

static void recorded_free(struct recorded *one)
{
  trm_free(one->scores);
  trm_free(one->value);
  trm_free(one->class);
  reference_free(&one->r);
}

/* Measures the case in passes of `batch` rows. The caller frees the measurement. */
static struct trm_measurement *measure(const struct recorded *one, size_t batch, struct trm_measures *measures)
{
  const bool values = one->spec.target == TRM_TARGET_VALUE;
  struct trm_measurement *m = trm_measurement_create(one->loss, &one->spec, one->rows, !values);
  for (size_t low = one->low; low < one->high; low += batch) {
    const size_t rows = one->high - low < batch ? one->high - low : batch;
    trm_measurement_add(m, rows, one->scores + low * one->c, values ? NULL : one->class + low,
                        values ? one->value + low * one->c : NULL);
  }
  trm_measurement_end(m, world, measures);
  return m;
}

/* Returns the recorded value of a measure; *is_recorded: there is one. */
static double want(const struct recorded *one, const char *key, bool *is_recorded)
{
  for (int i = 0; i < one->r.arrays; i++)
    if (strcmp(one->r.array[i].name, key) == 0) {
      *is_recorded = true;
      return one->r.array[i].values[0];
    }
  *is_recorded = false;
  return NAN;
}

static void check_measures(const struct recorded *one, const struct trm_measures *got, const char *name)
{
  for (int i = 0; i < TRM_MEASURES; i++) {
    const char *key = trm_measure_texts[i].key;
    bool applies;
    const double expected = want(one, key, &applies);
    const bool same = got->applies[i] == applies && isnan(got->value[i]) == isnan(expected) &&
                      (isnan(expected) || fabs(got->value[i] - expected) <= 1e-9 * fmax(1, fabs(expected)));
    if (!same)
      printf("\n  %s: %s is %.12g, not %.12g\n", name, key, got->value[i], expected);
    CU_ASSERT(same);
  }
}

static void test_recorded(void)
{
  FILE *file = reference_open("measures.txt");
  struct recorded one;
  int cases = 0;
  for (; recorded_next(file, &one); cases++) {
    struct trm_measures whole, parts;
    char name[32];
    snprintf(name, sizeof name, "case %d", cases);
    trm_measurement_free(measure(&one, one.rows, &whole));
    trm_measurement_free(measure(&one, 7, &parts));
    check_measures(&one, &whole, name);
    check_measures(&one, &parts, name);
    recorded_free(&one);
  }
  fclose(file);
  CU_ASSERT_EQUAL(cases, 15);
}

/* The confusion matrix is of all ranks' rows, and the F1 of micro average is the accuracy. */
static void test_confusion(void)
{
  FILE *file = reference_open("measures.txt");
  struct recorded one;
  struct trm_measures measures;
  CU_ASSERT_FATAL(recorded_next(file, &one));
  struct trm_measurement *m = measure(&one, 7, &measures);
  const int64_t *confusion = trm_measurement_confusion(m);
  int64_t rows = 0, right = 0;
  for (size_t k = 0; k < one.c; k++)
    for (size_t j = 0; j < one.c; j++) {
      int64_t counted = 0;
      for (size_t i = 0; i < one.rows; i++)
        counted += one.class[i] == (int32_t)k && trm_predicted_class(one.scores + i * one.c, one.c) == (int32_t)j;
      CU_ASSERT_EQUAL(confusion[k * one.c + j], counted);
      rows += counted;
      right += j == k ? counted : 0;
    }
  CU_ASSERT_EQUAL(rows, (int64_t)one.rows);
  CU_ASSERT_EQUAL(measures.value[TRM_F1_MICRO], (double)right / (double)rows);
  trm_measurement_free(m);
  recorded_free(&one);
  fclose(file);
}

/* With one score that is not finite, on any rank, no measure is defined. scikit-learn refuses such scores. */
static void test_not_finite(void)
{
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  FILE *file = reference_open("measures.txt");
  struct recorded one;
  for (int cases = 0; recorded_next(file, &one); cases++) {
    struct trm_measures measures;
    char text[256];
    one.scores[one.rows * one.c - 1] = bad[cases % 3];
    trm_measurement_free(measure(&one, 7, &measures));
    for (int i = 0; i < TRM_MEASURES; i++)
      CU_ASSERT(isnan(measures.value[i]));
    const enum trm_measure of_values = one.loss->labels ? TRM_F1_MACRO : TRM_MAE;
    CU_ASSERT(measures.applies[one.spec.target == TRM_TARGET_VALUE ? of_values : TRM_AUC]);
    trm_measures_text(&measures, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, one.loss->labels ? "F1 macro -, micro -"
                                        : one.spec.target == TRM_TARGET_VALUE ? "MAE -, RMSE -, R^2 -" : ", AUC -"));
    recorded_free(&one);
  }
  fclose(file);
}

/* Tokens have no measures. The AUC is left out where the scores are too many; the other measures are not. */
static void test_limits(void)
{
  static const float scores[] = {0.5f, -1};
  static const int32_t class[] = {1, 0};
  const struct trm_shape shape = {.dims = 1, .size = {1}};
  struct trm_input_spec spec = {.shape = shape, .target = TRM_TARGET_CLASS, .classes = 2};
  const struct trm_loss *loss = trm_loss_find("auto", &shape, &spec);
  const size_t limit = ((size_t)1 << 26) / 4; /* of one score a row */
  struct trm_measures measures;
  for (int beyond = 0; beyond < 2; beyond++) {
    struct trm_measurement *m = trm_measurement_create(loss, &spec, limit + (size_t)beyond, false);
    CU_ASSERT_PTR_NULL(trm_measurement_confusion(m));
    if (world->rank == world->size - 1)
      trm_measurement_add(m, 2, scores, class, NULL);
    trm_measurement_end(m, world, &measures);
    CU_ASSERT(measures.applies[TRM_AUC] == !beyond && isnan(measures.value[TRM_AUC]) == beyond);
    CU_ASSERT(beyond || measures.value[TRM_AUC] == 1);
    CU_ASSERT(measures.applies[TRM_F1_MACRO] && measures.value[TRM_F1_MACRO] == 1);
    trm_measurement_free(m);
  }
  const size_t bytes = trm_measurement_bytes(loss, &spec, 1000, 1);
  CU_ASSERT(bytes >= 8000 && bytes < 100000);
  CU_ASSERT_EQUAL(trm_measurement_bytes(loss, &spec, limit + 1, 1), 0);
  spec.tokens = true;
  CU_ASSERT_PTR_NULL(trm_measurement_create(loss, &spec, 10, false));
  trm_measurement_free(NULL);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"values of scikit-learn", test_recorded},
    {"confusion", test_confusion},
    {"scores that are not finite", test_not_finite},
    {"limits", test_limits},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "measures", tests);
}
