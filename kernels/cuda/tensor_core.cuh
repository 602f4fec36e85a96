/* Tensor cores: products of 16 x 16 matrices of bfloat16 with sums in float32, made by the 32 lanes of a warp together,
 * and copies from device memory to shared memory beside the computation. Compute capability 8.0 and later.
 *
 * Three instructions of PTX are wrapped; the emulator of the tests has the same functions. The layout of a matrix in
 * the lanes' registers is theirs (PTX ISA, "Matrix Fragments for mma.m16n8k16"), with g = lane / 4, p = lane % 4:
 *   left factor (row, k)     pair[j]: row g + 8 * (j % 2), k 2p and 2p + 1, + 8 * (j / 2)
 *   right factor (k, column) pair[j]: k 2p and 2p + 1, + 8 * (j % 2), column g + 8 * (j / 2)
 *   sum (row, column)        at[i]: row tensor_row(i), column tensor_column(i)
 * A sum's layout is that of a left factor, so that a result becomes a factor without leaving its registers. */
#pragma once

#include "kernels/cuda/kernel.cuh"

enum { TENSOR_SIDE = 16, TENSOR_PIECE = 8 /* values of a copy: 16 bytes */ };

struct tensor_factor {
  uint32_t pair[4]; /* of values, the one of the smaller index in the lower half */
};

struct tensor_sum {
  float at[8];
};

#ifdef TRM_CUDA_EMULATOR
#include "cuda/emulator_tensor.h"
#else

/* Whether this code is compiled for a processor that has the instructions. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TENSOR_CORES 0
#else
#define TENSOR_CORES 1
#endif

/* Whether the device has them. */
static inline bool tensor_cores(const struct trm_device *device)
{
  int major = 0;

  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_state_of(device)->index) ==
           cudaSuccess && major >= 8;
}

#if TENSOR_CORES

/* Loads four matrices of 8 x 8 values in shared memory: lane 8 j + i says where row i of matrix j is (16 bytes,
 * aligned), and pair[j] becomes row g, columns 2p and 2p + 1 of matrix j; transposed: rows 2p and 2p + 1, column g. */
template <bool transposed> __device__ inline tensor_factor tensor_load(const cuda_bf16 *row)
{
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  tensor_factor x;

  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.pair[0]), "=r"(x.pair[1]), "=r"(x.pair[2]), "=r"(x.pair[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.pair[0]), "=r"(x.pair[1]), "=r"(x.pair[2]), "=r"(x.pair[3]) : "r"(at) : "memory");
  return x;
}

/* sum (16, 8) += a (16, 16) * b (16, 8) */
__device__ inline void tensor_multiply_half(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Begins to copy 16 bytes (aligned) to shared memory; not inside: zeros, and `from` is not read. */
__device__ inline void tensor_copy(void *to, const void *from, bool inside)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

/* Ends a group of this thread's copies. */
__device__ inline void tensor_copies_end()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups of this thread but the latest `but`. Other threads see the values after a barrier. */
template <int but> __device__ inline void tensor_copies_wait()
{
  asm volatile("cp.async.wait_group %0;" :: "n"(but) : "memory");
}

/* 2^x, with an error of 2^-22; 0 where that is below float32's normal numbers. */
__device__ inline float tensor_exp2(float x)
{
  float y;

  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
#endif

__device__ inline unsigned tensor_lane()
{
  return threadIdx.x % CUDA_WARP;
}

__device__ inline int tensor_row(int i)
{
  return (int)tensor_lane() / 4 + 8 * (i / 2 % 2);
}

__device__ inline int tensor_column(int i)
{
  return (int)tensor_lane() % 4 * 2 + i % 2 + 8 * (i / 4);
}

__device__ inline uint32_t tensor_pair(float low, float high)
{
  const cuda_bf16 pair[2] = {__float2bfloat16(low), __float2bfloat16(high)};
  uint32_t word;

  memcpy(&word, pair, sizeof word);
  return word;
}

#if TENSOR_CORES

/* The left factor (row, k) from at[row * pitch + k]. */
__device__ inline tensor_factor tensor_load_left(const cuda_bf16 *at, int pitch)
{
  return tensor_load<false>(at + tensor_lane() % 16 * pitch + tensor_lane() / 16 * 8);
}

/* The right factor (k, column) from at[k * pitch + column]. */
__device__ inline tensor_factor tensor_load_right(const cuda_bf16 *at, int pitch)
{
  return tensor_load<true>(at + tensor_lane() % 16 * pitch + tensor_lane() / 16 * 8);
}

/* The right factor (k, column) from at[column * pitch + k]. */
__device__ inline tensor_factor tensor_load_right_transposed(const cuda_bf16 *at, int pitch)
{
  return tensor_load<false>(at + (tensor_lane() % 8 + tensor_lane() / 16 * 8) * pitch + tensor_lane() / 8 % 2 * 8);
}

/* sum += left * right */
__device__ inline void tensor_multiply(tensor_sum *sum, const tensor_factor &left, const tensor_factor &right)
{
  tensor_multiply_half(sum->at, left.pair, right.pair);
  tensor_multiply_half(sum->at + 4, left.pair, right.pair + 2);
}

/* The sum, rounded, as a left factor. */
__device__ inline tensor_factor tensor_round(const tensor_sum &sum)
{
  tensor_factor x;

#pragma unroll
  for (int j = 0; j < 4; j++)
    x.pair[j] = tensor_pair(sum.at[2 * j], sum.at[2 * j + 1]);
  return x;
}

#endif
