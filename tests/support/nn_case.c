/* See nn_case.h. */
#include "support/nn_case.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"

const struct trm_input_spec nn_ten_classes = {
  .shape = {.dims = 1, .size = {9}}, .target = TRM_TARGET_CLASS, .classes = 10};
const struct trm_input_spec nn_nine_classes = {
  .shape = {.dims = 1, .size = {9}}, .target = TRM_TARGET_CLASS, .classes = 9};
const struct trm_input_spec nn_image_classes = {
  .shape = {.dims = 3, .size = {2, 2, 3}}, .target = TRM_TARGET_CLASS, .classes = 4};
const struct trm_input_spec nn_images = {
  .shape = {.dims = 3, .size = {2, 4, 4}}, .target = TRM_TARGET_CLASS, .classes = 5};
const struct trm_input_spec nn_sparse_two = {
  .shape = {.dims = 1, .size = {23}}, .sparse = true, .target = TRM_TARGET_CLASS, .classes = 2};
const struct trm_input_spec nn_three_values = {
  .shape = {.dims = 1, .size = {6}}, .target = TRM_TARGET_VALUE, .classes = 3};
const struct trm_input_spec nn_tokens = {
  .shape = {.dims = 1, .size = {5}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 7};
const struct trm_input_spec nn_one_value = {
  .shape = {.dims = 1, .size = {6}}, .target = TRM_TARGET_VALUE, .classes = 1};

const struct nn_example nn_examples[] = {
  {"linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 10 bias=no", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | relu | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_KINKS},
  {"linear 7 | tanh | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | sigmoid | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | gelu | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | gelu tanh | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | gelu_tanh | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | silu | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 7 | leaky_relu 0.2 | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_KINKS},
  {"linear 7 | dropout 0.4 | linear 10", "softmax_cross_entropy", &nn_ten_classes, NN_SMOOTH},
  {"linear 5 | gelu | linear 6 bias=no | tanh | dropout 0.3 | linear 4", "auto", &nn_image_classes, NN_SMOOTH},
  {"linear 5 | tanh | tanh | sigmoid | gelu | gelu | linear 4", "auto", &nn_image_classes, NN_SMOOTH},
  {"linear 6 | gelu | dropout 0.2 | sigmoid | dropout 0.2 | tanh | linear 4 | gelu", "auto", &nn_image_classes,
   NN_SMOOTH},
  {"relu | linear 5 | tanh | linear 4 | tanh", "auto", &nn_image_classes, NN_SMOOTH},
  {"dropout 0.3 | linear 5 | linear 4 | sigmoid", "auto", &nn_image_classes, NN_SMOOTH},
  {"gelu | tanh | linear 4 | dropout 0.5", "auto", &nn_image_classes, NN_SMOOTH},
  {"linear 6 | relu | dropout 0.3 | linear 4", "auto", &nn_image_classes, NN_KINKS},
  {"mlp 12-6-5-4 tanh", "auto", &nn_image_classes, NN_SMOOTH},
  /* branches: shared gradients, accumulated and not overwritten too early */
  {"linear 7 | mark a | tanh | linear 7 | add a | linear 10", "auto", &nn_ten_classes, NN_SMOOTH},
  {"mark x | linear 9 | gelu | linear 9 | add x | mark y | tanh | linear 9 | add y", "auto", &nn_nine_classes,
   NN_SMOOTH},
  {"linear 6 | mark m | linear 6 | tanh | linear 6 | mark p | at m | linear 6 | gelu | linear 6 | add p | add m | "
   "tanh | linear 10", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 6 | mark m | tanh | add m | sigmoid | add m | linear 10", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 6 | mark m | add m | linear 10 | mark m | add m", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 6 | mark m | dropout 0.2 | mark n | at m | tanh | add n | dropout 0.3 | add m | sigmoid | linear 10 | "
   "mark z | dropout 0.2 | add z", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 6 | dropout 0.2 | mark a | sigmoid | mark b | at a | dropout 0.1 | mark c | at a | tanh | add b | add c | "
   "add a | linear 10", "auto", &nn_ten_classes, NN_SMOOTH},
  {"mark x | tanh | mark t | at x | linear 9 | add t | linear 10", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 6 | mark a | relu | linear 6 | relu | add a | relu | linear 4", "auto", &nn_image_classes, NN_KINKS},
  {"linear 4 | mark a | tanh | linear 4 | add a | linear 1", "auto", &nn_sparse_two, NN_SMOOTH},
  {"linear 8 init=he | layer_norm | swiglu | rms_norm epsilon=0.01 | linear 4 init=xavier", "auto", &nn_image_classes,
   false},
  {"layer_norm epsilon=0.1 | linear 4 init=gpt2 residuals=4", "auto", &nn_image_classes, NN_SMOOTH},
  {"rms_norm | tanh | head", "auto", &nn_image_classes, NN_SMOOTH},
  {"embedding 6 | head", "auto", &nn_tokens, NN_SMOOTH},
  {"embedding 6 | position | head tied", "auto", &nn_tokens, NN_SMOOTH},
  {"embedding 6 | layer_norm | linear 5 | gelu tanh | rms_norm | head bias=no init=xavier", "auto", &nn_tokens,
   NN_SMOOTH},
  {"embedding 6 | linear 18 | attention heads=2 | head tied bias=yes", "auto", &nn_tokens, NN_SMOOTH},
  {"embedding 8 | position | linear 24 init=he | rotary heads=2 base=100 | attention heads=2 causal=no | layer_norm | "
   "linear 8 | swiglu | head", "auto", &nn_tokens, NN_SMOOTH},
  {"embedding 4 | linear 12 | mark q | rotary heads=1 | attention heads=2 | mark y | at q | linear 4 | tanh | add y | "
   "head", "auto", &nn_tokens, NN_SMOOTH},
  {"gpt layers=2 heads=2 dim=8 context=5 dropout=0.1", "auto", &nn_tokens, NN_CURVED},
  {"conv2d 3 3 pad=1 | tanh | flatten | linear 5", "auto", &nn_images, NN_SMOOTH},
  {"conv2d 4 2x3 stride=1x2 pad=1x0 bias=no init=he | gelu | conv2d 6 2x1 groups=2 init=xavier | global_avg_pool | "
   "linear 5", "auto", &nn_images, NN_SMOOTH},
  {"max_pool 2 stride=1 | conv2d 5 3 stride=2 pad=1 | max_pool 3x2 stride=1x2 pad=1x0 | head", "auto", &nn_images,
   true},
  {"avg_pool 2x3 stride=1 pad=1 | conv2d 3 1x2 | avg_pool 2 | linear 5", "auto", &nn_images, NN_SMOOTH},
  {"conv2d 3 3 bias=no | batch_norm epsilon=0.01 | tanh | linear 5", "auto", &nn_images, NN_SMOOTH},
  {"mark in | conv2d 3 3 pad=1 stride=2 bias=no | batch_norm sync=no | sigmoid | conv2d 4 3 pad=1 bias=no | "
   "batch_norm | mark out | at in | conv2d 4 1 stride=2 bias=no | batch_norm | add out | tanh | global_avg_pool | "
   "linear 5", "auto", &nn_images, NN_SMOOTH},
  {"batch_norm | tanh | linear 7 bias=no | batch_norm | tanh | batch_norm | linear 5", "auto", &nn_images, NN_SMOOTH},
  {"flatten | dropout 0.2 | flatten | linear 6 bias=no | batch_norm | dropout 0.2 | flatten | linear 5 | flatten",
   "auto", &nn_images, NN_SMOOTH},
  /* adapters: of each kind of input and of output sharding, and below a norm that removes the bias */
  {"linear 7 lora=2 alpha=3 | tanh | linear 10 lora=3 alpha=1", "auto", &nn_ten_classes, NN_SMOOTH},
  {"linear 4 lora=2 alpha=1 | tanh | linear 1", "auto", &nn_sparse_two, NN_SMOOTH},
  {"conv2d 4 3 | tanh | linear 6 lora=3 alpha=2 | batch_norm | tanh | linear 5", "auto", &nn_images, NN_SMOOTH},
  {"embedding 8 | position | mark a | layer_norm | linear 24 lora=2 alpha=4 | attention heads=2 | "
   "linear 8 lora=3 alpha=2 | dropout 0.1 | add a | mark b | layer_norm | linear 12 lora=2 alpha=4 | gelu tanh | "
   "linear 8 lora=2 alpha=4 | add b | layer_norm | head tied", "auto", &nn_tokens, NN_CURVED},
  {"linear 3", "mean_squared_error", &nn_three_values, NN_SMOOTH},
  {"linear 5 | gelu | linear 3", "auto", &nn_three_values, NN_SMOOTH},
  {"linear 5 | tanh | linear 3", "huber", &nn_three_values, NN_KINKS},
  {"linear 5 | gelu | linear 3", "binary_cross_entropy", &nn_three_values, NN_SMOOTH},
  {"linear 5 | tanh | linear 3 | sigmoid", "auto", &nn_three_values, NN_SMOOTH},
  {"linear 1", "logistic", &nn_one_value, NN_SMOOTH},
  {"linear 5 | tanh | linear 1", "hinge", &nn_one_value, NN_KINKS},
  {"linear 2", "auto", &nn_sparse_two, NN_SMOOTH},
  {"linear 1", "auto", &nn_sparse_two, NN_SMOOTH},
  {"linear 4 | tanh | linear 1", "auto", &nn_sparse_two, NN_SMOOTH},
  {"linear 4 bias=no | sigmoid | linear 1", "hinge", &nn_sparse_two, NN_KINKS},
  {NULL, NULL, NULL, NN_SMOOTH},
};

int nn_case_open(struct nn_case *c, struct trm_device *device, const char *text, const char *loss,
                 const struct trm_input_spec *spec, size_t max_rows, uint64_t seed)
{
  *c = (struct nn_case){.device = device};
  TRM_CHECK(trm_model_create(&c->model, text, loss, spec));
  const size_t bytes = c->model.parameters * sizeof(float);
  void *memory;
  TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_WEIGHTS, &memory));
  c->w = memory;
  TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_GRADIENTS, &memory));
  c->g = memory;
  float *host = trm_alloc(bytes, "initial weights");
  trm_model_init(&c->model, seed, host);
  for (int n = 0; n < trm_model_parameter_count(&c->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&c->model, n);
    for (size_t e = 0; e < p->count && p->init == TRM_INIT_NORMAL && p->scale < 0.1f; e++)
      host[p->offset + e] *= 0.5f / p->scale;
    for (size_t e = 0; e < p->count && p->adapter && p->init == TRM_INIT_ZERO; e++) /* else A had no gradient */
      host[p->offset + e] = 0.02f * (float)(37 * e % 41) - 0.4f;
  }
  nn_case_upload(c, host);
  trm_free(host);
  return trm_model_bind(&c->model, device, c->w, c->g, max_rows, true);
}

