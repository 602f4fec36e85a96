/* Comparison of token models with PyTorch: scores, gradients, and the losses of twenty AdamW updates, recorded by
 * tests/reference/make_sequences.py. Tolerances are about four times the observed differences. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "support/reference.h"

static size_t number_of(const struct reference *r, const char *name)
{
  return strtoul(reference_setting(r, name), NULL, 10);
}

/* Rows [low, high) of the case's samples. */
static void case_batch(struct nn_case *c, const struct reference *r, size_t low, size_t high)
{
  const int x = reference_array(r, "", "x"), t = reference_array(r, "", "targets");
  const size_t context = r->array[x].size[1], n = (high - low) * context;
  float *token = trm_alloc(n * sizeof *token, "tokens");
  int32_t *target = trm_alloc(n * sizeof *target, "targets");
  for (size_t i = 0; i < n; i++) {
    token[i] = (float)r->array[x].values[low * context + i];
    target[i] = (int32_t)r->array[t].values[low * context + i];
  }
  nn_case_batch(c, high - low, token, target, NULL);
  trm_free(token);
  trm_free(target);
}

/* Compares the loss of each step. */
static void losses_check(struct nn_case *c, const struct reference *r)
{
  const size_t steps = number_of(r, "steps"), batch = number_of(r, "batch");
  const size_t batches = r->array[reference_array(r, "", "x")].size[0] / batch;
  struct reference_run run;
  reference_run_open(&run, r, c);
  float *value = host_floats(steps);
  for (size_t step = 0; step < steps; step++) {
    case_batch(c, r, step % batches * batch, (step % batches + 1) * batch);
    value[step] = reference_run_step(&run, run.options.optim.rate, batch);
  }
  reference_check_array(r, reference_array(r, "", "values"), value, 1e-5);
  reference_run_close(&run);
}

static void case_check(struct trm_device *device, const struct reference *r)
{
  const size_t batch = number_of(r, "batch");
  const struct trm_input_spec spec = {
    .shape = {.dims = 1, .size = {r->array[reference_array(r, "", "x")].size[1]}}, .tokens = true,
    .target = TRM_TARGET_CLASS, .classes = number_of(r, "vocabulary")};
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(
    nn_case_open(&c, device, reference_setting(r, "model"), reference_setting(r, "loss"), &spec, batch, 1), TRM_OK);
  c.model.smoothing = strtof(reference_setting(r, "smoothing"), NULL);
  reference_weights(r, &c);
  case_batch(&c, r, 0, batch);
  const struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums tally = {0};
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &tally), TRM_OK);
  const int scores = reference_array(r, "", "scores");
  reference_check_array(r, scores, read_floats(device, c.model.scores, r->array[scores].count), 2e-6);
  reference_check_parameters(r, &c.model, "gradient.", nn_case_train(&c, &pass, 1.0f / (float)batch), 4e-6);
  losses_check(&c, r);
  nn_case_close(&c);
}

static void cases(struct trm_device *device)
{
  FILE *file = reference_open("sequences.txt");
  static struct reference r;
  int count = 0;
  for (; reference_next(file, &r); count++) {
    case_check(device, &r);
    reference_free(&r);
  }
  CU_ASSERT_EQUAL(count, 4);
  fclose(file);
}

static void test_cases(void)
{
  on_devices(cases);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"scores, gradients and twenty losses", test_cases},
    CU_TEST_INFO_NULL,
  };
  return suite_run("reference_sequences", tests);
}
