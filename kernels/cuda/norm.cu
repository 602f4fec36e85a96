/* Normalization of rows: layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang & Sennrich 2019). One block a row. The
 * fused kernels have the bits of the composed ones: sums have the same order, and values are rounded as if stored. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/dropout.cuh"

/* One row; all threads of a block call. */
template <typename value> __device__ static void norm_row(const struct trm_norm_forward &it)
{
  const size_t row = blockIdx.x, d = it.d;
  const cuda_values<value> x((const value *)it.x + row * d), y((value *)it.y + row * d);
  float sum = 0, squares = 0, mean = 0;

  if (it.mean) {
    for (size_t j = threadIdx.x; j < d; j += blockDim.x)
      sum += x[j];
    mean = cuda_block_sum(sum) / (float)d;
  }
  for (size_t j = threadIdx.x; j < d; j += blockDim.x)
    squares += (x[j] - mean) * (x[j] - mean);
  const float scale = 1.0f / sqrtf(cuda_block_sum(squares) / (float)d + it.epsilon);
  for (size_t j = threadIdx.x; j < d; j += blockDim.x)
    y.set(j, (x[j] - mean) * scale * it.gain[j] + (it.bias ? it.bias[j] : 0));
  if (threadIdx.x == 0) {
    it.scale[row] = scale;
    if (it.mean)
      it.mean[row] = mean;
  }
}

template <typename value> __global__ static void norm_run_forward(const struct trm_norm_forward it)
{
  norm_row<value>(it);
}

void cuda_norm_forward(struct trm_device *device, const struct trm_norm_forward *call)
{
  CUDA_BY_TYPE(call->type,
               CUDA_LAUNCH(norm_run_forward<value>, (unsigned)call->r, cuda_row_threads(call->d), device, *call));
}

/* The sum and, unless y is NULL, its norm, whose rows the block reads again while they are in its cache. A thread adds
 * four consecutive elements at a time. */
template <typename value>
__global__ static void norm_run_add_forward(const struct trm_add_norm_forward it, const struct dropout_mask mask)
{
  const cuda_values<value> a(it.a), b(it.b), s(it.s);
  const size_t d = it.norm.d, row = blockIdx.x * d;

  for (size_t first = threadIdx.x * (size_t)4; first < d; first += blockDim.x * (size_t)4) {
    const size_t end = first + 4 < d ? first + 4 : d;

    if (it.mask.rate > 0) {
      dropout_factors factor(mask, row + first);

      for (size_t j = row + first; j < row + end; j++)
        s.set(j, a[j] + cuda_rounded<value>(b[j] * factor.next()));
    } else
      for (size_t j = row + first; j < row + end; j++)
        s.set(j, a[j] + b[j]);
  }
  if (!it.norm.y)
    return;
  __syncthreads();
  norm_row<value>(it.norm);
}

void cuda_add_norm_forward(struct trm_device *device, const struct trm_add_norm_forward *call)
{
  struct trm_add_norm_forward it = *call;

  it.norm.x = call->s;
  CUDA_BY_TYPE(call->norm.type,
               CUDA_LAUNCH(norm_run_add_forward<value>, (unsigned)call->norm.r, cuda_row_threads(call->norm.d), device,
                           it, dropout_mask_of(&call->mask, call->f ? call->f : 1)));
}

/* to = dx, or dx + other unless that is NULL */
template <typename value>
__global__ static void norm_run_backward(const struct trm_norm_backward it, const void *other_rows, void *to)
{
  const size_t row = blockIdx.x, d = it.d;
  const cuda_values<value> x((const value *)it.x + row * d), dy((const value *)it.dy + row * d);
  const cuda_values<value> other((const value *)other_rows + row * d), dx((value *)to + row * d);
  const float mean = it.mean ? it.mean[row] : 0, scale = it.scale[row];
  float g_sum = 0, gn_sum = 0; /* of g = dy * gain, and of g * normalized x */

  for (size_t j = threadIdx.x; j < d; j += blockDim.x) {
    const float g = dy[j] * it.gain[j];

    g_sum += g;
    gn_sum += g * ((x[j] - mean) * scale);
  }
  const float g_mean = it.mean ? cuda_block_sum(g_sum) / (float)d : 0; /* RMS norm subtracts no mean */
  const float gn_mean = cuda_block_sum(gn_sum) / (float)d;
  for (size_t j = threadIdx.x; j < d; j += blockDim.x) {
    const float own = scale * (dy[j] * it.gain[j] - g_mean - (x[j] - mean) * scale * gn_mean);

    dx.set(j, other_rows ? other[j] + cuda_rounded<value>(own) : own);
  }
}

template <typename value> struct norm_gain_term {
  struct trm_norm_backward it;
  __device__ float operator()(size_t row, size_t column) const
  {
    const size_t at = row * it.d + column;
    const float mean = it.mean ? it.mean[row] : 0;

    return cuda_values<value>(it.dy)[at] * ((cuda_values<value>(it.x)[at] - mean) * it.scale[row]);
  }
};

template <typename value> struct norm_bias_term {
  struct trm_norm_backward it;
  __device__ float operator()(size_t row, size_t column) const
  {
    return cuda_values<value>(it.dy)[row * it.d + column];
  }
};

/* dx last: it may be dy. */
template <typename value>
static void norm_backward(struct trm_device *device, const struct trm_norm_backward *call, const void *other, void *to)
{
  const norm_gain_term<value> gain = {*call};
  const norm_bias_term<value> bias = {*call};

  columns_sum(device, gain, call->r, call->d, call->beta, call->dgain);
  if (call->dbias)
    columns_sum(device, bias, call->r, call->d, call->beta, call->dbias);
  if (to)
    CUDA_LAUNCH(norm_run_backward<value>, (unsigned)call->r, cuda_row_threads(call->d), device, *call, other, to);
}

void cuda_norm_backward(struct trm_device *device, const struct trm_norm_backward *call)
{
  CUDA_BY_TYPE(call->type, norm_backward<value>(device, call, nullptr, call->dx));
}

void cuda_add_norm_backward(struct trm_device *device, const struct trm_add_norm_backward *call)
{
  CUDA_BY_TYPE(call->norm.type, norm_backward<value>(device, &call->norm, call->other, call->sum));
}
