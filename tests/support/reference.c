/* See reference.h. */
#include "support/reference.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

FILE *reference_open(const char *name)
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

void reference_free(struct reference *r)
{
  while (r->arrays)
    trm_free(r->array[--r->arrays].values);
}

static void reference_read_array(struct reference *r, const char *line, FILE *file)
{
  CU_ASSERT_FATAL(r->arrays < MAX_ENTRIES);
  const int a = r->arrays++;
  r->array[a].size[0] = r->array[a].size[1] = 1;
  const int fields = sscanf(line, "array %47s %zu %zu", r->array[a].name, &r->array[a].size[0], &r->array[a].size[1]);
  CU_ASSERT_FATAL(fields >= 1);
  r->array[a].count = r->array[a].size[0] * r->array[a].size[1];
  r->array[a].values = trm_alloc(r->array[a].count * sizeof(double), "reference");
  for (size_t i = 0; i < r->array[a].count; i++)
    CU_ASSERT_EQUAL_FATAL(fscanf(file, "%lf", &r->array[a].values[i]), 1);
}

bool reference_next(FILE *file, struct reference *r)
{
  char line[1024];
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
      CU_ASSERT_FATAL(r->settings < MAX_ENTRIES);
      CU_ASSERT_EQUAL_FATAL(sscanf(line, "set %47s %511[^\n]", r->setting[r->settings].name,
                                   r->setting[r->settings].text), 2);
      r->settings++;
    } else if (strncmp(line, "array ", 6) == 0) {
      reference_read_array(r, line, file);
    } else {
      CU_ASSERT_FATAL(line[0] == '#' || line[0] == '\n');
    }
  }
  return found;
}

const char *reference_setting(const struct reference *r, const char *name)
{
  for (int i = 0; i < r->settings; i++)
    if (strcmp(r->setting[i].name, name) == 0)
      return r->setting[i].text;
  CU_FAIL_FATAL("a setting is missing");
  return "";
}

int reference_array(const struct reference *r, const char *prefix, const char *name)
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

void reference_check_array(const struct reference *r, int a, const float *got, double tolerance)
{
  double error = 0, size = 0;
  for (size_t i = 0; i < r->array[a].count; i++) {
    const double want = r->array[a].values[i];
    error += ((double)got[i] - want) * ((double)got[i] - want);
    size += want * want;
  }
  const bool near = sqrt(error) <= tolerance * sqrt(size);
  if (!near)
    printf("\n  %s, %s: %s: |difference| / |value| = %g\n", reference_setting(r, "model"), reference_setting(r, "loss"),
           r->array[a].name, sqrt(error / size));
  CU_ASSERT(size > 0);
  CU_ASSERT(near);
}

void reference_check_parameters(const struct reference *r, const struct trm_model *model, const char *prefix,
                             const float *flat, double tolerance)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    const int a = reference_array(r, prefix, p->name);
    CU_ASSERT_EQUAL_FATAL(r->array[a].count, p->count);
    CU_ASSERT_EQUAL(r->array[a].size[0], p->shape.size[0]);
    reference_check_array(r, a, flat + p->offset, tolerance);
  }
}

void reference_weights(const struct reference *r, struct nn_case *c)
{
  float *w = trm_alloc(c->model.parameters * sizeof *w, "weights");
  for (int n = 0; n < trm_model_parameter_count(&c->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&c->model, n);
    const int a = reference_array(r, "", p->name);
    CU_ASSERT_EQUAL_FATAL(r->array[a].count, p->count);
    for (size_t e = 0; e < p->count; e++)
      w[p->offset + e] = (float)r->array[a].values[e];
  }
  nn_case_upload(c, w);
  trm_free(w);
}

void reference_run_open(struct reference_run *run, const struct reference *r, struct nn_case *c)
{
  *run = (struct reference_run){.c = c};
  trm_options_default(&run->options);
  for (int i = 0; i < r->settings; i++)
    if (strncmp(r->setting[i].name, "optim.", 6) == 0) {
      const int status = trm_options_set(&run->options, r->setting[i].name, r->setting[i].text);
      if (status != TRM_OK)
        printf("\n  %s\n", trm_error_text());
      CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
    }
  const struct trm_model *model = &c->model;
  CU_ASSERT_EQUAL_FATAL(trm_model_set_groups(&c->model, model, run->options.optim.groups), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_optimizer_create(&run->optimizer, &run->options, model), TRM_OK);
  run->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = trm_comm_self(),
                                        .device = c->device,
                                        .optimizer = &run->optimizer,
                                        .elements = model->parameters,
                                        .boundary = model->boundary,
                                        .boundaries = model->boundaries};
  trm_strategy_set_options(&run->strategy, &run->options);
  struct trm_strategy *s = &run->strategy;
  const float *from[TRM_MAX_STATES] = {nn_case_weights(c)};
  if (run->optimizer.ema > 0)
    from[run->optimizer.states] = from[0];
  CU_ASSERT_EQUAL_FATAL(trm_strategy_create(s), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(s->ops->restore(s, from, 0), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c->model, c->device, s->w, s->g, c->model.max_rows, true), TRM_OK);
}

float reference_run_step(struct reference_run *run, double rate, size_t batch)
{
  struct trm_strategy *s = &run->strategy;
  const struct trm_pass pass = nn_case_pass(run->c);
  struct trm_loss_sums sums = {0};
  CU_ASSERT_EQUAL_FATAL(trm_model_train(&run->c->model, &pass, 1.0f / (float)batch, &sums, NULL, NULL), TRM_OK);
  trm_strategy_begin_step(s, rate, 0, &sums);
  CU_ASSERT_EQUAL_FATAL(s->ops->step(s, rate, &sums), TRM_OK);
  return (float)(sums.loss / sums.rows);
}

void reference_run_close(struct reference_run *run)
{
  run->strategy.ops->destroy(&run->strategy);
  trm_options_free(&run->options);
}
