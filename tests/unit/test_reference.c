/* Agreement with PyTorch: scores, losses, gradients and trained weights as tests/reference/make_reference.py recorded
 * them. The tolerances are four to five times what is seen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/optimizer.h"
#include "suite.h"
#include "support/nn_case.h"

enum { MOST_ENTRIES = 64 };

/* One case of a file: settings and arrays by name. */
struct reference {
  int settings, arrays;
  struct {
    char name[48], text[112];
  } setting[MOST_ENTRIES];
  struct {
    char name[48];
    size_t size[2], count; /* size[1] is 1 for vectors; a scalar has count 1 */
    double *values;
  } array[MOST_ENTRIES];
};

static FILE *reference_open(const char *name)
{
  char path[512];
  const char *folder = getenv("top_srcdir");
  snprintf(path, sizeof path, "%s/tests/reference/%s", folder ? folder : ".", name);
  FILE *file = fopen(path, "r");
  if (!file)
    printf("\n  %s cannot be read\n", path);
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  return file;
}

static void reference_free(struct reference *r)
{
  while (r->arrays)
    trm_free(r->array[--r->arrays].values);
}

static void array_read(struct reference *r, const char *line, FILE *file)
{
  CU_ASSERT_FATAL(r->arrays < MOST_ENTRIES);
  const int a = r->arrays++;
  r->array[a].size[0] = r->array[a].size[1] = 1;
  const int fields = sscanf(line, "array %47s %zu %zu", r->array[a].name, &r->array[a].size[0], &r->array[a].size[1]);
  CU_ASSERT_FATAL(fields >= 1);
  r->array[a].count = r->array[a].size[0] * r->array[a].size[1];
  r->array[a].values = trm_alloc(r->array[a].count * sizeof(double), "reference");
  for (size_t i = 0; i < r->array[a].count; i++)
    CU_ASSERT_EQUAL_FATAL(fscanf(file, "%lf", &r->array[a].values[i]), 1);
}

/* The next case of the file; false at its end. */
static bool reference_next(FILE *file, struct reference *r)
{
  char line[256];
  bool found = false;
  *r = (struct reference){0};
  for (long before = ftell(file); fgets(line, sizeof line, file); before = ftell(file)) {
    if (strncmp(line, "case ", 5) == 0) {
      if (found) {
        fseek(file, before, SEEK_SET);
        break;
      }
      found = true;
    } else if (strncmp(line, "set ", 4) == 0) {
      CU_ASSERT_FATAL(r->settings < MOST_ENTRIES);
      CU_ASSERT_EQUAL_FATAL(sscanf(line, "set %47s %111[^\n]", r->setting[r->settings].name,
                                   r->setting[r->settings].text), 2);
      r->settings++;
    } else if (strncmp(line, "array ", 6) == 0) {
      array_read(r, line, file);
    } else {
      CU_ASSERT_FATAL(line[0] == '#' || line[0] == '\n');
    }
  }
  return found;
}

static const char *setting_of(const struct reference *r, const char *name)
{
  for (int i = 0; i < r->settings; i++)
    if (strcmp(r->setting[i].name, name) == 0)
      return r->setting[i].text;
  CU_FAIL_FATAL("a setting is missing");
  return "";
}

static int array_of(const struct reference *r, const char *prefix, const char *name)
{
  char full[128];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  for (int i = 0; i < r->arrays; i++)
    if (strcmp(r->array[i].name, full) == 0)
      return i;
  printf("\n  no array %s\n", full);
  CU_FAIL_FATAL("an array is missing");
  return 0;
}

/* |got - array| <= tolerance * |array| */
static void array_check(const struct reference *r, int a, const float *got, double tolerance)
{
  double error = 0, size = 0;
  for (size_t i = 0; i < r->array[a].count; i++) {
    const double want = r->array[a].values[i];
    error += ((double)got[i] - want) * ((double)got[i] - want);
    size += want * want;
  }
  const bool near = sqrt(error) <= tolerance * sqrt(size);
  if (!near)
    printf("\n  %s, %s: %s: |difference| / |value| = %g\n", setting_of(r, "model"), setting_of(r, "loss"),
           r->array[a].name, sqrt(error / size));
  CU_ASSERT(size > 0);
  CU_ASSERT(near);
}

/* All parameters, or what flat array there is of them, against the arrays called prefix + name. */
static void parameters_check(const struct reference *r, const struct trm_model *model, const char *prefix,
                             const float *flat, double tolerance)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    const int a = array_of(r, prefix, p->name);
    CU_ASSERT_EQUAL_FATAL(r->array[a].count, p->count);
    CU_ASSERT_EQUAL(r->array[a].size[0], p->shape.size[0]);
    array_check(r, a, flat + p->offset, tolerance);
  }
}

