/* Batch normalization. A channel's values are summed by parts of consecutive samples, then the parts in their order. */
#include "kernels/cuda/kernel.cuh"

enum { BATCH_NORM_PART = 8192, BATCH_NORM_PARTS = 64 };

/* Samples of a part. */
static size_t batch_norm_part(size_t b, size_t size)
{
  const size_t least = BATCH_NORM_PART / size + 1, spread = (b + BATCH_NORM_PARTS - 1) / BATCH_NORM_PARTS;

  return least > spread ? least : spread;
}

/* Moments of a part: blocks (C, parts); part (parts, 2, C): mean, sum of squares about it. The channel's first value is
 * subtracted first, so that large means cost no precision. */
template <typename value>
__global__ static void batch_norm_run_moments(const struct trm_batch_norm_moments it, size_t samples, float *part)
{
  const size_t channels = it.bn.channels, size = it.bn.size, c = blockIdx.x, first = blockIdx.y * samples;
  const size_t rows = it.b - first < samples ? it.b - first : samples, n = rows * size;
  const cuda_values<value> x(it.x);
  const float shift = x[c * size];
  float sum = 0, squares = 0;

  for (size_t i = threadIdx.x; i < n; i += blockDim.x)
    sum += x[((first + i / size) * channels + c) * size + i % size] - shift;
  const float mean = cuda_block_sum(sum) / (float)n;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float d = x[((first + i / size) * channels + c) * size + i % size] - shift - mean;

    squares += d * d;
  }
  squares = cuda_block_sum(squares);
  if (threadIdx.x == 0) {
    part[(2 * blockIdx.y) * channels + c] = mean;
    part[(2 * blockIdx.y + 1) * channels + c] = squares;
  }
}

/* Merges the parts (Chan, Golub & LeVeque 1983). */
template <typename value>
__global__ static void batch_norm_run_merge(const struct trm_batch_norm_moments it, size_t samples, size_t parts,
                                            const float *part)
{
  const size_t channels = it.bn.channels, size = it.bn.size;

  CUDA_ELEMENTS(c, channels) {
    float count = 0, mean = 0, squares = 0;

    for (size_t p = 0; p < parts; p++) {
      const float own = (float)((it.b - p * samples < samples ? it.b - p * samples : samples) * size);
      const float total = count + own, difference = part[2 * p * channels + c] - mean;

      squares += part[(2 * p + 1) * channels + c] + difference * difference * (count * (own / total));
      mean += difference * (own / total);
      count = total;
    }
    it.moments[c] = cuda_values<value>(it.x)[c * size] + mean;
    it.moments[channels + c] = squares;
  }
}

template <typename value>
static void batch_norm_moments(struct trm_device *device, const struct trm_batch_norm_moments *call)
{
  const size_t channels = call->bn.channels, samples = batch_norm_part(call->b, call->bn.size);
  const size_t parts = (call->b + samples - 1) / samples;
  float *part = (float *)cuda_scratch(device, 2 * parts * channels * sizeof *part);

  if (!part)
    return;
  CUDA_LAUNCH(batch_norm_run_moments<value>, dim3((unsigned)channels, (unsigned)parts), CUDA_THREADS, device, *call,
              samples, part);
  CUDA_LAUNCH(batch_norm_run_merge<value>, cuda_blocks(channels), CUDA_THREADS, device, *call, samples, parts, part);
}

void cuda_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm_moments *call)
{
  if (call->b * call->bn.size == 0)
    cuda_fill(device, call->moments, 0, 2 * call->bn.channels);
  else
    CUDA_BY_TYPE(call->type, batch_norm_moments<value>(device, call));
}

/* each: 1 / count of the call, which processors without fast doubles get as a float */
static float batch_norm_each(const struct trm_batch_norm *bn)
{
  return (float)(1 / bn->count);
}

/* Returns a count in device memory: from the words of the double, whose arithmetic is slow. Exact below 2^24. */
__device__ static float batch_norm_counted(const double *counted)
{
  uint64_t bits = 0;
  float count = 0;

  memcpy(&bits, counted, sizeof bits);
  const uint32_t word = bits == 0 ? 0 : (uint32_t)((bits >> 52) - 1023 + 127) << 23 | (uint32_t)(bits >> 29 & 0x7fffff);
  memcpy(&count, &word, sizeof count);
  return count;
}

/* The same where the count is in device memory. */
__device__ static float batch_norm_each_of(const struct trm_batch_norm *bn, float each)
{
  return bn->counted ? 1.0f / batch_norm_counted(bn->counted) : each;
}

__device__ static float batch_norm_inverse_std(const struct trm_batch_norm *bn, float each, float square)
{
  return 1.0f / sqrtf(square * each + bn->epsilon);
}

/* The gradient of the norm's output, whose scale is inverse * w: dy, with relu only where the output is positive. */
__device__ static float batch_norm_gradient(bool relu, float x, float mean, float scale, float bias, float dy)
{
  return relu && (x - mean) * scale + bias <= 0.0f ? 0.0f : dy;
}

template <typename value>
__global__ static void batch_norm_run_forward(const struct trm_batch_norm_forward it, float each)
{
  const cuda_values<value> x(it.x), addend(it.addend), y(it.y);

  each = batch_norm_each_of(&it.bn, each);
  CUDA_ELEMENTS(i, it.b * it.bn.channels * it.bn.size) {
    const size_t c = i / it.bn.size % it.bn.channels;
    const float scale = batch_norm_inverse_std(&it.bn, each, it.square[c]) * it.w[c];

    float result = (x[i] - it.mean[c]) * scale + it.bias[c];

    if (it.addend)
      result = cuda_rounded<value>(result) + addend[i];
    y.set(i, it.relu && result <= 0.0f ? 0.0f : result);
  }
}

