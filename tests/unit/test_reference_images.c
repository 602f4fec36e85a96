/* Comparison of convolutional networks with PyTorch: scores, gradients, statistics of batch norm, inference, and the
 * losses of twenty updates, recorded by tests/reference/make_images.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "support/reference.h"

enum { SIGNS = 8 };

static size_t number_of(const struct reference *r, const char *name)
{
  return strtoul(reference_setting(r, name), NULL, 10);
}

/* Generates arrays too large to record: values in [-1, 1), exact in float. */
static float number(uint32_t stream, uint32_t i)
{
  uint32_t h = i * 2654435761u + stream * 2246822519u + 12345u;
  h = (h ^ h >> 15) * 2221713035u;
  h = (h ^ h >> 13) * 3266489917u;
  return (float)((h ^ h >> 16) >> 8) / 8388608.0f - 1;
}

/* Compares the norm, and inner products with sign vectors. */
static void digest_check(const struct reference *r, const char *prefix, int n, const float *values, size_t count)
{
  char name[16];
  double sum[SIGNS] = {0};
  float got[1 + SIGNS] = {(float)norm_of(values, count)};
  for (uint32_t k = 0; k < SIGNS; k++) {
    for (uint32_t i = 0; i < count; i++)
      sum[k] += number(2000 + k, i) < 0 ? -values[i] : values[i];
    got[1 + k] = (float)sum[k];
  }
  snprintf(name, sizeof name, "%d", n);
  reference_check_array(r, reference_array(r, prefix, name), got, 1e-5);
}

/* Compares the gradients, or the statistics, in a flat array. */
static void tensors_check(const struct reference *r, const struct trm_model *model, const float *flat, bool statistics)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    if (p->statistic == statistics)
      digest_check(r, statistics ? "once." : "gradient.", n, flat + p->offset, p->count);
  }
}

static float weight(const struct trm_layer *layer, const struct trm_parameter *p, int n, uint32_t i)
{
  const bool bias = strstr(p->name, ".bias") != NULL;
  if (p->statistic)
    return p->init == TRM_INIT_ONE ? 1 : 0;
  if (strcmp(layer->ops->name, "batch_norm") == 0)
    return bias ? number((uint32_t)n, i) / 8 : 1 + number((uint32_t)n, i) / 4;
  if (bias)
    return number((uint32_t)n, i) / 16;
  float bound = 1;
  while (bound * bound * (float)(p->count / p->shape.size[0]) > 6)
    bound /= 2;
  return number((uint32_t)n, i) * bound;
}

static void case_weights(struct nn_case *c)
{
  float *w = trm_alloc(c->model.parameters * sizeof *w, "weights");
  int n = 0;
  for (int l = 0; l < c->model.layers; l++)
    for (int k = 0; k < c->model.layer[l].parameters; k++, n++) {
      const struct trm_parameter *p = &c->model.layer[l].parameter[k];
      for (uint32_t i = 0; i < p->count; i++)
        w[p->offset + i] = weight(&c->model.layer[l], p, n, i);
    }
  nn_case_upload(c, w);
  trm_free(w);
}

/* stream: of the samples. */
static void case_batch(struct nn_case *c, uint32_t stream, size_t rows, size_t first)
{
  const size_t f = trm_shape_count(&c->model.spec.shape);
  float *x = trm_alloc(rows * f * sizeof *x, "samples");
  int32_t *class = trm_alloc(rows * sizeof *class, "targets");
  for (size_t i = 0; i < rows * f; i++)
    x[i] = number(stream, (uint32_t)(first * f + i));
  for (size_t i = 0; i < rows; i++)
    class[i] = (int32_t)(((double)number(1001, (uint32_t)(first + i)) + 1) / 2 * (double)c->model.spec.classes);
  nn_case_batch(c, rows, x, class, NULL);
  trm_free(x);
  trm_free(class);
}

static void scores_check(struct nn_case *c, const struct reference *r, const char *name)
{
  const int a = reference_array(r, "", name);
  reference_check_array(r, a, read_floats(c->device, c->model.scores, r->array[a].count), 1e-5);
}

static void case_check(struct trm_device *device, const struct reference *r)
{
  const size_t batch = number_of(r, "batch"), batches = number_of(r, "batches"), steps = number_of(r, "steps");
  struct trm_input_spec spec = {.shape = {.dims = 3}, .target = TRM_TARGET_CLASS, .classes = number_of(r, "classes")};
  CU_ASSERT_EQUAL_FATAL(sscanf(reference_setting(r, "input"), "%zux%zux%zu", &spec.shape.size[0], &spec.shape.size[1],
                               &spec.shape.size[2]), 3);
  struct nn_case c;
  const int status =
    nn_case_open(&c, device, reference_setting(r, "model"), reference_setting(r, "loss"), &spec, batch, 1);
  if (status != TRM_OK)
    printf("\n  %s\n", trm_error_text());
  CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
  case_weights(&c);

  struct reference_run run;
  reference_run_open(&run, r, &c);
  float *value = host_floats(steps);
  for (size_t step = 0; step < steps; step++) {
    case_batch(&c, (uint32_t)number_of(r, "samples"), batch, step % batches * batch);
    if (step == 0) { /* bit-identical to what the update uses */
      const struct trm_pass pass = nn_case_pass(&c);
      trm_model_forward(&c.model, &pass);
      scores_check(&c, r, "scores");
      struct trm_loss_sums tally = {0};
      CU_ASSERT_EQUAL_FATAL(trm_model_train(&c.model, &pass, 1.0f / (float)batch, &tally, NULL, NULL), TRM_OK);
      tensors_check(r, &c.model, read_floats(device, run.strategy.g, c.model.parameters), false);
    }
    value[step] = reference_run_step(&run, run.options.optim.rate, batch);
    if (step == 0) {
      struct trm_pass pass = nn_case_pass(&c);
      pass.training = false;
      tensors_check(r, &c.model, read_floats(device, run.strategy.w, c.model.parameters), true);
      trm_model_forward(&c.model, &pass);
      scores_check(&c, r, "inferred");
    }
  }
  reference_check_array(r, reference_array(r, "", "values"), value, 1e-4);
  reference_run_close(&run);
  nn_case_close(&c);
}

static void cases(struct trm_device *device)
{
  FILE *file = reference_open("images.txt");
  static struct reference r;
  int count = 0;
  for (; reference_next(file, &r); count++) {
    case_check(device, &r);
    reference_free(&r);
  }
  CU_ASSERT_EQUAL(count, 3);
  fclose(file);
}

static void test_cases(void)
{
  on_devices(cases);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"scores, gradients, statistics and twenty losses", test_cases},
    CU_TEST_INFO_NULL,
  };
  return suite_run("reference_images", tests);
}
