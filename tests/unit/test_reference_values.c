/* Comparison of kernels of bfloat16 values with PyTorch's, recorded by tests/reference/make_values.py. Both round
 * results to 8 bits, after other intermediate ones. */
#include <string.h>

#include "suite.h"
#include "support/reference.h"

/* |difference| / |array|; observed: at most 0.0073, of PyTorch's gradient of the gain, a sum that it rounds. */
#define ROUNDED 0.01

static struct reference r;

static size_t count(const char *name)
{
  return r.array[reference_array(&r, "", name)].count;
}

/* Returns a recorded array on the device, as float32 or rounded. */
static void *given(struct trm_device *device, const char *name, enum trm_value_type type)
{
  const int a = reference_array(&r, "", name);
  const size_t n = r.array[a].count;
  float *x = host_floats(n);
  trm_bf16 *rounded = (trm_bf16 *)host_floats(n);

  for (size_t i = 0; i < n; i++) {
    x[i] = (float)r.array[a].values[i];
    rounded[i] = trm_bf16_round(x[i]);
  }
  return device_bytes(device, type == TRM_VALUES_F32 ? (void *)x : (void *)rounded, n * trm_value_bytes(type));
}

static const void *values(struct trm_device *device, const char *name)
{
  return given(device, name, TRM_VALUES_BF16);
}

static const float *floats(struct trm_device *device, const char *name)
{
  return given(device, name, TRM_VALUES_F32);
}

/* Returns NaN in the size of a recorded array. */
static void *fresh(struct trm_device *device, const char *name)
{
  return device_nan(device, count(name));
}

/* Compares values on the device with the recorded ones. */
static void check(struct trm_device *device, const char *name, const void *got)
{
  const size_t n = count(name);
  float *wide = device_nan(device, n);

  device->ops->convert(device, &(struct trm_convert){
    .from = got, .to = wide, .n = n, .type_from = TRM_VALUES_BF16, .type_to = TRM_VALUES_F32});
  reference_check_array(&r, reference_array(&r, "", name), read_floats(device, wide, n), ROUNDED);
}

static void check_floats(struct trm_device *device, const char *name, const float *got)
{
  reference_check_array(&r, reference_array(&r, "", name), read_floats(device, got, count(name)), ROUNDED);
}

static void check_linear(struct trm_device *device)
{
  enum { B = 20, K = 65, N = 33 };
  const void *x = values(device, "linear.x"), *w = values(device, "linear.w"), *dy = values(device, "linear.dy");
  void *y = fresh(device, "linear.y"), *dx = fresh(device, "linear.x");
  float *dw = fresh(device, "linear.w"), *db = fresh(device, "linear.b");
  const enum trm_value_type type = TRM_VALUES_BF16;

  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_b = true, .m = B, .n = N, .k = K, .alpha = 1, .a = x, .lda = K, .b = w, .ldb = K, .c = y, .ldc = N,
    .type_ab = type, .type_c = type});
  device->ops->bias_add(device, &(struct trm_bias_add){
    .y = y, .bias = floats(device, "linear.b"), .b = B, .n = N, .type = type});
  check(device, "linear.y", y);
  device->ops->gemm(device, &(struct trm_gemm){
    .m = B, .n = K, .k = N, .alpha = 1, .a = dy, .lda = N, .b = w, .ldb = K, .c = dx, .ldc = K, .type_ab = type,
    .type_c = type});
  check(device, "linear.dx", dx);
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_a = true, .m = N, .n = K, .k = B, .alpha = 1, .a = dy, .lda = N, .b = x, .ldb = K, .c = dw, .ldc = K,
    .type_ab = type});
  check_floats(device, "linear.dw", dw);
  device->ops->bias_backward(device, &(struct trm_bias_backward){.dy = dy, .db = db, .b = B, .n = N, .type = type});
  check_floats(device, "linear.db", db);
}

static void check_rows(struct trm_device *device)
{
  enum { R = 12, D = 40, C = 30 };
  const void *x = values(device, "norm.x");
  const float *gain = floats(device, "norm.gain");
  float *mean = device_nan(device, R), *scale = device_nan(device, R), *dgain = fresh(device, "norm.gain");
  float *dbias = fresh(device, "norm.bias"), *loss = device_nan(device, C);
  void *y = fresh(device, "gelu.y"), *dx = fresh(device, "gelu.x");
  const enum trm_value_type type = TRM_VALUES_BF16;

  device->ops->activation_forward(device, &(struct trm_activation_forward){
    .kind = TRM_GELU, .x = values(device, "gelu.x"), .y = y, .n = count("gelu.x"), .type = type});
  check(device, "gelu.y", y);
  device->ops->activation_backward(device, &(struct trm_activation_backward){
    .kind = TRM_GELU, .x = values(device, "gelu.x"), .dy = values(device, "gelu.dy"), .dx = dx, .n = count("gelu.x"),
    .type = type});
  check(device, "gelu.dx", dx);
  y = fresh(device, "norm.y");
  dx = fresh(device, "norm.x");
  device->ops->norm_forward(device, &(struct trm_norm_forward){
    .x = x, .gain = gain, .bias = floats(device, "norm.bias"), .epsilon = 1e-5f, .y = y, .mean = mean, .scale = scale,
    .r = R, .d = D, .type = type});
  check(device, "norm.y", y);
  device->ops->norm_backward(device, &(struct trm_norm_backward){
    .x = x, .dy = values(device, "norm.dy"), .gain = gain, .mean = mean, .scale = scale, .dx = dx, .dgain = dgain,
    .dbias = dbias, .r = R, .d = D, .type = type});
  check(device, "norm.dx", dx);
  check_floats(device, "norm.dgain", dgain);
  check_floats(device, "norm.dbias", dbias);

  int32_t target[R];
  for (int i = 0; i < R; i++)
    target[i] = (int32_t)r.array[reference_array(&r, "", "softmax.target")].values[i];
  dx = fresh(device, "softmax.z");
  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = values(device, "softmax.z"), .target = device_bytes(device, target, sizeof(target)), .scale = 1, .loss = loss,
    .dz = dx, .b = R, .c = C, .ld = C, .type = type});
  check_floats(device, "softmax.y", loss);
  check(device, "softmax.dz", dx);
}

static void check_attention(struct trm_device *device)
{
  const struct trm_attention shape = {1, 70, 2, 8, true, 0};
  void *y = fresh(device, "attention.y"), *dqkv = fresh(device, "attention.qkv");
  float *row = device_nan(device, 2 * shape.b * shape.heads * shape.t);

  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = shape, .qkv = values(device, "attention.qkv"), .y = y, .row = row, .type = TRM_VALUES_BF16});
  check(device, "attention.y", y);
  device->ops->attention_backward(device, &(struct trm_attention_backward){
    .shape = shape, .qkv = values(device, "attention.qkv"), .y = y, .dy = values(device, "attention.dy"), .row = row,
    .dqkv = dqkv, .type = TRM_VALUES_BF16});
  check(device, "attention.dqkv", dqkv);
}

static void with_case(void (*test)(struct trm_device *device))
{
  FILE *file = reference_open("values.txt");

  CU_ASSERT_FATAL(reference_next(file, &r));
  on_devices(test);
  reference_free(&r);
  fclose(file);
}

static void test_linear(void)
{
  with_case(check_linear);
}

static void test_rows(void)
{
  with_case(check_rows);
}

static void test_attention(void)
{
  with_case(check_attention);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"linear", test_linear},
    {"gelu, layer norm, softmax", test_rows},
    {"attention", test_attention},
    CU_TEST_INFO_NULL,
  };
  return suite_run("reference_values", tests);
}
