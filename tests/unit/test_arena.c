/* The activation arena: what shares memory, what is kept, and that none of it changes a number. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/plan.h"
#include "suite.h"
#include "support/nn_case.h"

/* Gives every array a place of its own, in a new arena. Returns the old arena. */
static float *arena_spread(struct nn_case *c)
{
  struct trm_plan *plan = c->model.plan;
  size_t end = 0;
  for (int i = 0; i < c->model.layers; i++) {
    const size_t elements = NN_ROWS * trm_shape_count(&c->model.layer[i].out);
    plan->value[i] = end;
    plan->gradient[i] = end + elements;
    end += 2 * elements;
  }
  float *old = c->model.arena;
  void *memory;
  CU_ASSERT_EQUAL_FATAL(c->device->ops->alloc(c->device, end * sizeof(float), "large arena", &memory), TRM_OK);
  c->model.arena = memory;
  return old;
}

/* Sharing and working in place change no bit; neither does an evaluation in between, nor what was in the arena. */
static void arena_bits(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 13, 10);
    struct trm_pass pass = nn_case_pass(&c);
    const size_t bytes = c.model.parameters * sizeof(float);
    float *first = nn_case_train(&c, &pass, 1);
    struct trm_tally tally = {0};
    CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &tally), TRM_OK);
    c.device->ops->fill(c.device, c.model.arena, NAN, c.model.arena_bytes / sizeof(float));
    float *second = nn_case_train(&c, &pass, 1);
    CU_ASSERT(memcmp(first, second, bytes) == 0);
    c.device->ops->release(c.device, arena_spread(&c));
    float *third = nn_case_train(&c, &pass, 1);
    CU_ASSERT(memcmp(first, third, bytes) == 0);
    nn_case_close(&c);
  }
}

static struct trm_plan *plan_of(const char *text, const struct trm_input_spec *spec, size_t rows, bool training,
                                struct trm_model *model)
{
  CU_ASSERT_EQUAL_FATAL(trm_model_create(model, text, "auto", spec), TRM_OK);
  return trm_plan_create(model->layer, model->layers, rows, training);
}

static void test_plan(void)
{
  const struct trm_input_spec mnist = {
    .shape = {.dims = 3, .size = {1, 28, 28}}, .target = TRM_TARGET_CLASS, .classes = 10};
  struct trm_model model;
  struct trm_plan *plan = plan_of("mlp 784-512-256-10 relu", &mnist, 64, true, &model);
  CU_ASSERT_EQUAL(plan->value[1], plan->value[0]); /* relu over linear's output */
  CU_ASSERT_EQUAL(plan->value[3], plan->value[2]);
  CU_ASSERT_NOT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->gradient[4], plan->value[4]); /* the loss over the scores */
  CU_ASSERT_EQUAL(plan->gradient[0], plan->gradient[1]);
  CU_ASSERT_EQUAL(plan->gradient[2], plan->gradient[3]);
  CU_ASSERT_EQUAL(plan->bottom, 0);
  /* no less is possible: backward of the middle layer has its input, dy and dx at once */
  CU_ASSERT_EQUAL(plan->elements, 64 * (512 + 256 + 512));
  trm_plan_free(plan);
  plan = trm_plan_create(model.layer, model.layers, 64, false);
  CU_ASSERT_EQUAL(plan->elements, 64 * (512 + 256));
  trm_plan_free(plan);
  trm_model_free(&model);

  /* a deep model evaluates in the room of two layers */
  plan = plan_of("mlp 784-100-100-100-100-100-100-100-100-10 tanh", &mnist, 32, false, &model);
  CU_ASSERT_EQUAL(plan->elements, 32 * 200);
  trm_plan_free(plan);
  trm_model_free(&model);

  /* what backward reads stays: gelu's input, tanh's output under dropout */
  plan = plan_of("dropout 0.1 | linear 5 | gelu | linear 6 | tanh | dropout 0.5 | linear 10", &mnist, 8, true, &model);
  CU_ASSERT_NOT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->value[4], plan->value[3]);
  CU_ASSERT_NOT_EQUAL(plan->value[5], plan->value[4]);
  CU_ASSERT_EQUAL(plan->bottom, 1);
  trm_plan_free(plan);
  plan = trm_plan_create(model.layer, model.layers, 8, false);
  CU_ASSERT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->value[5], plan->value[4]);
  trm_plan_free(plan);
  trm_model_free(&model);
}

