/* Activations, and the elementary functions under them. */
#include <CUnit/CUnit.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "kernels.h"
#include "kernels/cpu/math.h"

static const char *const kind_name[] = {"relu", "tanh", "sigmoid", "gelu", "gelu_tanh", "silu", "leaky_relu",
                                         "scale"};

#define LEAK 0.1f /* slope of leaky_relu */

static double tanh_gate(double x)
{
  return 0.5 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double activation_value(enum trm_activation kind, double x)
{
  switch (kind) {
  case TRM_RELU: return x < 0 ? 0 : x;
  case TRM_TANH: return tanh(x);
  case TRM_SIGMOID: return 1 / (1 + exp(-x));
  case TRM_GELU: return x * 0.5 * erfc(-x / sqrt(2));
  case TRM_GELU_TANH: return x * tanh_gate(x);
  case TRM_SILU: return x / (1 + exp(-x));
  case TRM_LEAKY_RELU: return x > 0 ? x : (double)LEAK * x;
  case TRM_SCALE: return (double)LEAK * x;
  }
  return NAN;
}

double activation_slope(enum trm_activation kind, double x)
{
  const double y = activation_value(kind, x);

  switch (kind) {
  case TRM_RELU: return x > 0;
  case TRM_TANH: return 1 - y * y;
  case TRM_SIGMOID: return y * (1 - y);
  case TRM_GELU: return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
  case TRM_SILU: return 1 / (1 + exp(-x)) + x / (2 + exp(x) + exp(-x));
  case TRM_LEAKY_RELU: return x > 0 ? 1 : (double)LEAK;
  case TRM_SCALE: return (double)LEAK;
  case TRM_GELU_TANH: {
    const double t = 2 * tanh_gate(x) - 1;

    return tanh_gate(x) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  }
  }
  return NAN;
}

static bool reads_output(enum trm_activation kind)
{
  return kind == TRM_RELU || kind == TRM_LEAKY_RELU || kind == TRM_TANH || kind == TRM_SIGMOID;
}

static bool reads_input(enum trm_activation kind)
{
  return !reads_output(kind) && kind != TRM_SCALE;
}

void activation_reference(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 3, 17, 1000, 34001};

  for (enum trm_activation kind = TRM_RELU; kind <= TRM_SCALE; kind++)
    for (size_t s = 0; s < COUNT(sizes); s++) {
      const size_t n = sizes[s];
      float *x = host_random(n, 1);
      const float *dy = host_random(n, 2);
      double *value = trm_alloc(2 * n * sizeof(*value), "want"), *slope = value + n;

      for (size_t i = 0; i < n; i++) {
        x[i] *= 12;
        value[i] = activation_value(kind, x[i]);
        slope[i] = dy[i] * activation_slope(kind, x[i]);
      }
      const float *on_x = device_floats(device, x, n);
      float *y = device_nan(device, n), *in_place = device_floats(device, x, n);
      device->ops->activation_forward(device, &(struct trm_activation_forward){
        .kind = kind, .slope = LEAK, .x = on_x, .y = y, .n = n});
      check_close(kind_name[kind], read_floats(device, y, n), value, n, 1e-7, 3e-7);
      device->ops->activation_forward(device, &(struct trm_activation_forward){
        .kind = kind, .slope = LEAK, .x = in_place, .y = in_place, .n = n});
      check_same(kind_name[kind], read_floats(device, in_place, n), read_floats(device, y, n), n);

      /* NULL: the pointer that the contract says is not read */
      float *dx = device_nan(device, n), *same = device_floats(device, dy, n);
      device->ops->activation_backward(device, &(struct trm_activation_backward){
        .kind = kind, .slope = LEAK, .x = reads_input(kind) ? on_x : NULL, .y = reads_output(kind) ? y : NULL,
        .dy = same, .dx = dx, .n = n});
      check_close(kind_name[kind], read_floats(device, dx, n), slope, n, 5e-7, 5e-7);
      device->ops->activation_backward(device, &(struct trm_activation_backward){
        .kind = kind, .slope = LEAK, .x = reads_input(kind) ? on_x : NULL, .y = reads_output(kind) ? y : NULL,
        .dy = same, .dx = same, .n = n});
      check_same(kind_name[kind], read_floats(device, same, n), read_floats(device, dx, n), n);
      trm_free(value);
    }
}

static float infinity_of(struct trm_device *device, enum trm_activation kind)
{
  const float x = INFINITY;
  float *on = device_floats(device, &x, 1);

  device->ops->activation_forward(device, &(struct trm_activation_forward){
    .kind = kind, .slope = LEAK, .x = on, .y = on, .n = 1});
  return read_floats(device, on, 1)[0];
}

