/* Comparison with PyTorch: scores, losses, gradients and trained weights, recorded by
 * tests/reference/make_reference.py. Tolerances are four to five times the observed differences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "support/reference.h"

/* The case's model with its weights, for dense or CSR samples. */
static void case_open(struct nn_case *c, struct trm_device *device, const struct reference *r, bool sparse, size_t rows)
{
  const int x = reference_array(r, "", "x"), t = reference_array(r, "", "targets");
  struct trm_input_spec spec = {
    .shape = {.dims = 1, .size = {r->array[x].size[1]}}, .sparse = sparse, .target = TRM_TARGET_VALUE,
    .classes = r->array[t].size[1]};
  if (strcmp(reference_setting(r, "loss"), "softmax_cross_entropy") == 0) {
    spec.target = TRM_TARGET_CLASS;
    spec.classes = 5;
  }
  const int status = nn_case_open(c, device, reference_setting(r, "model"), reference_setting(r, "loss"), &spec, rows,
                                  1);
  if (status != TRM_OK)
    printf("\n  %s\n", trm_error_text());
  CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
  reference_weights(r, c);
}

/* Rows [low, high) of the case's samples. */
static void case_batch(struct nn_case *c, const struct reference *r, size_t low, size_t high)
{
  const int x = reference_array(r, "", "x"), t = reference_array(r, "", "targets");
  const size_t rows = high - low, f = r->array[x].size[1], v = r->array[t].size[1];
  float *dense = trm_alloc(rows * f * sizeof *dense, "samples");
  float *value = trm_alloc(rows * v * sizeof *value, "targets");
  int32_t *class = trm_alloc(rows * sizeof *class, "targets");
  for (size_t i = 0; i < rows * f; i++)
    dense[i] = (float)r->array[x].values[low * f + i];
  for (size_t i = 0; i < rows * v; i++)
    value[i] = (float)r->array[t].values[low * v + i];
  for (size_t i = 0; i < rows; i++)
    class[i] = (int32_t)r->array[t].values[low * v + i];
  if (c->model.spec.target == TRM_TARGET_CLASS)
    nn_case_batch(c, rows, dense, class, NULL);
  else
    nn_case_batch(c, rows, dense, NULL, value);
  trm_free(dense);
  trm_free(value);
  trm_free(class);
}

static void gradients_check(struct trm_device *device, const struct reference *r, bool sparse)
{
  const size_t rows = r->array[reference_array(r, "", "x")].size[0];
  struct nn_case c;
  case_open(&c, device, r, sparse, rows);
  case_batch(&c, r, 0, rows);
  const struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums tally = {0};
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &tally), TRM_OK);
  const int scores = reference_array(r, "", "scores");
  reference_check_array(r, scores, read_floats(device, c.model.scores, r->array[scores].count), 1e-6);
  const float value = (float)(tally.loss / tally.rows);
  reference_check_array(r, reference_array(r, "", "value"), &value, 1e-6);
  reference_check_parameters(r, &c.model, "gradient.", nn_case_train(&c, &pass, 1.0f / (float)rows), 1e-6);
  nn_case_close(&c);
}

static void gradients(struct trm_device *device)
{
  FILE *file = reference_open("gradients.txt");
  struct reference r;
  int cases = 0;
  for (; reference_next(file, &r); cases++) {
    gradients_check(device, &r, false);
    gradients_check(device, &r, true);
    reference_free(&r);
  }
  CU_ASSERT_EQUAL(cases, 11);
  fclose(file);
}

static void training_check(struct trm_device *device, const struct reference *r, bool sparse)
{
  const size_t steps = strtoul(reference_setting(r, "steps"), NULL, 10);
  const size_t batch = strtoul(reference_setting(r, "batch"), NULL, 10);
  const size_t batches = r->array[reference_array(r, "", "x")].size[0] / batch;
  const int rates = reference_array(r, "", "rates"), values = reference_array(r, "", "values");
  struct nn_case c;
  struct reference_run run;
  case_open(&c, device, r, sparse, batch);
  reference_run_open(&run, r, &c);
  float *value = host_floats(steps);
  for (size_t step = 0; step < steps; step++) {
    const double rate = trm_schedule_rate(&run.options, step, steps, batches);
    CU_ASSERT_DOUBLE_EQUAL(rate, r->array[rates].values[step], 1e-8 * rate); /* recorded with 9 digits */
    case_batch(&c, r, step % batches * batch, (step % batches + 1) * batch);
    value[step] = reference_run_step(&run, rate, batch);
  }
  reference_check_array(r, values, value, 1e-6);
  const float *w = read_floats(device, run.strategy.w, c.model.parameters);
  reference_check_parameters(r, &c.model, "final.", w, 1e-5);
  if (run.strategy.eval_weights)
    reference_check_parameters(r, &c.model, "average.",
                               read_floats(device, run.strategy.eval_weights, c.model.parameters), 1e-5);
  size_t kept = trm_model_size(&c.model);
  for (size_t e = 0; e < c.model.parameters; e++)
    kept += w[e] == 0;
  CU_ASSERT_EQUAL(kept, c.model.parameters); /* padding stays 0 */
  reference_run_close(&run);
  nn_case_close(&c);
}

static void training(struct trm_device *device)
{
  FILE *file = reference_open("training.txt");
  struct reference r;
  int cases = 0;
  for (; reference_next(file, &r); cases++) {
    training_check(device, &r, false);
    training_check(device, &r, true);
    reference_free(&r);
  }
  CU_ASSERT_EQUAL(cases, 29);
  fclose(file);
}

static void test_gradients(void)
{
  on_devices(gradients);
}

static void test_training(void)
{
  on_devices(training);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"scores, loss and gradients", test_gradients},
    {"twenty updates with every optimizer and schedule", test_training},
    CU_TEST_INFO_NULL,
  };
  return suite_run("reference", tests);
}