void cuda_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm_forward *call)
{
  const size_t n = call->b * call->bn.channels * call->bn.size;

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(batch_norm_run_forward<value>, cuda_blocks(n), CUDA_THREADS, device, *call,
                                       batch_norm_each(&call->bn)));
}

/* part (parts, 2, C): sums of dy, and of dy * (x - mean) */
template <typename value>
__global__ static void batch_norm_run_sums(const struct trm_batch_norm_sums it, float each, size_t samples, float *part)
{
  const size_t channels = it.bn.channels, size = it.bn.size, c = blockIdx.x, first = blockIdx.y * samples;
  const size_t rows = it.b - first < samples ? it.b - first : samples;
  const cuda_values<value> x(it.x), dy(it.dy);
  const float mean = it.mean[c];
  const float inverse = batch_norm_inverse_std(&it.bn, batch_norm_each_of(&it.bn, each), it.square[c]);
  const float scale = it.relu ? inverse * it.w[c] : 0, bias = it.relu ? it.bias[c] : 0;
  float sum = 0, products = 0;

  for (size_t i = threadIdx.x; i < rows * size; i += blockDim.x) {
    const size_t at = ((first + i / size) * channels + c) * size + i % size;

    const float gradient = batch_norm_gradient(it.relu, x[at], mean, scale, bias, dy[at]);

    sum += gradient;
    products += gradient * (x[at] - mean);
  }
  sum = cuda_block_sum(sum);
  products = cuda_block_sum(products);
  if (threadIdx.x == 0) {
    part[(2 * blockIdx.y) * channels + c] = sum;
    part[(2 * blockIdx.y + 1) * channels + c] = products;
  }
}

__global__ static void batch_norm_run_add(const struct trm_batch_norm_sums it, float each, size_t parts,
                                          const float *part)
{
  const size_t channels = it.bn.channels;

  each = batch_norm_each_of(&it.bn, each);
  CUDA_ELEMENTS(c, channels) {
    struct cuda_pair sum = {0, 0}, products = {0, 0};

    for (size_t p = 0; p < parts; p++) {
      cuda_pair_add(&sum, part[2 * p * channels + c]);
      cuda_pair_add(&products, part[(2 * p + 1) * channels + c]);
    }
    it.sums[c] = cuda_pair_value(sum);
    it.sums[channels + c] = cuda_pair_value(products) * batch_norm_inverse_std(&it.bn, each, it.square[c]);
  }
}

void cuda_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm_sums *call)
{
  const size_t channels = call->bn.channels, samples = batch_norm_part(call->b, call->bn.size);
  const size_t parts = (call->b + samples - 1) / samples;
  float *part = (float *)cuda_scratch(device, 2 * parts * channels * sizeof *part);

  if (!part)
    return;
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(batch_norm_run_sums<value>, dim3((unsigned)channels, (unsigned)parts),
                                       CUDA_THREADS, device, *call, batch_norm_each(&call->bn), samples, part));
  CUDA_LAUNCH(batch_norm_run_add, cuda_blocks(channels), CUDA_THREADS, device, *call, batch_norm_each(&call->bn), parts,
              part);
}

/* to = beta * to + factor * from */
__device__ static void batch_norm_add(float *to, float from, float factor, float beta)
{
  *to = (beta == 0 ? 0 : beta * *to) + factor * from;
}

/* count, share: of the call, as floats */
__global__ static void batch_norm_run_gradients(const struct trm_batch_norm_gradients it, float count, float share)
{
  const size_t channels = it.bn.channels;

  if (it.bn.counted)
    count = batch_norm_counted(it.bn.counted);
  const float degrees = count > 1 ? count - 1 : 1;
  CUDA_ELEMENTS(c, channels) {
    batch_norm_add(&it.db[c], it.sums[c], 1, it.beta);
    batch_norm_add(&it.dw[c], it.sums[channels + c], 1, it.beta);
    batch_norm_add(&it.dmean[c], it.moments[c], share, it.beta);
    batch_norm_add(&it.dvariance[c], it.moments[channels + c], share / degrees, it.beta);
  }
}

void cuda_batch_norm_gradients(struct trm_device *device, const struct trm_batch_norm_gradients *call)
{
  CUDA_LAUNCH(batch_norm_run_gradients, cuda_blocks(call->bn.channels), CUDA_THREADS, device, *call,
              (float)call->bn.count, (float)call->share);
}

template <typename value>
__global__ static void batch_norm_run_backward(const struct trm_batch_norm_backward it, float each)
{
  const size_t channels = it.bn.channels;
  const cuda_values<value> x(it.x), dy(it.dy), dx(it.dx);

  each = batch_norm_each_of(&it.bn, each);
  CUDA_ELEMENTS(i, it.b * channels * it.bn.size) {
    const size_t c = i / it.bn.size % channels;
    const float inverse = batch_norm_inverse_std(&it.bn, each, it.square[c]);
    const float slope = it.sums[channels + c] * each * inverse, scale = inverse * it.w[c];
    const float gradient = batch_norm_gradient(it.relu, x[i], it.mean[c], scale, it.relu ? it.bias[c] : 0, dy[i]);

    dx.set(i, scale * (gradient - it.sums[c] * each - (x[i] - it.mean[c]) * slope));
  }
}

void cuda_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm_backward *call)
{
  const size_t n = call->b * call->bn.channels * call->bn.size;

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(batch_norm_run_backward<value>, cuda_blocks(n), CUDA_THREADS, device, *call,
                                       batch_norm_each(&call->bn)));
}
