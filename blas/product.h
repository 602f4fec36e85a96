/* One product as the libraries share it, and its division among our threads. Private to blas.
 *
 * The libraries compute with one thread; the threads are ours: C is cut into a grid of blocks, a block a thread. So the
 * products run in the same threads as the kernels, whichever way a library makes its own (OpenBLAS built with pthreads
 * keeps a second set, and the two fight for the cores), and every element of C is summed in the same order whatever the
 * number of threads (OpenBLAS by itself sums a long k in other pieces when it has several). */
#ifndef TRM_BLAS_PRODUCT_H
#define TRM_BLAS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

/* C (m, n) = alpha op(A) op(B) + beta C, row-major; a and b are of the type that the block function knows. */
struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k;
  float alpha, beta;
  const void *a, *b;
  float *c;
  size_t lda, ldb, ldc;
};

/* Rows [top, bottom) and columns [left, right) of C, none of them empty. */
struct block {
  size_t top, bottom, left, right;
};

/* Elements from the begin of A to that of the block's rows, and from the begin of B to that of its columns. */
static inline size_t block_a(const struct product *p, const struct block *block)
{
  return p->transpose_a ? block->top : block->top * p->lda;
}

static inline size_t block_b(const struct product *p, const struct block *block)
{
  return p->transpose_b ? block->left * p->ldb : block->left;
}

/* Computes one block. thread: its number, below `threads`; calls at the same time have different ones. */
typedef void product_block(const struct product *p, const struct block *block, int thread);

/* Block sizes of C. */
struct product_limits {
  size_t max_blocks;  /* blocks */
  size_t min_work; /* multiply-adds of a block */
};

/* The whole product by up to `threads` threads; inside of a parallel region by the thread that calls. Products of
 * nothing are done here: k is at least 1 in a block. */
void product_run(const struct product *p, const struct product_limits *limits, int threads, product_block *compute);

/* The number of this thread in the region at hand, 0 outside of one. */
int product_thread(void);

#endif
