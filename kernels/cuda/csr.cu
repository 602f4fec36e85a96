/* Products with sparse rows. */
#include "kernels/cuda/kernel.cuh"

/* One warp an output of a row. */
template <typename value> __global__ static void csr_run_forward(const struct trm_csr_forward it)
{
  const struct trm_csr *x = &it.x;
  const size_t item = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / CUDA_WARP;

  if (item >= x->rows * it.n)
    return;
  const size_t row = item / it.n;
  const size_t begin = (size_t)(x->starts[row] - x->starts[0]), end = (size_t)(x->starts[row + 1] - x->starts[0]);
  const float *w = it.w + item % it.n * x->features;
  struct cuda_pair sum = {0, 0};

  for (size_t e = begin + threadIdx.x % CUDA_WARP; e < end; e += CUDA_WARP)
    cuda_pair_add(&sum, x->values[e] * w[x->columns[e]]);
  const float total = cuda_warp_join<cuda_joined_sum>(cuda_pair_value(sum));
  if (threadIdx.x % CUDA_WARP == 0)
    cuda_values<value>(it.y).set(item, total);
}

void cuda_csr_forward(struct trm_device *device, const struct trm_csr_forward *call)
{
  const size_t threads = call->x.rows * call->n * CUDA_WARP;

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(csr_run_forward<value>, (unsigned)((threads + CUDA_THREADS - 1) / CUDA_THREADS),
                                       CUDA_THREADS, device, *call));
}

/* One block an output: row after row, whose columns differ. */
template <typename value> __global__ static void csr_run_backward(const struct trm_csr_backward it)
{
  const struct trm_csr *x = &it.x;
  const cuda_values<value> dy(it.dy);
  float *dw = it.dw + blockIdx.x * x->features;

  if (it.beta == 0)
    for (size_t j = threadIdx.x; j < x->features; j += blockDim.x)
      dw[j] = 0;
  for (size_t row = 0; row < x->rows; row++) {
    const size_t begin = (size_t)(x->starts[row] - x->starts[0]), end = (size_t)(x->starts[row + 1] - x->starts[0]);
    const float d = dy[row * it.n + blockIdx.x];

    __syncthreads();
    for (size_t e = begin + threadIdx.x; e < end; e += blockDim.x)
      dw[x->columns[e]] += d * x->values[e];
  }
}

void cuda_csr_backward(struct trm_device *device, const struct trm_csr_backward *call)
{
  if (call->x.features > 0)
    CUDA_BY_TYPE(call->type,
                 CUDA_LAUNCH(csr_run_backward<value>, (unsigned)call->n, CUDA_THREADS, device, *call));
}
