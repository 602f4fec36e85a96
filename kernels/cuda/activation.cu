/* Activations and gated units, element by element. */
#include "kernels/cuda/kernel.cuh"

/* The tanh form of gelu is x * sigmoid(SLOPE * (x + CUBE * x^3)): sqrt(8 / pi) and 0.044715. */
#define SLOPE 1.595769122f
#define CUBE 0.044715f

__device__ static float activation_sigmoid(float x)
{
  return 1.0f / (1.0f + expf(-x));
}

__device__ static float activation_gelu_slope(float x)
{
  /* beyond +-10 the slope is exactly 0 or 1; clamping avoids 0 * infinity */
  x = x > 10.0f ? 10.0f : x;
  x = x < -10.0f ? -10.0f : x;
  const float e = expf(-SLOPE * (x + CUBE * x * x * x)), gate = 1.0f / (1.0f + e);
  return gate + x * gate * (e * gate) * SLOPE * (1.0f + 3.0f * CUBE * x * x);
}

__device__ static float activation_silu_slope(float x)
{
  x = x > 80.0f ? 80.0f : x; /* beyond, the slope is 0 or 1 */
  x = x < -80.0f ? -80.0f : x;
  const float e = expf(-x), gate = 1.0f / (1.0f + e);
  return gate + x * gate * (e * gate);
}

/* Phi(x) of the normal distribution */
__device__ static float activation_normal(float x)
{
  return 0.5f * erfcf(-0.707106781f * x);
}

__device__ static float activation_of(enum trm_activation kind, float x, float slope)
{
  switch (kind) {
  case TRM_RELU:
    return x <= 0.0f ? 0.0f : x; /* a NaN is not <= 0 and stays */
  case TRM_TANH:
    return tanhf(x);
  case TRM_SIGMOID:
    return activation_sigmoid(x);
  case TRM_GELU:
    return x * activation_normal(x);
  case TRM_SILU:
    return x * activation_sigmoid(x);
  case TRM_LEAKY_RELU:
    return x > 0.0f ? x : slope * x;
  case TRM_SCALE:
    return slope * x;
  default:
    return x * activation_sigmoid(SLOPE * (x + CUBE * x * x * x));
  }
}

template <typename value> __global__ static void activation_run_forward(const struct trm_activation_forward it)
{
  const cuda_values<value> x(it.x), y(it.y);

  CUDA_ELEMENTS(i, it.n)
    y.set(i, activation_of(it.kind, x[i], it.slope));
}

void cuda_activation_forward(struct trm_device *device, const struct trm_activation_forward *call)
{
  CUDA_BY_TYPE(call->type,
               CUDA_LAUNCH(activation_run_forward<value>, cuda_blocks(call->n), CUDA_THREADS, device, *call));
}

/* f'(x); relu, leaky_relu, tanh and sigmoid from y = f(x), scale from neither */
__device__ static float activation_slope(enum trm_activation kind, float x, float y, float slope)
{
  switch (kind) {
  case TRM_RELU:
    return y <= 0.0f ? 0.0f : 1.0f;
  case TRM_TANH:
    return 1.0f - y * y;
  case TRM_SIGMOID:
    return y * (1.0f - y);
  case TRM_GELU:
    return activation_normal(x) + x * (0.398942280f * expf(-0.5f * x * x));
  case TRM_SILU:
    return activation_silu_slope(x);
  case TRM_LEAKY_RELU:
    return y > 0.0f ? 1.0f : slope;
  case TRM_SCALE:
    return slope;
  default:
    return activation_gelu_slope(x);
  }
}

template <typename value> __global__ static void activation_run_backward(const struct trm_activation_backward it)
{
  const cuda_values<value> x(it.x), y(it.y), dy(it.dy), dx(it.dx);
  const bool of_input = it.kind == TRM_GELU || it.kind == TRM_GELU_TANH || it.kind == TRM_SILU;
  const bool of_output = !of_input && it.kind != TRM_SCALE;

  CUDA_ELEMENTS(i, it.n) {
    const float slope = activation_slope(it.kind, of_input ? x[i] : 0, of_output ? y[i] : 0, it.slope);

    dx.set(i, it.kind == TRM_RELU && slope == 0 ? 0 : dy[i] * slope);
  }
}

void cuda_activation_backward(struct trm_device *device, const struct trm_activation_backward *call)
{
  CUDA_BY_TYPE(call->type,
               CUDA_LAUNCH(activation_run_backward<value>, cuda_blocks(call->n), CUDA_THREADS, device, *call));
}

/* -- swiglu (Shazeer 2020) */

template <typename value> __global__ static void activation_run_swiglu(const struct trm_swiglu_forward it)
{
  const cuda_values<value> x(it.x), y(it.y);

  CUDA_ELEMENTS(i, it.r * it.f) {
    const size_t at = i / it.f * 2 * it.f + i % it.f;
    const float a = x[at];

    y.set(i, a * activation_sigmoid(a) * x[at + it.f]);
  }
}

void cuda_swiglu_forward(struct trm_device *device, const struct trm_swiglu_forward *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(activation_run_swiglu<value>, cuda_blocks(call->r * call->f), CUDA_THREADS,
                                       device, *call));
}

template <typename value> __global__ static void activation_run_swiglu_back(const struct trm_swiglu_backward it)
{
  const cuda_values<value> x(it.x), dy(it.dy), dx(it.dx);

  CUDA_ELEMENTS(i, it.r * it.f) {
    const size_t at = i / it.f * 2 * it.f + i % it.f;
    const float a = x[at], b = x[at + it.f], d = dy[i], s = activation_sigmoid(a), silu = a * s;

    dx.set(at, d * b * (s + silu * (1.0f - s)));
    dx.set(at + it.f, d * silu);
  }
}

void cuda_swiglu_backward(struct trm_device *device, const struct trm_swiglu_backward *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(activation_run_swiglu_back<value>, cuda_blocks(call->r * call->f),
                                       CUDA_THREADS, device, *call));
}