void activation_extremes(struct trm_device *device)
{
  static const float x[] = {0,    -0.0f,    NAN,       1e-40f, -1e-40f, 20,    -20,    88.5f,   -88.5f,
                            1000, -1000.0f, FLT_MAX, -FLT_MAX, 1e20f,  -1e20f, 1e10f, -1e10f};
  const size_t n = COUNT(x);

  for (enum trm_activation kind = TRM_RELU; kind <= TRM_SCALE; kind++) {
    double value[COUNT(x)], slope[COUNT(x)];
    float ones[COUNT(x)], *y = device_nan(device, n), *dx = device_nan(device, n);
    const float *on_x = device_floats(device, x, n);

    for (size_t i = 0; i < n; i++) {
      ones[i] = 1;
      value[i] = activation_value(kind, x[i]);
      const bool far = fabs(x[i]) > 1000 && kind < TRM_LEAKY_RELU;
      slope[i] = isnan(x[i]) ? NAN : far ? (x[i] > 0 && kind != TRM_TANH && kind != TRM_SIGMOID)
                                                      : activation_slope(kind, x[i]);
    }
    device->ops->activation_forward(device, &(struct trm_activation_forward){
      .kind = kind, .slope = LEAK, .x = on_x, .y = y, .n = n});
    check_close(kind_name[kind], read_floats(device, y, n), value, n, 1e-7, 3e-7);
    CU_ASSERT_EQUAL(infinity_of(device, kind), (float)activation_value(kind, INFINITY));
    if (kind >= TRM_LEAKY_RELU)
      slope[2] = (double)LEAK;
    if (kind == TRM_RELU)
      slope[2] = 1; /* the gradient passes where the output is NaN: the NaN shows already in the output */
    device->ops->activation_backward(device, &(struct trm_activation_backward){
      .kind = kind, .slope = LEAK, .x = reads_input(kind) ? on_x : NULL, .y = reads_output(kind) ? y : NULL,
      .dy = device_floats(device, ones, n), .dx = dx, .n = n});
    check_close(kind_name[kind], read_floats(device, dx, n), slope, n, 5e-7, 5e-7);
  }
}

/* An element's value is the same in the vectorized main loop and in the remainder loop. */
void activation_position(struct trm_device *device)
{
  enum { N = 67 };
  const float *x = host_random(N, 3);

  for (enum trm_activation kind = TRM_RELU; kind <= TRM_SCALE; kind++) {
    const float *on_x = device_floats(device, x, N);
    float *whole = device_nan(device, N), *single = device_nan(device, N);

    device->ops->activation_forward(device, &(struct trm_activation_forward){
      .kind = kind, .slope = LEAK, .x = on_x, .y = whole, .n = N});
    for (size_t i = 0; i < N; i++)
      device->ops->activation_forward(device, &(struct trm_activation_forward){
        .kind = kind, .slope = LEAK, .x = on_x + i, .y = single + i, .n = 1});
    check_same(kind_name[kind], read_floats(device, single, N), read_floats(device, whole, N), N);
    device->ops->activation_backward(device, &(struct trm_activation_backward){
      .kind = kind, .slope = LEAK, .x = on_x, .y = on_x, .dy = on_x, .dx = whole, .n = N});
    for (size_t i = 0; i < N; i++)
      device->ops->activation_backward(device, &(struct trm_activation_backward){
        .kind = kind, .slope = LEAK, .x = on_x + i, .y = on_x + i, .dy = on_x + i, .dx = single + i, .n = 1});
    check_same(kind_name[kind], read_floats(device, single, N), read_floats(device, whole, N), N);
  }
}

/* Calls by parts of a run of bfloat16 values, forward and backward. */
static void activation_by_parts(struct trm_device *device, enum trm_activation kind, const trm_bf16 *x, trm_bf16 *y,
                                trm_bf16 *dx, size_t n, size_t part)
{
  for (size_t i = 0; i < n; i += part) {
    const size_t width = n - i < part ? n - i : part;

    device->ops->activation_forward(device, &(struct trm_activation_forward){
      .kind = kind, .slope = LEAK, .x = x + i, .y = y + i, .n = width, .type = TRM_VALUES_BF16});
    device->ops->activation_backward(device, &(struct trm_activation_backward){
      .kind = kind, .slope = LEAK, .x = x + i, .y = y + i, .dy = x + i, .dx = dx + i, .n = width,
      .type = TRM_VALUES_BF16});
  }
}

