/* Fused calls of neighboring layers: which are made, that they change no bit, and that no call overwrites what it
 * reads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/device_arrays.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/arena_plan.h"
#include "suite.h"
#include "support/nn_case.h"

/* Calls of a model, not those that are part of a composed form. */
struct counts {
  int linear, with_activation, through_activation;
  int add_norm, masked, without_norm, gradient_sum;
  int norm_relu, norm_sum_relu, through_relu, batch_norms;
  int add, dropout, norm_forward, norm_backward, activation_forward, activation_backward, bias_add, bias_backward;
};

static struct counts counts;
static bool inside;                            /* a composed form */
static const struct trm_device_ops *inner_ops; /* of the device that is counted */

/* The array of a call that may be one of those that it reads. */
static const void *replaced_linear_forward(const struct trm_linear_forward *call)
{
  (void)call;
  return NULL;
}

static const void *replaced_linear_backward(const struct trm_linear_backward *call)
{
  (void)call;
  return NULL;
}

static const void *replaced_add_norm_forward(const struct trm_add_norm_forward *call)
{
  return call->s;
}

static const void *replaced_add_norm_backward(const struct trm_add_norm_backward *call)
{
  return call->sum;
}

/* Copies of the arrays that a call reads, but for one. */
static void save_inputs(struct trm_device *device, const void *call, const struct trm_call_array *array, size_t arrays,
                        const void *replaced, void **saved)
{
  for (size_t i = 0; i < arrays; i++) {
    saved[i] = NULL;
    if (array[i].access != TRM_READS || trm_call_pointer(call, &array[i]) == replaced)
      continue;
    saved[i] = trm_alloc(array[i].bytes, "an input");
    device->ops->download(device, saved[i], trm_call_pointer(call, &array[i]), array[i].bytes);
  }
}

static void check_inputs(struct trm_device *device, const char *slot, const void *call,
                         const struct trm_call_array *array, size_t arrays, void **saved)
{
  for (size_t i = 0; i < arrays; i++) {
    if (!saved[i])
      continue;
    void *now = trm_alloc(array[i].bytes, "an input");
    device->ops->download(device, now, trm_call_pointer(call, &array[i]), array[i].bytes);
    if (memcmp(now, saved[i], array[i].bytes) != 0) {
      printf("\n  %s has overwritten its array %zu\n", slot, i);
      CU_FAIL("an array that is read lies where another one is written");
    }
    trm_free(now);
    trm_free(saved[i]);
  }
}

#define FUSED(slot, type)                                                            \
  static void count_##slot(struct trm_device *device, const struct type *call);      \
  static void counted_##slot(struct trm_device *device, const struct type *call)     \
  {                                                                                  \
    struct trm_call_array array[TRM_CALL_ARRAYS];                                    \
    const size_t arrays = type##_arrays(call, array);                                \
    void *saved[TRM_CALL_ARRAYS];                                                    \
    save_inputs(device, call, array, arrays, replaced_##slot(call), saved);          \
    inside = true;                                                                   \
    inner_ops->slot(device, call);                                                   \
    inside = false;                                                                  \
    check_inputs(device, #slot, call, array, arrays, saved);                         \
    count_##slot(device, call);                                                      \
  }
TRM_FUSED_KERNELS(FUSED)

static void count_linear_forward(struct trm_device *device, const struct trm_linear_forward *call)
{
  (void)device;
  counts.linear++;
  counts.with_activation += call->z != NULL;
}

static void count_linear_backward(struct trm_device *device, const struct trm_linear_backward *call)
{
  (void)device;
  counts.linear++;
  counts.through_activation += call->through;
}

static void count_add_norm_forward(struct trm_device *device, const struct trm_add_norm_forward *call)
{
  (void)device;
  counts.add_norm++;
  counts.masked += call->mask.rate > 0;
  counts.without_norm += !call->norm.y;
}

/* Also spoils what need not be written. */
static void count_add_norm_backward(struct trm_device *device, const struct trm_add_norm_backward *call)
{
  counts.gradient_sum++;
  if (call->norm.dx != call->sum && call->norm.type == TRM_VALUES_F32)
    device->ops->fill(device, call->norm.dx, NAN, call->norm.r * call->norm.d);
}

/* Batch norms are kernels of their own, with flags for what is fused. */
static void counted_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm_forward *call)
{
  counts.batch_norms++;
  counts.norm_relu += call->relu && !call->addend;
  counts.norm_sum_relu += call->relu && call->addend;
  inner_ops->batch_norm_forward(device, call);
}

static void counted_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm_backward *call)
{
  counts.through_relu += call->relu;
  inner_ops->batch_norm_backward(device, call);
}

