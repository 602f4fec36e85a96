/* One product as the libraries share it, and its division among our threads. Private to blas.
 *
 * The libraries compute with one thread; the threads are ours: C is cut into a grid of blocks, one for each
 * thread. So products run in the same threads as the kernels (OpenBLAS built with pthreads would keep a second set that
 * competes for the cores), and every element of C is summed in the same order with any number of threads (OpenBLAS with
 * several threads divides a long k differently). */
#pragma once

#include "core/device.h"

/* C (m, n) = alpha op(A) op(B) + beta C, row-major; a and b are of the type that the block function knows. */
struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k;
  float alpha, beta;
  const void *a, *b;
  float *c;
  size_t lda, ldb, ldc;
};

static inline struct product product_of(const struct trm_gemm *it)
{
  return (struct product){it->transpose_a, it->transpose_b, it->m, it->n, it->k, it->alpha, it->beta, it->a, it->b,
                          it->c, it->lda, it->ldb, it->ldc};
}

/* Rows [top, bottom) and columns [left, right) of C, not empty. */
struct block {
  size_t top, bottom, left, right;
};

/* Offset in A of the block's rows, and in B of its columns, in elements. */
static inline size_t block_a(const struct product *p, const struct block *block)
{
  return p->transpose_a ? block->top : block->top * p->lda;
}

static inline size_t block_b(const struct product *p, const struct block *block)
{
  return p->transpose_b ? block->left * p->ldb : block->left;
}

/* Computes one block. thread: a number below `threads`, different in concurrent calls. */
typedef void product_block(const struct product *p, const struct block *block, int thread);

/* Block sizes of C. */
struct product_limits {
  size_t max_blocks;  /* blocks */
  size_t min_work; /* multiply-adds of a block */
};

/* Computes a product with up to `threads` threads; inside a parallel region with the calling thread. In a block k is at
 * least 1: products with k = 0 are computed here. */
void product_run(const struct product *p, const struct product_limits *limits, int threads, product_block *compute);

/* Returns the number of this thread in its parallel region, 0 outside of one. */
int product_thread(void);
