/* Activations, element by element. */
#include "kernels/cpu/math.h"
#include "kernels/cpu/values.h"

/* The tanh form of gelu is x * sigmoid(GELU_SLOPE * (x + GELU_CUBE * x^3)): sqrt(8 / pi) and 0.044715. */
#define GELU_SLOPE 1.595769122f
#define GELU_CUBE 0.044715f

CPU_INLINE float activation_gelu_argument(float x)
{
  return GELU_SLOPE * (x + GELU_CUBE * x * x * x);
}

CPU_INLINE float activation_gelu_slope(float x)
{
  /* Beyond +-10 the slope is exactly 0 or 1; clamping avoids 0 * infinity. */
  x = x > 10.0f ? 10.0f : x;
  x = x < -10.0f ? -10.0f : x;
  const float e = math_exp(-activation_gelu_argument(x));
  const float gate = 1.0f / (1.0f + e);
  /* e * gate is 1 - gate without the cancellation */
  return gate + x * gate * (e * gate) * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBE * x * x);
}

CPU_CLONES static void activation_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_activation_forward *it = arguments;
  const float *x = (const float *)it->x + low;
  float *y = (float *)it->y + low;
  const size_t n = high - low;

  switch (it->kind) {
  case TRM_RELU: /* a NaN is not <= 0 and stays */
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      y[i] = x[i] <= 0.0f ? 0.0f : x[i];
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      y[i] = math_tanh(x[i]);
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      y[i] = math_sigmoid(x[i]);
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      float density;

      y[i] = x[i] * math_normal(x[i], &density);
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      y[i] = x[i] * math_sigmoid(activation_gelu_argument(x[i]));
    break;
  }
}

CPU_CLONES static void activation_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_activation_backward *it = arguments;
  const float *x = it->x, *y = it->y, *dy = it->dy;
  float *dx = it->dx;

  switch (it->kind) {
  case TRM_RELU:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      dx[i] = dy[i] * (1.0f - y[i] * y[i]);
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      float density;
      const float gate = math_normal(x[i], &density);

      dx[i] = dy[i] * (gate + x[i] * density);
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      dx[i] = dy[i] * activation_gelu_slope(x[i]);
    break;
  }
}

static double activation_work(enum trm_activation kind)
{
  return kind == TRM_RELU ? 1 : 8;
}

void cpu_activation_forward(struct trm_device *device, const struct trm_activation_forward *call)
{
  cpu_for_values(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_forward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, 1), CPU_WRITES(*call, y, 1)));
}

void cpu_activation_backward(struct trm_device *device, const struct trm_activation_backward *call)
{
  const bool gelu = call->kind == TRM_GELU || call->kind == TRM_GELU_TANH;

  cpu_for_values(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_backward_body, call,
                 CPU_VALUES(call->type, *call, CPU_ACCESS(*call, x, 1, gelu ? TRM_READS : 0),
                            CPU_ACCESS(*call, y, 1, gelu ? 0 : TRM_READS), CPU_READS(*call, dy, 1),
                            CPU_WRITES(*call, dx, 1)));
}
