/* What kernels share: value types, launches, sums within a block. Compiled by nvcc, and by the C++ compiler for the
 * emulator of the tests, which defines the same words. */
#pragma once

#include "kernels/cuda/cuda.h"

#ifdef TRM_CUDA_EMULATOR
#include "cuda/emulator.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

/* An array in shared memory, of any type, aligned to 16 bytes. */
#define CUDA_SHARED(type, name, n) __shared__ __align__(16) type name[n]
/* Starts a kernel, which is a name, of (blocks, threads) on the device's stream; not if there are no blocks. */
#define CUDA_LAUNCH(kernel, blocks, threads, device, ...)                                                             \
  do {                                                                                                                \
    const dim3 cuda_grid = (blocks);                                                                                  \
    if (cuda_grid.x > 0 && cuda_grid.y > 0 && cuda_grid.z > 0) {                                                      \
      kernel<<<cuda_grid, threads, 0, cuda_stream(device)>>>(__VA_ARGS__);                                            \
      cuda_check(device, (int)cudaGetLastError(), #kernel);                                                           \
    }                                                                                                                 \
  } while (0)
#endif

typedef __nv_bfloat16 cuda_bf16;

/* Runs a statement with `value` as the type of the call's values. */
#define CUDA_BY_TYPE(type, ...)          \
  do {                                   \
    if ((type) == TRM_VALUES_BF16) {     \
      typedef cuda_bf16 value;           \
      __VA_ARGS__;                       \
    } else {                             \
      typedef float value;               \
      __VA_ARGS__;                       \
    }                                    \
  } while (0)

__device__ inline float cuda_load(const float *x)
{
  return *x;
}

__device__ inline float cuda_load(const cuda_bf16 *x)
{
  return __bfloat162float(*x);
}

__device__ inline void cuda_store(float *x, float v)
{
  *x = v;
}

__device__ inline void cuda_store(cuda_bf16 *x, float v)
{
  *x = __float2bfloat16(v);
}

/* Values behind a pointer of a call, which are read or written as floats. */
template <typename value> struct cuda_values {
  value *at;
  __device__ explicit cuda_values(const void *memory) : at((value *)memory) {}
  __device__ float operator[](size_t i) const { return cuda_load(at + i); }
  __device__ void set(size_t i, float v) const { cuda_store(at + i, v); }
};

template <typename value> __device__ static float cuda_rounded(float x)
{
  value stored;

  cuda_store(&stored, x);
  return cuda_load(&stored);
}

/* -- elements: one thread each, in a loop where there are more than threads */

enum { CUDA_THREADS = 256, CUDA_MOST_BLOCKS = 1 << 14, CUDA_WARP = 32 };

static inline unsigned cuda_blocks(size_t n, size_t each = CUDA_THREADS)
{
  const size_t blocks = (n + each - 1) / each;

  return (unsigned)(blocks < CUDA_MOST_BLOCKS ? blocks : (size_t)CUDA_MOST_BLOCKS);
}

#define CUDA_ELEMENTS(i, n)                                                     \
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); \
       i += (size_t)gridDim.x * blockDim.x)

/* -- rows: one block each */

/* Returns the threads of a block for rows of d values: full warps. */
static inline unsigned cuda_row_threads(size_t d)
{
  const size_t warps = (d / 4 + CUDA_WARP - 1) / CUDA_WARP;

  return (unsigned)(warps < 1 ? 1 : warps > CUDA_THREADS / CUDA_WARP ? CUDA_THREADS / CUDA_WARP : warps) * CUDA_WARP;
}

struct cuda_joined_sum {
  __device__ static float start() { return 0; }
  __device__ static float join(float a, float b) { return a + b; }
};

/* Ignores NaN. */
struct cuda_joined_maximum {
  __device__ static float start() { return -INFINITY; }
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

template <typename joined> __device__ inline float cuda_warp_join(float x)
{
  for (int distance = CUDA_WARP / 2; distance > 0; distance /= 2)
    x = joined::join(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

/* Joins one number of each thread of a one-dimensional block; all threads call, and get the result. */
template <typename joined> __device__ inline float cuda_block_join(float x)
{
  CUDA_SHARED(float, part, CUDA_WARP);
  const unsigned warps = blockDim.x / CUDA_WARP;

  x = cuda_warp_join<joined>(x);
  if (warps == 1)
    return x;
  __syncthreads(); /* part has been read by the previous call */
  if (threadIdx.x % CUDA_WARP == 0)
    part[threadIdx.x / CUDA_WARP] = x;
  __syncthreads();
  return cuda_warp_join<joined>(threadIdx.x % CUDA_WARP < warps ? part[threadIdx.x % CUDA_WARP] : joined::start());
}

__device__ inline float cuda_block_sum(float x)
{
  return cuda_block_join<cuda_joined_sum>(x);
}

/* -- long sums: a pair of floats has 48 bits (Knuth's two-sum), without the processor's slow doubles */

struct cuda_pair {
  float high, low;
};

__device__ inline void cuda_pair_add(struct cuda_pair *sum, float x)
{
  const float total = sum->high + x, part = total - sum->high;

  sum->low += (sum->high - (total - part)) + (x - part);
  sum->high = total;
}

/* Infinite and NaN as they came. */
static inline __host__ __device__ float cuda_pair_value(struct cuda_pair sum)
{
  return isfinite(sum.high) ? sum.high + sum.low : sum.high;
}

/* -- invalid arguments */

/* Records that `row` has an invalid value; the smallest row is reported. */
__device__ inline void cuda_report(struct cuda_failure *failure, enum cuda_failure_kind kind, size_t row, int value,
                                   size_t limit)
{
  failure->limit[kind] = limit;
  atomicMin(&failure->first[kind], (unsigned long long)row << 32 | (unsigned)value);
}