#define SIMPLE(slot, type)                                                       \
  static void counted_##slot(struct trm_device *device, const struct type *call) \
  {                                                                              \
    counts.slot += !inside;                                                      \
    inner_ops->slot(device, call);                                               \
  }
#define SIMPLE_KERNELS(X)                                                                              \
  X(add, trm_add) X(dropout, trm_dropout) X(norm_forward, trm_norm_forward)                            \
  X(norm_backward, trm_norm_backward) X(activation_forward, trm_activation_forward)                    \
  X(activation_backward, trm_activation_backward) X(bias_add, trm_bias_add) X(bias_backward, trm_bias_backward)
SIMPLE_KERNELS(SIMPLE)

#define SET_COUNTED(slot, type) ops->slot = counted_##slot;

/* Makes a device that counts the calls of another one. */
static struct trm_device counting_device(const struct trm_device *device, struct trm_device_ops *ops)
{
  struct trm_device counting = *device;
  inner_ops = device->ops;
  *ops = *device->ops;
  TRM_FUSED_KERNELS(SET_COUNTED)
  SIMPLE_KERNELS(SET_COUNTED)
  ops->batch_norm_forward = counted_batch_norm_forward;
  ops->batch_norm_backward = counted_batch_norm_backward;
  counting.ops = ops;
  return counting;
}

/* Values with another reader than the neighbor, after those of all tests. */
static const struct nn_example *example(int i)
{
  static const struct nn_example more[] = {
    {"linear 6 | mark m | dropout 0.2 | mark n | add m | add n | add m | linear 10", "auto", &nn_ten_classes, false},
    {"linear 6 | gelu | mark t | linear 6 | add t | linear 10", "auto", &nn_ten_classes, false},
    {"linear 6 | tanh | mark t | linear 6 | tanh | mark u | linear 6 | add t | add u | layer_norm | linear 10", "auto",
     &nn_ten_classes, false},
    {"conv2d 4 3 bias=no | batch_norm | relu | mark in | conv2d 4 3 pad=1 bias=no | batch_norm sync=no | relu | "
     "conv2d 4 3 pad=1 bias=no | batch_norm | add in | relu | conv2d 5 1 | batch_norm | mark t | relu | add t | "
     "linear 10 | batch_norm | relu | linear 5", "auto", &nn_images, false},
    {"mark in | conv2d 5 3 pad=1 stride=2 bias=no | batch_norm | relu | conv2d 5 3 pad=1 bias=no | batch_norm | mark out | "
     "at in | conv2d 5 1 stride=2 bias=no | batch_norm | add out | relu | linear 5", "auto", &nn_images, false},
    {NULL, NULL, NULL, false}};
  int known = 0;
  while (nn_examples[known].text)
    known++;
  return i < known ? &nn_examples[i] : &more[i - known];
}

static void open_case(struct nn_case *c, struct trm_device *device, const struct nn_example *how, int recompute)
{
  CU_ASSERT_EQUAL_FATAL(nn_case_open(c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
  c->model.recompute = recompute;
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c->model, device, c->w, c->g, NN_ROWS, true), TRM_OK);
  nn_case_draw(c, 13, 10);
}

/* Makes each layer's call its own. */
static void separate_layers(struct trm_arena_plan *plan)
{
  for (int i = plan->first; i < plan->last; i++) {
    plan->span[i] = plan->span[plan->last + i] = (struct trm_span){i, i + 1};
    plan->backward_in[i] = i;
  }
}

