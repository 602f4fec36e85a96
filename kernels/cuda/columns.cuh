/* Sums over the rows of a matrix, column by column, in two steps with a fixed order: parts of consecutive rows, then
 * the parts. */
#pragma once

#include "kernels/cuda/kernel.cuh"

enum { COLUMNS_WIDTH = 32, COLUMNS_ROWS = 8, COLUMNS_PART = 128, COLUMNS_MOST_PARTS = 256 };

static inline size_t columns_part_rows(size_t rows)
{
  const size_t part = (rows + COLUMNS_MOST_PARTS - 1) / COLUMNS_MOST_PARTS;

  return part < COLUMNS_PART ? (size_t)COLUMNS_PART : part;
}

/* term(row, column): what is added up. parts (parts, n); blocks (columns / WIDTH, parts) of (WIDTH, ROWS) threads. */
template <typename term>
__global__ void columns_add_rows(const term at, size_t rows, size_t n, size_t part, float *parts)
{
  CUDA_SHARED(float, sums, COLUMNS_ROWS *COLUMNS_WIDTH);
  const size_t column = blockIdx.x * (size_t)COLUMNS_WIDTH + threadIdx.x, first = blockIdx.y * part;
  const size_t end = first + part < rows ? first + part : rows;
  float sum = 0;

  if (column < n)
    for (size_t row = first + threadIdx.y; row < end; row += COLUMNS_ROWS)
      sum += at(row, column);
  sums[threadIdx.y * COLUMNS_WIDTH + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < n) {
    for (int i = 1; i < COLUMNS_ROWS; i++)
      sum += sums[i * COLUMNS_WIDTH + threadIdx.x];
    parts[blockIdx.y * n + column] = sum;
  }
}

/* to = beta * to + the sum of the parts */
static __global__ void columns_add_parts(const float *parts, size_t count, size_t n, float beta, float *to)
{
  CUDA_ELEMENTS(i, n) {
    struct cuda_pair sum = {beta == 0 ? 0 : beta * to[i], 0};

    for (size_t p = 0; p < count; p++)
      cuda_pair_add(&sum, parts[p * n + i]);
    to[i] = cuda_pair_value(sum);
  }
}

/* to (n) = beta * to + the sum over rows of term(row, column) */
template <typename term>
static void columns_sum(struct trm_device *device, const term &at, size_t rows, size_t n, float beta, float *to)
{
  const size_t part = columns_part_rows(rows), parts = (rows + part - 1) / part;
  float *scratch = (float *)cuda_scratch(device, parts * n * sizeof *scratch);

  if (!scratch)
    return;
  CUDA_LAUNCH(columns_add_rows, dim3((unsigned)((n + COLUMNS_WIDTH - 1) / COLUMNS_WIDTH), (unsigned)parts),
              dim3(COLUMNS_WIDTH, COLUMNS_ROWS), device, at, rows, n, part, scratch);
  CUDA_LAUNCH(columns_add_parts, cuda_blocks(n), CUDA_THREADS, device, scratch, parts, n, beta, to);
}