static void nn_case_free_batch(struct nn_case *c)
{
  while (c->arrays)
    c->device->ops->release(c->device, c->batch[--c->arrays]);
  c->input = (struct trm_input){0};
}

void nn_case_close(struct nn_case *c)
{
  nn_case_free_batch(c);
  trm_model_free(&c->model);
  c->device->ops->release(c->device, c->w);
  c->device->ops->release(c->device, c->g);
  *c = (struct nn_case){0};
}

/* Copies a host array to the device. The case owns the copy. */
static const void *nn_case_on_device(struct nn_case *c, const void *host, size_t bytes)
{
  void *memory;
  CU_ASSERT_EQUAL_FATAL(c->device->ops->alloc(c->device, bytes, TRM_MEMORY_BUFFERS, &memory), TRM_OK);
  c->device->ops->upload(c->device, memory, host, bytes);
  return c->batch[c->arrays++] = memory;
}

static void nn_case_batch_sparse(struct nn_case *c, size_t rows, size_t features, const float *x)
{
  int64_t *starts = trm_alloc((rows + 1) * sizeof *starts, "csr");
  int32_t *columns = trm_alloc(rows * features * sizeof *columns, "csr");
  float *values = trm_alloc(rows * features * sizeof *values, "csr");
  size_t entries = 0;
  for (size_t i = 0; i < rows; i++) {
    for (size_t f = 0; f < features; f++)
      if (x[i * features + f] != 0) {
        columns[entries] = (int32_t)f;
        values[entries++] = x[i * features + f];
      }
    starts[i + 1] = (int64_t)entries;
  }
  c->input.csr = (struct trm_csr){.starts = nn_case_on_device(c, starts, (rows + 1) * sizeof *starts),
                                  .columns = nn_case_on_device(c, columns, entries * sizeof *columns),
                                  .values = nn_case_on_device(c, values, entries * sizeof *values),
                                  .rows = rows,
                                  .features = features,
                                  .entries = entries};
  trm_free(starts);
  trm_free(columns);
  trm_free(values);
}