/* A layer that wants workspace: keeps its input there, so that backward can be asked for it. */
static void probe_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, float *y, float *work)
{
  const size_t bytes = pass->input->rows * layer->workspace * sizeof(float);
  pass->device->ops->copy(pass->device, work, x, bytes);
  pass->device->ops->copy(pass->device, y, x, bytes);
}

static int probe_wrong;
static void probe_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                           const float *dy, float *dx, float *work)
{
  const size_t n = pass->input->rows * layer->workspace;
  probe_wrong += x != NULL || y == NULL || dx == NULL; /* as the flags below say */
  float *kept = trm_alloc(2 * n * sizeof *kept, "probe"), *out = kept + n;
  pass->device->ops->download(pass->device, kept, work, n * sizeof *kept);
  pass->device->ops->download(pass->device, out, y, n * sizeof *out);
  probe_wrong += memcmp(kept, out, n * sizeof *kept) != 0;
  trm_free(kept);
  pass->device->ops->copy(pass->device, dx, dy, n * sizeof(float));
}

static void workspace(struct trm_device *device)
{
  static const struct trm_layer_ops probe = {
    .name = "probe", .forward = probe_forward, .backward = probe_backward, .keeps_output = true};
  struct nn_case c;
  const char *text = "linear 9 | tanh | linear 8 | tanh | tanh | linear 10";
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", &nn_ten_classes, 4, 3), TRM_OK);
  c.model.layer[1].ops = c.model.layer[3].ops = c.model.layer[4].ops = &probe;
  c.model.layer[1].workspace = 9;
  c.model.layer[3].workspace = c.model.layer[4].workspace = 8;
  CU_ASSERT_EQUAL(trm_model_bind(&c.model, c.device, c.w, c.g, NN_ROWS, true), TRM_OK);
  nn_case_draw(&c, 13, 10);
  const struct trm_pass pass = nn_case_pass(&c);
  probe_wrong = 0;
  nn_case_train(&c, &pass, 1);
  CU_ASSERT_EQUAL(probe_wrong, 0);
  nn_case_close(&c);
}

/* Nothing is written behind the planned end of the arena. */
static void arena_end(struct trm_device *device)
{
  enum { MORE = 64 };
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, 13, 3), TRM_OK);
    nn_case_draw(&c, 13, 10);
    const size_t n = c.model.plan->elements;
    CU_ASSERT_EQUAL(c.model.arena_bytes, n * sizeof(float));
    void *wide;
    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, (n + MORE) * sizeof(float), "arena and more", &wide), TRM_OK);
    device->ops->fill(device, wide, 12345, n + MORE);
    device->ops->release(device, c.model.arena);
    c.model.arena = wide;
    const struct trm_pass pass = nn_case_pass(&c);
    nn_case_train(&c, &pass, 1);
    const float *end = read_floats(device, c.model.arena + n, MORE);
    for (int e = 0; e < MORE; e++)
      CU_ASSERT_EQUAL(end[e], 12345);
    nn_case_close(&c);
  }
}

static void test_arena_bits(void)
{
  on_devices(arena_bits);
}

static void test_workspace(void)
{
  on_devices(workspace);
}

static void test_arena_end(void)
{
  on_devices(arena_end);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"sharing changes no bit", test_arena_bits},
    {"what is shared and kept", test_plan},
    {"workspace of layers", test_workspace},
    {"nothing behind its end", test_arena_end},
    CU_TEST_INFO_NULL,
  };
  return suite_run("arena", tests);
}
