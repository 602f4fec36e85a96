/* One product as the libraries share it, and its division among our threads. Private to blas.
 *
 * The libraries compute with one thread; the threads are ours: C is cut into a grid of blocks, one for each
 * thread. So products run in the same threads as the kernels (OpenBLAS built with pthreads would keep a second set that
 * competes for the cores), and every element of C is summed in the same order with any number of threads (OpenBLAS with
 * several threads divides a long k differently). */
#pragma once

#include "core/device.h"

/* Rows [top, bottom) and columns [left, right) of C, not empty. */
struct block {
  size_t top, bottom, left, right;
};

/* Returns where A has the block's rows, B its columns, and C the block. */
static inline const void *block_a(const struct trm_gemm *p, const struct block *block)
{
  return (const char *)p->a + (p->transpose_a ? block->top : block->top * p->lda) * trm_value_bytes(p->type_ab);
}

static inline const void *block_b(const struct trm_gemm *p, const struct block *block)
{
  return (const char *)p->b + (p->transpose_b ? block->left * p->ldb : block->left) * trm_value_bytes(p->type_ab);
}

static inline void *block_c(const struct trm_gemm *p, const struct block *block)
{
  return (char *)p->c + (block->top * p->ldc + block->left) * trm_value_bytes(p->type_c);
}

/* Computes one block; several threads call it at once. */
typedef void product_block(const struct trm_gemm *p, const struct block *block);

/* Block sizes of C. */
struct product_limits {
  size_t max_blocks;   /* blocks */
  size_t min_work;     /* multiply-adds of a block */
  double part_of_rows; /* cost of a block of parts of C's rows, relative to one of whole rows, of the same size */
  size_t row_step, column_step; /* blocks begin at multiples of these rows and columns of C; 0: at the first alone */
};

/* C = beta * C, a product with k = 0: libraries refuse a leading dimension of 0. */
void product_scale_c(const struct trm_gemm *p);

/* Returns at least `bytes` of the calling thread's memory for this use, valid until its next call for it. */
enum product_use { PRODUCT_FACTORS, PRODUCT_SUMS, PRODUCT_USES };
void *product_memory(enum product_use use, size_t bytes);

/* Computes a product with up to `threads` threads; inside a parallel loop with the calling thread. In a block k is at
 * least 1: products with k = 0 are computed here. */
void product_run(const struct trm_gemm *p, const struct product_limits *limits, int threads, product_block *compute);

/* The same of a block function that knows float32 alone: bfloat16 arrays are widened to memory of the call, and C is
 * rounded from there. */
void product_run_widened(const struct trm_gemm *p, const struct product_limits *limits, int threads,
                         product_block *compute);