static void nn_case_batch_tokens(struct nn_case *c, size_t count, const float *x)
{
  int32_t *tokens = trm_alloc(count * sizeof *tokens, "tokens");
  for (size_t i = 0; i < count; i++)
    tokens[i] = (int32_t)x[i];
  c->input.tokens = nn_case_on_device(c, tokens, count * sizeof *tokens);
  trm_free(tokens);
}

void nn_case_batch(struct nn_case *c, size_t rows, const float *x, const int32_t *target_class,
                   const float *target_value)
{
  const size_t features = trm_shape_count(&c->model.spec.shape);
  nn_case_free_batch(c);
  c->input.rows = rows;
  if (c->model.spec.sparse)
    nn_case_batch_sparse(c, rows, features, x);
  else if (c->model.spec.tokens)
    nn_case_batch_tokens(c, rows * features, x);
  else
    c->input.dense = nn_case_on_device(c, x, rows * features * sizeof *x);
  if (target_class)
    c->input.target_class = nn_case_on_device(c, target_class, rows * c->model.targets * sizeof *target_class);
  if (target_value)
    c->input.target_value = nn_case_on_device(c, target_value, rows * c->model.spec.classes * sizeof *target_value);
  if (target_class && c->model.loss->signed_target) {
    float *value = trm_alloc(rows * sizeof *value, "signed targets");
    for (size_t i = 0; i < rows; i++)
      value[i] = target_class[i] ? 1 : -1;
    c->input.target_value = nn_case_on_device(c, value, rows * sizeof *value);
    trm_free(value);
  }
}

