/* Activations, element by element. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

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

CPU_INLINE float activation_silu_slope(float x)
{
  x = x > 80.0f ? 80.0f : x; /* beyond, the slope is 0 or 1 */
  x = x < -80.0f ? -80.0f : x;
  const float e = math_exp(-x), gate = 1.0f / (1.0f + e);
  return gate + x * gate * (e * gate);
}

/* NaN is not > 0 and stays */
CPU_INLINE float activation_leaky_relu(float x, float slope)
{
  return x > 0.0f ? x : slope * x;
}

/* NaN is not <= 0 and stays */
CPU_INLINE float activation_relu(float x)
{
  return x <= 0.0f ? 0.0f : x;
}

CPU_INLINE void activation_forward_step(enum trm_value_type type, const struct trm_activation_forward *it, size_t low,
                                        size_t high)
{
  const void *in = it->x;
  void *y = it->y;

  switch (it->kind) {
  case TRM_RELU:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, y, i, activation_relu(cpu_value(type, in, i)));
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, y, i, math_tanh(cpu_value(type, in, i)));
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, y, i, math_sigmoid(cpu_value(type, in, i)));
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float x = cpu_value(type, in, i);
      float density;

      cpu_set(type, y, i, x * math_normal(x, &density));
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float x = cpu_value(type, in, i);

      cpu_set(type, y, i, x * math_sigmoid(activation_gelu_argument(x)));
    }
    break;
  case TRM_SILU:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float x = cpu_value(type, in, i);

      cpu_set(type, y, i, x * math_sigmoid(x));
    }
    break;
  case TRM_LEAKY_RELU:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, y, i, activation_leaky_relu(cpu_value(type, in, i), it->slope));
    break;
  case TRM_SCALE:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, y, i, it->slope * cpu_value(type, in, i));
    break;
  }
}

CPU_INLINE void activation_forward(enum trm_value_type type, const struct trm_activation_forward *it, size_t low,
                                   size_t high)
{
  for (size_t i = low; i < high; i += CPU_STEP) {
    cpu_prefetch(type, it->x, i + CPU_AHEAD, CPU_STEP);
    activation_forward_step(type, it, i, high - i < CPU_STEP ? high : i + CPU_STEP);
  }
}

CPU_BODY_BY_TYPE(activation_forward, trm_activation_forward)

CPU_INLINE void activation_backward_step(enum trm_value_type type, const struct trm_activation_backward *it, size_t low,
                                         size_t high)
{
  const void *in = it->x, *out = it->y, *dy = it->dy;
  void *dx = it->dx;

  switch (it->kind) {
  case TRM_RELU:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float slope = cpu_value(type, dy, i); /* read in any case: without a branch */

      cpu_set(type, dx, i, cpu_value(type, out, i) <= 0.0f ? 0.0f : slope);
    }
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float y = cpu_value(type, out, i);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (1.0f - y * y));
    }
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float y = cpu_value(type, out, i);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (y * (1.0f - y)));
    }
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float x = cpu_value(type, in, i);
      float density;
      const float gate = math_normal(x, &density);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (gate + x * density));
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * activation_gelu_slope(cpu_value(type, in, i)));
    break;
  case TRM_SILU:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * activation_silu_slope(cpu_value(type, in, i)));
    break;
  case TRM_LEAKY_RELU:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * (cpu_value(type, out, i) > 0.0f ? 1.0f : it->slope));
    break;
  case TRM_SCALE:
#pragma omp simd
    for (size_t i = low; i < high; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * it->slope);
    break;
  }
}

CPU_INLINE void activation_backward(enum trm_value_type type, const struct trm_activation_backward *it, size_t low,
                                    size_t high)
{
  const bool by_input = it->kind == TRM_GELU || it->kind == TRM_GELU_TANH || it->kind == TRM_SILU;

  for (size_t i = low; i < high; i += CPU_STEP) {
    cpu_prefetch(type, by_input ? it->x : it->y, i + CPU_AHEAD, CPU_STEP);
    cpu_prefetch(type, it->dy, i + CPU_AHEAD, CPU_STEP);
    activation_backward_step(type, it, i, high - i < CPU_STEP ? high : i + CPU_STEP);
  }
}

CPU_BODY_BY_TYPE(activation_backward, trm_activation_backward)

static double activation_work(enum trm_activation kind)
{
  return kind == TRM_RELU || kind == TRM_LEAKY_RELU || kind == TRM_SCALE ? 1 : 8;
}

void cpu_activation_forward(struct trm_device *device, const struct trm_activation_forward *call)
{
  cpu_for(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_forward_body, call);
}

void cpu_activation_backward(struct trm_device *device, const struct trm_activation_backward *call)
{
  cpu_for(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_backward_body, call);
}
