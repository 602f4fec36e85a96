/* Multi-head self-attention in tiles (Dao et al. 2022): what forward and backward share. A warp has a few positions of
 * its own, and runs over tiles of CUDA_WARP other positions, one a lane, with which it makes products of E values.
 * Scores are never stored. */
#pragma once

#include "kernels/cuda/kernel.cuh"

/* own: positions of a warp; warps of a block; values of E that are in shared memory at a time; the largest E */
enum { ATTENTION_OWN = 4, ATTENTION_WARPS = 4, ATTENTION_CHUNK = 64, ATTENTION_MOST = 256 };
enum {
  ATTENTION_THREADS = ATTENTION_WARPS * CUDA_WARP,
  ATTENTION_ROWS = ATTENTION_WARPS * ATTENTION_OWN, /* own positions of a block */
  ATTENTION_PITCH = ATTENTION_CHUNK + 1,            /* so that lanes read from different banks */
  ATTENTION_SUMS = ATTENTION_MOST / CUDA_WARP       /* of E values, one a lane at a time */
};

/* Rows of one head: (T) rows of E values, `stride` from one to the next. */
template <typename value> struct attention_rows {
  const value *at;
  size_t stride;
};

template <typename value>
__host__ __device__ static inline attention_rows<value> attention_head(const struct trm_attention *shape,
                                                                       const void *qkv, size_t head, int which)
{
  const size_t d = shape->heads * shape->head_dim, b = head / shape->heads, h = head % shape->heads;

  return {(const value *)qkv + (b * shape->t * 3 + which) * d + h * shape->head_dim, 3 * d};
}

/* The same of an array (B, T - first, H, E), of positions from `first` on. */
template <typename value>
__host__ __device__ static inline attention_rows<value> attention_result(const struct trm_attention *shape,
                                                                         const void *y, size_t head)
{
  const size_t d = shape->heads * shape->head_dim, b = head / shape->heads, h = head % shape->heads;

  return {(const value *)y + b * (shape->t - shape->first) * d + h * shape->head_dim, d};
}

/* Copies the block's own rows first, first + 1, .. to shared memory (ROWS, E), zeros beyond T. All threads call. */
template <typename value>
__device__ static void attention_own_rows(const attention_rows<value> rows, size_t t, size_t e, size_t first, float *to)
{
  for (size_t i = threadIdx.x; i < ATTENTION_ROWS * e; i += ATTENTION_THREADS)
    to[i] = first + i / e < t ? cuda_load(rows.at + (first + i / e) * rows.stride + i % e) : 0;
}

/* product[k] = own row k of the warp (of `own`, (OWN, E)) times row first + lane. All threads of the block call. */
template <typename value>
__device__ static void attention_products(const attention_rows<value> rows, size_t t, size_t e, size_t first,
                                          const float *own, float *tile, float product[ATTENTION_OWN])
{
  const unsigned lane = threadIdx.x % CUDA_WARP;

#pragma unroll
  for (int k = 0; k < ATTENTION_OWN; k++)
    product[k] = 0;
  for (size_t low = 0; low < e; low += ATTENTION_CHUNK) {
    const unsigned width = (unsigned)(e - low < ATTENTION_CHUNK ? e - low : (size_t)ATTENTION_CHUNK);

    __syncthreads(); /* the tile has been read */
    for (unsigned i = threadIdx.x; i < CUDA_WARP * width; i += ATTENTION_THREADS) {
      const size_t row = first + i / width;

      tile[i / width * ATTENTION_PITCH + i % width] =
        row < t ? cuda_load(rows.at + row * rows.stride + low + i % width) : 0;
    }
    __syncthreads();
    for (unsigned j = 0; j < width; j++) {
      const float v = tile[lane * ATTENTION_PITCH + j];

#pragma unroll
      for (int k = 0; k < ATTENTION_OWN; k++)
        product[k] = fmaf(own[k * e + low + j], v, product[k]);
    }
  }
}

/* sum[k][..] += the sum over the tile's rows of weight[k] (of the lane that has the row) times the row. */
template <typename value>
__device__ static void attention_add_rows(const attention_rows<value> rows, size_t t, size_t e, size_t first,
                                          const float weight[ATTENTION_OWN],
                                          float sum[ATTENTION_OWN][ATTENTION_SUMS])
{
  const unsigned lane = threadIdx.x % CUDA_WARP;

  for (int row = 0; row < CUDA_WARP; row++) {
    float w[ATTENTION_OWN];

#pragma unroll
    for (int k = 0; k < ATTENTION_OWN; k++)
      w[k] = __shfl_sync(0xffffffffu, weight[k], row);
    if (first + row >= t)
      continue;
    const value *x = rows.at + (first + row) * rows.stride;
#pragma unroll
    for (int j = 0; j < ATTENTION_SUMS; j++)
      if (lane + j * CUDA_WARP < e) {
        const float v = cuda_load(x + lane + j * CUDA_WARP);

#pragma unroll
        for (int k = 0; k < ATTENTION_OWN; k++)
          sum[k][j] = fmaf(w[k], v, sum[k][j]);
      }
  }
}

/* Stores factor * sum in a row of E values. */
template <typename value>
__device__ static void attention_store(const float sum[ATTENTION_SUMS], float factor, size_t e, const value *row)
{
#pragma unroll
  for (int j = 0; j < ATTENTION_SUMS; j++)
    if (threadIdx.x % CUDA_WARP + j * CUDA_WARP < e)
      cuda_store((value *)row + threadIdx.x % CUDA_WARP + j * CUDA_WARP, factor * sum[j]);
}

#define ATTENTION_LOG2E 1.44269504f

/* What backward reads of a query, made from forward's row by attention_save: (B H, attention_saved_rows). */
struct attention_saved {
  float base, dot; /* log2 of the sum of exp(score); dy . y */
};

__host__ __device__ static inline size_t attention_saved_rows(size_t t)
{
  return (t + 63) / 64 * 64;
}

/* The same by tensor cores (attention_tensor.cu). Returns false, and does nothing, if the device or the shape is not
 * one for them. */
bool attention_tensor_forward(struct trm_device *device, const struct trm_attention_forward *call);
bool attention_tensor_backward(struct trm_device *device, const struct trm_attention_backward *call,
                               const attention_saved *saved);

/* Returns whether the shape is one that this device computes, or records the failure. */
static inline bool attention_check(struct trm_device *device, const struct trm_attention *shape)
{
  if (shape->head_dim <= ATTENTION_MOST)
    return shape->b * shape->heads * shape->t * shape->head_dim > 0;
  cuda_fail(device, "attention: heads of %zu values, at most %d", shape->head_dim, (int)ATTENTION_MOST);
  return false;
}

static inline dim3 attention_grid(const struct trm_attention *shape)
{
  return dim3((unsigned)((shape->t - shape->first + ATTENTION_ROWS - 1) / ATTENTION_ROWS),
              (unsigned)(shape->b * shape->heads));
}