/* Large calls read tables: they have the bits of small calls, for every bfloat16 value that isn't NaN. */
void activation_tables(struct trm_device *device)
{
  enum { N = (1 << 16) + 100, BYTES = N * sizeof(trm_bf16) };
  trm_bf16 *x = (trm_bf16 *)host_floats(N), *got = (trm_bf16 *)host_floats(N), *want = (trm_bf16 *)host_floats(N);

  for (int i = 0; i < N; i++)
    x[i] = isnan(trm_bf16_value((trm_bf16)i)) ? 0 : (trm_bf16)i;
  const trm_bf16 *on_x = device_bytes(device, x, BYTES);
  trm_bf16 *y[2], *dx[2];
  for (int i = 0; i < 2; i++) {
    y[i] = device_bytes(device, x, BYTES);
    dx[i] = device_bytes(device, x, BYTES);
  }
  for (enum trm_activation kind = TRM_RELU; kind <= TRM_SCALE; kind++) {
    activation_by_parts(device, kind, on_x, y[0], dx[0], N, N);
    activation_by_parts(device, kind, on_x, y[1], dx[1], N, 30000);
    for (int backward = 0; backward < 2; backward++) {
      device->ops->download(device, got, backward ? dx[0] : y[0], BYTES);
      device->ops->download(device, want, backward ? dx[1] : y[1], BYTES);
      if (memcmp(got, want, BYTES) != 0)
        printf("\n    %s, %s\n", kind_name[kind], backward ? "backward" : "forward");
      CU_ASSERT(memcmp(got, want, BYTES) == 0);
    }
  }
}

/* Returns the error in units in the last place. */
static double ulps(float got, double exact)
{
  const double size = fmax(fabs(exact), FLT_MIN);

  return fabs(got - exact) / ldexp(1, ilogb(size) - 23);
}

void math_accuracy(void)
{
  double exp_ulps = 0, short_ulps = 0, tanh_ulps = 0, sigmoid_error = 0, phi_error = 0, tail_error = 0;

  for (uint32_t bits = 0; bits < 0x42d00000u; bits += 3001) /* floats from 0 to 104, both signs */
    for (int sign = 0; sign < 2; sign++) {
      const float x = math_float(bits | (uint32_t)sign << 31);
      float density;
      const float phi = math_normal(x, &density);

      if (x < 88.72f)
        exp_ulps = fmax(exp_ulps, ulps(math_exp(x), exp((double)x)));
      if (x > -87.3f && x < 88.3f)
        short_ulps = fmax(short_ulps, ulps(math_exp_short(x), exp((double)x)));
      tanh_ulps = fmax(tanh_ulps, ulps(math_tanh(x), tanh((double)x)));
      if (x > -87)
        sigmoid_error = fmax(sigmoid_error, fabs(math_sigmoid(x) * (1 + exp(-(double)x)) - 1));
      phi_error = fmax(phi_error, fabs(phi - 0.5 * erfc(-(double)x / sqrt(2))));
      if (x < 0 && x > -5)
        tail_error = fmax(tail_error, fabs(phi / (0.5 * erfc(-(double)x / sqrt(2))) - 1));
    }
  if (exp_ulps > 1.1 || short_ulps > 1.1 || tanh_ulps > 2.5 || sigmoid_error > 3e-7 || phi_error > 1.2e-7 ||
      tail_error > 2e-6)
    printf("\n    exp %.3f and %.3f ulp, tanh %.3f ulp, sigmoid %.2e, Phi %.2e, its tail %.2e relative\n", exp_ulps,
           short_ulps, tanh_ulps, sigmoid_error, phi_error, tail_error);
  CU_ASSERT(exp_ulps <= 1.1);
  CU_ASSERT(short_ulps <= 1.1);
  CU_ASSERT(tanh_ulps <= 2.5);
  CU_ASSERT(sigmoid_error <= 3e-7);
  CU_ASSERT(phi_error <= 1.2e-7);
  CU_ASSERT(tail_error <= 2e-6);
  CU_ASSERT(math_exp(-INFINITY) == 0 && math_exp(-150) == 0);
  CU_ASSERT(math_exp(INFINITY) == INFINITY && math_exp(89) == INFINITY);
  CU_ASSERT(math_exp_short(-INFINITY) == 0 && math_exp_short(-88) == 0);
  CU_ASSERT(math_exp_short(INFINITY) == INFINITY && math_exp_short(88.5f) == INFINITY && isnan(math_exp_short(NAN)));
  CU_ASSERT(isnan(math_exp(NAN)) && isnan(math_tanh(NAN)) && isnan(math_sigmoid(NAN)));
}
