/* Flat arrays: fill, conversion, rows with another distance, sum in a fixed binary tree. */
#include "kernels/cuda/kernel.cuh"

__global__ static void flat_run_fill(float *to, float value, size_t n)
{
  CUDA_ELEMENTS(i, n)
    to[i] = value;
}

void cuda_fill(struct trm_device *device, float *to, float value, size_t n)
{
  CUDA_LAUNCH(flat_run_fill, cuda_blocks(n), CUDA_THREADS, device, to, value, n);
}

template <typename from, typename to> __global__ static void flat_run_convert(const struct trm_convert it)
{
  const cuda_values<from> x(it.from);
  const cuda_values<to> y(it.to);

  CUDA_ELEMENTS(i, it.n)
    y.set(i, x[i]);
}

template <typename from> static void flat_convert_from(struct trm_device *device, const struct trm_convert *call)
{
  void (*const to_bf16)(const struct trm_convert) = flat_run_convert<from, cuda_bf16>;
  void (*const to_float)(const struct trm_convert) = flat_run_convert<from, float>;
  void (*const run)(const struct trm_convert) = call->type_to == TRM_VALUES_BF16 ? to_bf16 : to_float;

  CUDA_LAUNCH(run, cuda_blocks(call->n), CUDA_THREADS, device, *call);
}

void cuda_convert(struct trm_device *device, const struct trm_convert *call)
{
  CUDA_BY_TYPE(call->type_from, flat_convert_from<value>(device, call));
}

enum { FLAT_TOGETHER = 8 }; /* elements that a thread has read before it writes the first */

/* Blocks take rows in turn, so that no thread divides. */
template <typename from, typename to> __global__ static void flat_run_rows(const struct cuda_rows it)
{
  for (size_t row = blockIdx.x; row < it.rows_to; row += gridDim.x) {
    const cuda_values<from> x((const from *)it.from + row * it.ld_from);
    const cuda_values<to> y((to *)it.to + row * it.ld_to);
    const size_t columns = row < it.rows ? it.columns : 0;

    for (size_t first = threadIdx.x; first < it.columns_to; first += blockDim.x * (size_t)FLAT_TOGETHER) {
      float together[FLAT_TOGETHER];

#pragma unroll
      for (int e = 0; e < FLAT_TOGETHER; e++)
        together[e] = first + e * (size_t)blockDim.x < columns ? x[first + e * (size_t)blockDim.x] : 0;
#pragma unroll
      for (int e = 0; e < FLAT_TOGETHER; e++)
        if (first + e * (size_t)blockDim.x < it.columns_to)
          y.set(first + e * (size_t)blockDim.x, together[e]);
    }
  }
}

template <typename from> static void flat_rows_from(struct trm_device *device, const struct cuda_rows *call)
{
  void (*const to_bf16)(const struct cuda_rows) = flat_run_rows<from, cuda_bf16>;
  void (*const to_float)(const struct cuda_rows) = flat_run_rows<from, float>;
  void (*const run)(const struct cuda_rows) = call->type_to == TRM_VALUES_BF16 ? to_bf16 : to_float;

  CUDA_LAUNCH(run, cuda_blocks(call->rows_to, 1), cuda_row_threads(call->columns_to), device, *call);
}

void cuda_copy_rows(struct trm_device *device, const struct cuda_rows *call)
{
  CUDA_BY_TYPE(call->type_from, flat_rows_from<value>(device, call));
}

template <typename value> __global__ static void flat_run_add(const struct trm_add it)
{
  const cuda_values<value> a(it.a), b(it.b), y(it.y);

  CUDA_ELEMENTS(i, it.n)
    y.set(i, a[i] + b[i]);
}

void cuda_add(struct trm_device *device, const struct trm_add *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(flat_run_add<value>, cuda_blocks(call->n), CUDA_THREADS, device, *call));
}

/* -- sum */

/* A binary counter of so many digits counts the arrays. A kernel's arguments have room for a few. */
enum { FLAT_LEVELS = 16, FLAT_ARGUMENTS = 64 };

struct flat_table {
  const float *from[FLAT_ARGUMENTS];
};

/* The sum over 0..count-1: complete subtrees are joined as in a binary counter, the rest from the right. */
__device__ static float flat_tree(const float *const *from, int count, size_t i)
{
  float part[FLAT_LEVELS];
  int parts = 0;

  for (int k = 0; k < count; k++) {
    float sum = from[k][i];

    for (int full = k; full % 2 == 1; full /= 2)
      sum = part[--parts] + sum;
    part[parts++] = sum;
  }
  float sum = part[--parts];
  while (parts > 0)
    sum = part[--parts] + sum;
  return sum;
}

__global__ static void flat_run_sum(const struct flat_table table, const struct trm_sum it)
{
  CUDA_ELEMENTS(i, it.n)
    it.to[i] = flat_tree(table.from, it.count, i);
}

/* The same with a table in device memory. */
__global__ static void flat_run_long_sum(const float *const *from, const struct trm_sum it)
{
  CUDA_ELEMENTS(i, it.n)
    it.to[i] = flat_tree(from, it.count, i);
}

static void flat_sum(struct trm_device *device, const struct trm_sum *call)
{
  struct flat_table table = {};

  if (call->count <= FLAT_ARGUMENTS) {
    for (int k = 0; k < call->count; k++)
      table.from[k] = call->from[k];
    CUDA_LAUNCH(flat_run_sum, cuda_blocks(call->n), CUDA_THREADS, device, table, *call);
    return;
  }
  const size_t bytes = (size_t)call->count * sizeof(float *);
  const float **from = (const float **)cuda_scratch(device, bytes);
  if (!from)
    return;
  cuda_upload(device, from, call->from, bytes);
  CUDA_LAUNCH(flat_run_long_sum, cuda_blocks(call->n), CUDA_THREADS, device, from, *call);
}

void cuda_sum(struct trm_device *device, const struct trm_sum *call)
{
  if (call->count >= 1 << FLAT_LEVELS)
    cuda_fail(device, "sum of %d arrays: at most %d", call->count, (1 << FLAT_LEVELS) - 1);
  else if (call->count < 1)
    cuda_fill(device, call->to, 0, call->n);
  else if (call->count > 1 || call->to != call->from[0])
    flat_sum(device, call);
}
