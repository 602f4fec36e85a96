/* Bias: added to every row; its gradient is the sum over rows. */
#include "kernels/cuda/columns.cuh"

template <typename value> __global__ static void bias_run_add(const struct trm_bias_add it)
{
  const cuda_values<value> y(it.y);

  CUDA_ELEMENTS(i, it.b * it.n)
    y.set(i, y[i] + it.bias[i % it.n]);
}

void cuda_bias_add(struct trm_device *device, const struct trm_bias_add *call)
{
  CUDA_BY_TYPE(call->type,
               CUDA_LAUNCH(bias_run_add<value>, cuda_blocks(call->b * call->n), CUDA_THREADS, device, *call));
}

template <typename value> struct bias_term {
  const void *dy; /* (B, N) */
  size_t n;
  __device__ float operator()(size_t row, size_t column) const { return cuda_values<value>(dy)[row * n + column]; }
};

void cuda_bias_backward(struct trm_device *device, const struct trm_bias_backward *call)
{
  CUDA_BY_TYPE(call->type, const bias_term<value> at = {call->dy, call->n};
               columns_sum(device, at, call->b, call->n, call->beta, call->db));
}
