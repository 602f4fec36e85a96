/* The activation arena: which arrays share memory, which stay until backward, and that results do not depend on it. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/fusion.h"
#include "suite.h"
#include "support/nn_case.h"

/* Reserves space for the layer's output shape. */
static size_t place_take(const struct nn_case *c, int layer, size_t *end)
{
  const size_t at = *end;
  *end += NN_ROWS * trm_shape_count(&c->model.layer[layer].out) * sizeof(float);
  return at;
}

/* Gives every array its own memory, in a new arena. Returns the old arena. Gradients that an add layer passes on
 * unchanged are added to zeros instead. */
static void *arena_spread(struct nn_case *c)
{
  struct trm_arena_plan *plan = c->model.plan;
  size_t end = 0;
  for (int i = 0; i < c->model.layers; i++) {
    plan->value[i] = plan->value[plan->last + i] = place_take(c, i, &end);
    plan->gradient[i] = place_take(c, i, &end);
    plan->work[i] = plan->work[plan->last + i] = end;
    end += (c->model.layer[i].workspace_fixed + NN_ROWS * c->model.layer[i].workspace) * sizeof(float);
  }
  for (int i = 0; i < c->model.layers; i++) {
    const struct trm_layer *layer = &c->model.layer[i];
    const int operand[2] = {layer->from, layer->addend};
    for (int k = 0; k < 2; k++) {
      struct trm_gradient_flow *flow = &plan->flow[2 * i + k];
      if (operand[k] < 0 || !c->model.layer[operand[k]].needs_dy)
        continue;
      const bool first = !flow->accumulates;
      flow->accumulates = !first || layer->addend != TRM_FROM_NONE;
      flow->write = layer->addend != TRM_FROM_NONE ? plan->gradient[i]
                    : first                        ? plan->gradient[operand[k]]
                                                   : place_take(c, operand[k], &end);
      flow->earlier = first ? place_take(c, operand[k], &end) : plan->gradient[operand[k]];
      flow->sum = plan->gradient[operand[k]];
    }
  }
  const struct trm_arena_request request = {.rows = NN_ROWS, .training = true};
  trm_fusion_plan(c->model.layer, plan, &request);
  void *old = c->model.arena;
  void *memory;
  CU_ASSERT_EQUAL_FATAL(c->device->ops->alloc(c->device, end, TRM_MEMORY_BUFFERS, &memory), TRM_OK);
  c->model.arena = c->model.chunk[0].arena[0] = memory;
  return old;
}

/* Shared memory and in-place layers give the same bits, also after an evaluation and whatever the arena contained. */
static void arena_bits(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 13, 10);
    struct trm_pass pass = nn_case_pass(&c);
    const size_t bytes = c.model.parameters * sizeof(float);
    float *first = nn_case_train(&c, &pass, 1);
    struct trm_loss_sums tally = {0};
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

static struct trm_arena_plan *plan_again(const struct trm_model *model, size_t rows, bool training)
{
  const struct trm_arena_request request = {.rows = rows, .training = training};
  return trm_arena_plan_create(model->layer, 0, model->layers, &request);
}

static struct trm_arena_plan *plan_of(const char *text, const struct trm_input_spec *spec, size_t rows, bool training,
                                      struct trm_model *model)
{
  CU_ASSERT_EQUAL_FATAL(trm_model_create(model, text, "auto", spec), TRM_OK);
  return plan_again(model, rows, training);
}

static void test_plan(void)
{
  const struct trm_input_spec mnist = {
    .shape = {.dims = 3, .size = {1, 28, 28}}, .target = TRM_TARGET_CLASS, .classes = 10};
  struct trm_model model;
  struct trm_arena_plan *plan = plan_of("mlp 784-512-256-10 relu", &mnist, 64, true, &model);
  CU_ASSERT_EQUAL(plan->value[1], plan->value[0]); /* relu in place */
  CU_ASSERT_EQUAL(plan->value[3], plan->value[2]);
  CU_ASSERT_NOT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->gradient[4], plan->value[4]); /* the loss's gradient overwrites the scores */
  CU_ASSERT_EQUAL(plan->gradient[0], plan->gradient[1]);
  CU_ASSERT_EQUAL(plan->gradient[2], plan->gradient[3]);
  CU_ASSERT(model.layer[0].needs_dy && !model.layer[0].needs_dx);
  /* the minimum: backward of the middle layer needs its input, dy and dx at once */
  CU_ASSERT_EQUAL(plan->bytes, sizeof(float) * 64 * (512 + 256 + 512));
  trm_arena_plan_free(plan);
  plan = plan_again(&model, 64, false);
  CU_ASSERT_EQUAL(plan->bytes, sizeof(float) * 64 * (512 + 256));
  trm_arena_plan_free(plan);
  trm_model_free(&model);

  /* evaluation of a deep model needs the memory of two layers */
  plan = plan_of("mlp 784-100-100-100-100-100-100-100-100-10 tanh", &mnist, 32, false, &model);
  CU_ASSERT_EQUAL(plan->bytes, sizeof(float) * 32 * 200);
  trm_arena_plan_free(plan);
  trm_model_free(&model);

  /* what backward reads stays: gelu's input, tanh's output under dropout */
  plan = plan_of("dropout 0.1 | linear 5 | gelu | linear 6 | tanh | dropout 0.5 | linear 10", &mnist, 8, true, &model);
  CU_ASSERT_NOT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->value[4], plan->value[3]);
  CU_ASSERT_NOT_EQUAL(plan->value[5], plan->value[4]);
  CU_ASSERT(!model.layer[0].needs_dy && model.layer[1].needs_dy && !model.layer[1].needs_dx);
  trm_arena_plan_free(plan);
  plan = plan_again(&model, 8, false);
  CU_ASSERT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->value[5], plan->value[4]);
  trm_arena_plan_free(plan);
  trm_model_free(&model);
}