/* Trains and evaluates; returns the gradient, and the scores in *scores. */
static const float *run_case(struct nn_case *c, size_t n, const float **scores)
{
  struct trm_pass pass = nn_case_pass(c);
  const float *gradient = nn_case_train(c, &pass, 0.1f);
  pass.training = false;
  trm_model_forward(&c->model, &pass);
  *scores = read_floats(c->device, c->model.scores, n);
  return gradient;
}

static void equal_bits(struct trm_device *device)
{
  struct trm_device_ops ops;
  struct trm_device counting = counting_device(device, &ops);
  const struct nn_example *how;
  for (int e = 0; (how = example(e))->text; e++)
    for (int recompute = 0; recompute < 2; recompute++) {
      struct nn_case c;
      const float *gradient[2], *scores[2];
      open_case(&c, &counting, how, recompute);
      const size_t n = 13 * trm_shape_count(&c.model.layer[c.model.layers - 1].out);
      gradient[0] = run_case(&c, n, &scores[0]);
      separate_layers(c.model.plan);
      gradient[1] = run_case(&c, n, &scores[1]);
      check_same(how->text, gradient[0], gradient[1], c.model.parameters);
      check_same(how->text, scores[0], scores[1], n);
      nn_case_close(&c);
    }
}

/* The same without gradients: values die earlier, and more arrays share memory. */
static void equal_bits_evaluated(struct trm_device *device)
{
  struct trm_device_ops ops;
  struct trm_device counting = counting_device(device, &ops);
  const struct nn_example *how;
  for (int e = 0; (how = example(e))->text; e++) {
    struct nn_case c;
    const float *scores[2];
    open_case(&c, &counting, how, 0);
    CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, &counting, c.w, NULL, NN_ROWS, false), TRM_OK);
    struct trm_pass pass = nn_case_pass(&c);
    pass.training = false;
    const size_t n = 13 * trm_shape_count(&c.model.layer[c.model.layers - 1].out);
    for (int separate = 0; separate < 2; separate++) {
      trm_model_forward(&c.model, &pass);
      scores[separate] = read_floats(c.device, c.model.scores, n);
      separate_layers(c.model.plan);
    }
    check_same(how->text, scores[0], scores[1], n);
    nn_case_close(&c);
  }
}

/* Weights that are converted just before each use: their copies may lie where the activation's output comes. */
static void test_copied_weights(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "embedding 64 | linear 256 | gelu | linear 64 | gelu | head", "auto",
                                         &nn_tokens), TRM_OK);
  for (int copied = 0; copied < 2; copied++) {
    const struct trm_arena_request request = {
      .rows = 4, .training = true, .values = TRM_VALUES_BF16, .copy_weights = copied};
    struct trm_arena_plan *plan = trm_arena_plan_create(model.layer, 0, model.layers, &request);
    for (int i = 1; i < 5; i += 2) {
      const size_t z = plan->value[i + 1], copy = plan->copy[i], weight = 64 * 256 * sizeof(trm_bf16);
      const size_t bytes = 4 * trm_shape_count(&model.layer[i].out) * sizeof(trm_bf16);
      const bool apart = !copied || z + bytes <= copy || copy + weight <= z;
      CU_ASSERT_EQUAL(plan->span[i].end - plan->span[i].first, apart ? 2 : 1);
    }
    trm_arena_plan_free(plan);
  }
  trm_model_free(&model);
}

static void test_equal_bits(void)
{
  on_devices(equal_bits);
  on_devices(equal_bits_evaluated);
}

/* Counts the calls of one training pass. */
static struct counts count_calls(struct trm_device *device, const char *text, const struct trm_input_spec *spec,
                                 int recompute)
{
  const struct nn_example how = {text, "auto", spec, false};
  struct trm_device_ops ops;
  struct trm_device counting = counting_device(device, &ops);
  struct nn_case c;
  open_case(&c, &counting, &how, recompute);
  const struct trm_pass pass = nn_case_pass(&c);
  counts = (struct counts){0};
  nn_case_train(&c, &pass, 0.1f);
  nn_case_close(&c);
  return counts;
}