void nn_case_draw(struct nn_case *c, size_t rows, uint32_t stream)
{
  const struct trm_input_spec *spec = &c->model.spec;
  const size_t f = trm_shape_count(&spec->shape), v = spec->classes;
  float x[NN_ROWS * 32], value[NN_ROWS * 16];
  int32_t class[NN_ROWS * 8];
  for (size_t i = 0; i < rows * f; i++) {
    x[i] = trm_random_normal(1, TRM_RANDOM_BENCH, stream, i);
    if (spec->sparse && trm_random_uniform(1, TRM_RANDOM_BENCH, stream + 1, i) < 0.5f)
      x[i] = 0;
    if (spec->tokens)
      x[i] = floorf(trm_random_uniform(1, TRM_RANDOM_BENCH, stream, i) * (float)spec->classes);
  }
  for (size_t i = 0; i < rows * c->model.targets; i++)
    class[i] = (int32_t)((double)trm_random_uniform(1, TRM_RANDOM_BENCH, stream + 2, i) * (double)spec->classes);
  for (size_t i = 0; i < rows * v; i++) {
    value[i] = trm_random_normal(1, TRM_RANDOM_BENCH, stream + 3, i);
    if (c->model.loss->signed_target)
      value[i] = value[i] > 0 ? 1 : -1;
  }
  if (spec->target == TRM_TARGET_CLASS)
    nn_case_batch(c, rows, x, class, NULL);
  else
    nn_case_batch(c, rows, x, NULL, value);
}

struct trm_input nn_case_part(const struct nn_case *c, size_t low, size_t high)
{
  struct trm_input part = c->input;
  part.rows = high - low;
  if (part.dense)
    part.dense += low * trm_shape_count(&c->model.spec.shape);
  if (part.csr.starts) {
    int64_t start, end;
    c->device->ops->download(c->device, &start, c->input.csr.starts + low, sizeof start);
    c->device->ops->download(c->device, &end, c->input.csr.starts + high, sizeof end);
    part.csr.starts += low;
    part.csr.rows = part.rows;
    part.csr.columns += start;
    part.csr.values += start;
    part.csr.entries = (size_t)(end - start);
  }
  if (part.tokens)
    part.tokens += low * trm_shape_count(&c->model.spec.shape);
  if (part.target_class)
    part.target_class += low * c->model.targets;
  if (part.target_value)
    part.target_value += low * (c->model.loss->signed_target ? 1 : c->model.spec.classes);
  return part;
}

void nn_case_upload(struct nn_case *c, const float *host_w)
{
  c->device->ops->upload(c->device, c->w, host_w, c->model.parameters * sizeof *host_w);
}

float *nn_case_weights(struct nn_case *c)
{
  return read_floats(c->device, c->w, c->model.parameters);
}

float *nn_case_gradient(struct nn_case *c)
{
  return read_floats(c->device, c->g, c->model.parameters);
}

float *nn_case_train(struct nn_case *c, const struct trm_pass *pass, float scale)
{
  struct trm_loss_sums sums = {0};
  CU_ASSERT_EQUAL_FATAL(trm_model_train(&c->model, pass, scale, &sums, NULL, NULL), TRM_OK);
  CU_ASSERT_EQUAL(sums.rows, (double)(pass->input->rows * c->model.targets));
  return nn_case_gradient(c);
}

struct trm_pass nn_case_pass(const struct nn_case *c)
{
  return (struct trm_pass){.device = c->device, .input = &c->input, .training = true, .seed = 7};
}

double norm_of(const float *x, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

double distance_of(const float *a, const float *b, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sqrt(sum) / norm_of(b, n);
}