/* Values in bfloat16 take half the memory; so does the batch, which is converted. */
static void test_rounded_plan(void)
{
  const struct trm_input_spec tokens = {
    .shape = {.dims = 1, .size = {32}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 64};
  struct trm_model model;
  struct trm_arena_plan *plan =
    plan_of("embedding 64 | linear 64 | tanh | linear 256 | gelu | linear 64 | head", &tokens, 4, true, &model);
  const size_t bytes = plan->bytes;
  const struct trm_arena_request request = {.rows = 4, .training = true, .values = TRM_VALUES_BF16};
  trm_arena_plan_free(plan);
  plan = trm_arena_plan_create(model.layer, 0, model.layers, &request);
  CU_ASSERT_EQUAL(bytes, sizeof(float) * 4 * 32 * (64 + 64 + 256 + 256 + 64 + 256));
  CU_ASSERT_EQUAL(2 * plan->bytes, bytes);
  CU_ASSERT_FALSE(plan->reads_input);
  trm_arena_plan_free(plan);
  trm_model_free(&model);

  plan = plan_of("linear 256 | linear 10", &nn_ten_classes, 32, false, &model);
  struct trm_arena_request dense = {.rows = 32, .values = TRM_VALUES_BF16, .convert_input = 1024};
  trm_arena_plan_free(plan);
  plan = trm_arena_plan_create(model.layer, 0, model.layers, &dense);
  CU_ASSERT_TRUE(plan->reads_input);
  CU_ASSERT_EQUAL(plan->bytes, sizeof(trm_bf16) * 32 * (1024 + 256)); /* until the first layer has read it */
  trm_arena_plan_free(plan);
  dense.copy_weights = true;
  plan = trm_arena_plan_create(model.layer, 0, model.layers, &dense);
  CU_ASSERT_EQUAL(plan->bytes, sizeof(trm_bf16) * (32 * (1024 + 256) + model.layer[0].parameter[0].count));
  trm_arena_plan_free(plan);
  trm_model_free(&model);
}

/* Branches need no more than the values kept for backward, and the most that is needed at once. */
static void test_branches(void)
{
  struct trm_model model;
  struct trm_arena_plan *plan =
    plan_of("linear 64 | mark a | linear 64 | relu | linear 64 | add a | linear 10", &nn_ten_classes, 64, true, &model);
  CU_ASSERT_EQUAL_FATAL(model.layers, 6); /* mark is not a layer */
  CU_ASSERT_EQUAL(model.layer[4].from, 3);
  CU_ASSERT_EQUAL(model.layer[4].addend, 0);
  CU_ASSERT_EQUAL(model.layer[4].number, 5);
  CU_ASSERT_EQUAL(plan->value[2], plan->value[1]);
  CU_ASSERT_EQUAL(plan->value[4], plan->value[3]); /* the sum overwrites its operand */
  CU_ASSERT_EQUAL(plan->gradient[4], plan->gradient[3]); /* both operands share the sum's gradient */
  CU_ASSERT_EQUAL(plan->flow[2 * 4].write, plan->gradient[4]);
  CU_ASSERT_EQUAL(plan->flow[2 * 4 + 1].write, plan->gradient[4]);
  CU_ASSERT_FALSE(plan->flow[2 * 4].accumulates || plan->flow[2 * 4 + 1].accumulates);
  CU_ASSERT_EQUAL(plan->gradient[2], plan->gradient[1]);
  CU_ASSERT_TRUE(plan->flow[2 * 1].accumulates); /* the first linear has two readers: the sum and the second linear */
  CU_ASSERT_EQUAL(plan->flow[2 * 1].sum, plan->gradient[0]);
  CU_ASSERT_EQUAL(plan->gradient[0], plan->gradient[4]);
  /* at backward of the last: the inputs of the three linear layers, the gradients of the scores and of the sum */
  CU_ASSERT_EQUAL(plan->bytes, sizeof(float) * 64 * (4 * 64 + 10));
  trm_arena_plan_free(plan);
  plan = plan_again(&model, 64, false);
  CU_ASSERT_EQUAL(plan->bytes, sizeof(float) * 64 * 3 * 64); /* the marked value, input and output of a layer */
  trm_arena_plan_free(plan);
  trm_model_free(&model);

  /* a gradient with two readers is not overwritten by the first */
  plan = plan_of("linear 8 | mark a | sigmoid | mark b | at a | dropout 0.5 | add b | linear 10", &nn_ten_classes, 64,
                 true, &model);
  CU_ASSERT_EQUAL(plan->gradient[3], plan->gradient[2]);
  CU_ASSERT_EQUAL(plan->gradient[3], plan->gradient[1]);
  CU_ASSERT_NOT_EQUAL(plan->flow[2 * 2].write, plan->gradient[2]);
  CU_ASSERT_EQUAL(plan->flow[2 * 1].write, plan->gradient[1]); /* but by the last */
  trm_arena_plan_free(plan);
  trm_model_free(&model);
}

/* A layer with workspace: forward keeps its input there, backward checks it. */
static void probe_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y, float *work)
{
  const size_t bytes = pass->input->rows * layer->workspace * sizeof(float);
  pass->device->ops->fill(pass->device, layer->scratch_at, (float)NAN, layer->scratch);
  pass->device->ops->fill(pass->device, work, (float)layer->number, layer->workspace_fixed);
  pass->device->ops->copy(pass->device, work + layer->workspace_fixed, x, bytes);
  pass->device->ops->copy(pass->device, y, x, bytes);
}