#define COUNT_CHECK(got, field, want)                                         \
  do {                                                                        \
    if ((got).field != (want))                                                \
      printf("\n  %s: %d calls, not %d\n", #field, (got).field, want);        \
    CU_ASSERT_EQUAL((got).field, want);                                       \
  } while (0)

static void gpt_calls(struct trm_device *device)
{
  for (int dropout = 0; dropout < 2; dropout++) {
    const char *const text[] = {"gpt layers=2 heads=2 dim=8 context=5",
                                "gpt layers=2 heads=2 dim=8 context=5 dropout=0.1"};
    const struct counts got = count_calls(device, text[dropout], &nn_tokens, 0);
    COUNT_CHECK(got, linear, 2 * 9);
    COUNT_CHECK(got, with_activation, 2);
    COUNT_CHECK(got, through_activation, 2);
    COUNT_CHECK(got, add_norm, 4);
    COUNT_CHECK(got, masked, dropout * 4);
    COUNT_CHECK(got, without_norm, 0);
    COUNT_CHECK(got, gradient_sum, 4);
    COUNT_CHECK(got, add, 0);
    COUNT_CHECK(got, dropout, dropout * (1 + 5)); /* of the embedding; backward */
    COUNT_CHECK(got, norm_forward, 1);            /* the first one follows no add */
    COUNT_CHECK(got, norm_backward, 1);           /* nothing else reads what the last one reads */
    COUNT_CHECK(got, activation_forward, 0);
    COUNT_CHECK(got, activation_backward, 0);
    COUNT_CHECK(got, bias_add, 1); /* position */
    COUNT_CHECK(got, bias_backward, 1);
  }
}

/* A norm writes nothing but what the relu does, unless something else reads its value. */
static void image_calls(struct trm_device *device)
{
  const struct counts got = count_calls(device, "resnet20", &nn_images, 0);
  COUNT_CHECK(got, batch_norms, 1 + 18 + 2);
  COUNT_CHECK(got, norm_relu, 1 + 9);
  COUNT_CHECK(got, norm_sum_relu, 9);
  COUNT_CHECK(got, through_relu, 1 + 9);
  COUNT_CHECK(got, activation_forward, 0);
  COUNT_CHECK(got, activation_backward, 9);
  const struct counts read_twice = count_calls(device, "conv2d 4 3 | batch_norm | mark t | relu | add t | linear 5",
                                               &nn_images, 0);
  COUNT_CHECK(read_twice, norm_relu, 0);
  COUNT_CHECK(read_twice, through_relu, 0);
  COUNT_CHECK(read_twice, activation_forward, 1);
  COUNT_CHECK(read_twice, activation_backward, 1);
}

static void mlp_calls(struct trm_device *device)
{
  const char *const kinds[] = {"relu", "tanh", "sigmoid", "gelu", "gelu_tanh"};
  for (int k = 0; k < 5; k++)
    for (int recompute = 0; recompute < 2; recompute++) {
      char text[64];
      snprintf(text, sizeof text, "mlp 9-7-6-10 %s", kinds[k]);
      const struct counts got = count_calls(device, text, &nn_ten_classes, recompute);
      const bool late = recompute && k > 2; /* gelu's input is recomputed after the next layer's backward */
      COUNT_CHECK(got, linear, late ? 2 * 3 + 2 : 2 * 3);
      COUNT_CHECK(got, with_activation, 2);
      COUNT_CHECK(got, through_activation, late ? 0 : 2);
      COUNT_CHECK(got, activation_forward, 0);
      COUNT_CHECK(got, activation_backward, late ? 2 : 0);
      COUNT_CHECK(got, bias_add, 0);
      COUNT_CHECK(got, bias_backward, 0);
    }
}

static void test_counts(void)
{
  on_devices(gpt_calls);
  on_devices(mlp_calls);
  on_devices(image_calls);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"calls of a gpt and of an mlp", test_counts},
    {"equal bits, fused and not; inputs are kept", test_equal_bits},
    {"copies of weights", test_copied_weights},
    CU_TEST_INFO_NULL,
  };
  return suite_run("fusion", tests);
}