/* The case's model with its weights. The samples travel dense or as CSR. */
static void case_open(struct nn_case *c, struct trm_device *device, const struct reference *r, bool sparse, size_t rows)
{
  const int x = array_of(r, "", "x"), t = array_of(r, "", "targets");
  struct trm_input_spec spec = {
    .shape = {.dims = 1, .size = {r->array[x].size[1]}}, .sparse = sparse, .target = TRM_TARGET_VALUE,
    .classes = r->array[t].size[1]};
  if (strcmp(setting_of(r, "loss"), "softmax_cross_entropy") == 0) {
    spec.target = TRM_TARGET_CLASS;
    spec.classes = 5;
  }
  const int status = nn_case_open(c, device, setting_of(r, "model"), setting_of(r, "loss"), &spec, rows, 1);
  if (status != TRM_OK)
    printf("\n  %s\n", trm_error_text());
  CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
  float *w = trm_alloc(c->model.parameters * sizeof *w, "weights");
  for (int n = 0; n < trm_model_parameter_count(&c->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&c->model, n);
    const int a = array_of(r, "", p->name);
    CU_ASSERT_EQUAL_FATAL(r->array[a].count, p->count);
    for (size_t e = 0; e < p->count; e++)
      w[p->offset + e] = (float)r->array[a].values[e];
  }
  nn_case_upload(c, w);
  trm_free(w);
}

/* Rows [low, high) of the case's samples. */
static void case_batch(struct nn_case *c, const struct reference *r, size_t low, size_t high)
{
  const int x = array_of(r, "", "x"), t = array_of(r, "", "targets");
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
  const size_t rows = r->array[array_of(r, "", "x")].size[0];
  struct nn_case c;
  case_open(&c, device, r, sparse, rows);
  case_batch(&c, r, 0, rows);
  const struct trm_pass pass = nn_case_pass(&c);
  struct trm_tally tally = {0};
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &tally), TRM_OK);
  const int scores = array_of(r, "", "scores");
  array_check(r, scores, read_floats(device, c.model.scores, r->array[scores].count), 1e-6);
  const float value = (float)(tally.loss / tally.rows);
  array_check(r, array_of(r, "", "value"), &value, 1e-6);
  parameters_check(r, &c.model, "gradient.", nn_case_train(&c, &pass, 1.0f / (float)rows), 1e-6);
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

/* The options of the case. */
static struct trm_options case_options(const struct reference *r)
{
  struct trm_options options;
  trm_options_default(&options);
  for (int i = 0; i < r->settings; i++)
    if (strncmp(r->setting[i].name, "optim.", 6) == 0) {
      const int status = trm_options_set(&options, r->setting[i].name, r->setting[i].text);
      if (status != TRM_OK)
        printf("\n  %s\n", trm_error_text());
      CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
    }
  return options;
}

/* One step as a strategy takes it. Returns the mean loss before it. */
static double case_step(struct nn_case *c, struct trm_optimizer *optimizer, float *const states[2], size_t batch,
                        bool *clipped)
{
  struct trm_device *device = c->device;
  const struct trm_pass pass = nn_case_pass(c);
  struct trm_tally tally = {0};
  CU_ASSERT_EQUAL_FATAL(trm_model_train(&c->model, &pass, 1.0f / (float)batch, &tally, NULL, NULL), TRM_OK);
  const size_t n = c->model.parameters;
  optimizer->update.scale = trm_clip_scale(optimizer, device->ops->norm_squared(device, c->g, n));
  *clipped |= optimizer->update.scale < 1;
  device->ops->update(device, &optimizer->update, c->w, c->g, states[0], states[1], n);
  return tally.loss / tally.rows;
}

static void training_check(struct trm_device *device, const struct reference *r, bool sparse)
{
  const size_t steps = strtoul(setting_of(r, "steps"), NULL, 10), batch = strtoul(setting_of(r, "batch"), NULL, 10);
  const size_t batches = r->array[array_of(r, "", "x")].size[0] / batch;
  const int rates = array_of(r, "", "rates"), values = array_of(r, "", "values");
  struct trm_options options = case_options(r);
  struct trm_optimizer optimizer;
  CU_ASSERT_EQUAL_FATAL(trm_optimizer_create(&optimizer, &options), TRM_OK);
  struct nn_case c;
  case_open(&c, device, r, sparse, batch);
  float *states[2] = {NULL, NULL}, *value = trm_alloc(steps * sizeof *value, "losses");
  for (int i = 0; i < optimizer.states; i++)
    states[i] = device_floats(device, host_floats(c.model.parameters), c.model.parameters);
  bool clipped = false;
  for (size_t step = 0; step < steps; step++) {
    const double rate = trm_schedule_rate(&options, step, steps, batches);
    CU_ASSERT_DOUBLE_EQUAL(rate, r->array[rates].values[step], 1e-8 * rate); /* 9 digits are recorded */
    optimizer.update.rate = (float)rate;
    optimizer.update.step = step + 1;
    case_batch(&c, r, step % batches * batch, (step % batches + 1) * batch);
    value[step] = (float)case_step(&c, &optimizer, states, batch, &clipped);
  }
  CU_ASSERT_EQUAL(clipped, options.optim.clip > 0);
  array_check(r, values, value, 1e-6);
  const float *w = nn_case_weights(&c);
  parameters_check(r, &c.model, "final.", w, 1e-5);
  size_t kept = trm_model_size(&c.model);
  for (size_t e = 0; e < c.model.parameters; e++)
    kept += w[e] == 0;
  CU_ASSERT_EQUAL(kept, c.model.parameters); /* the padding is 0 after all that */
  trm_free(value);
  nn_case_close(&c);
  trm_options_free(&options);
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
  CU_ASSERT_EQUAL(cases, 12);
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