static int probe_wrong;
static void probe_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                           const void *dy, void *dx, float *work)
{
  const size_t n = pass->input->rows * layer->workspace;
  probe_wrong += x != NULL || y == NULL || dx == NULL; /* as declared by the flags below */
  float *kept = trm_alloc(2 * n * sizeof *kept, "probe"), *out = kept + n;
  pass->device->ops->fill(pass->device, layer->scratch_at, (float)NAN, layer->scratch);
  for (size_t e = 0; e < layer->workspace_fixed; e++) {
    float number;
    pass->device->ops->download(pass->device, &number, work + e, sizeof number);
    probe_wrong += number != (float)layer->number;
  }
  pass->device->ops->download(pass->device, kept, work + layer->workspace_fixed, n * sizeof *kept);
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
  c.model.layer[1].workspace_fixed = 3;
  c.model.layer[4].workspace_fixed = 17;
  c.model.layer[3].scratch = 200;
  c.model.layer[4].scratch = 50;
  CU_ASSERT_EQUAL(trm_model_bind(&c.model, c.device, c.w, c.g, NN_ROWS, true), TRM_OK);
  nn_case_draw(&c, 13, 10);
  const struct trm_pass pass = nn_case_pass(&c);
  probe_wrong = 0;
  nn_case_train(&c, &pass, 1);
  CU_ASSERT_EQUAL(probe_wrong, 0);
  nn_case_close(&c);
}

/* Nothing is written beyond the planned end of the arena. */
static void arena_end(struct trm_device *device)
{
  enum { MORE = 64 };
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, 13, 3), TRM_OK);
    nn_case_draw(&c, 13, 10);
    const size_t n = c.model.plan->bytes / sizeof(float);
    CU_ASSERT_EQUAL(c.model.arena_bytes, n * sizeof(float));
    void *wide;
    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, (n + MORE) * sizeof(float), TRM_MEMORY_BUFFERS, &wide), TRM_OK);
    device->ops->fill(device, wide, 12345, n + MORE);
    device->ops->release(device, c.model.arena);
    c.model.arena = c.model.chunk[0].arena[0] = wide;
    const struct trm_pass pass = nn_case_pass(&c);
    nn_case_train(&c, &pass, 1);
    const float *end = read_floats(device, (float *)c.model.arena + n, MORE);
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
    {"shared and persistent arrays", test_plan},
    {"values in bfloat16", test_rounded_plan},
    {"branches", test_branches},
    {"workspace of layers", test_workspace},
    {"no writes beyond the end", test_arena_end},
    CU_TEST_INFO_NULL,
  };
  return suite_run("arena", tests);
}
