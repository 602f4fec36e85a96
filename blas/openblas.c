/* Matrix products by any library with the C interface (cblas.h); what only OpenBLAS has is used where it is there.
 *
 * The library computes with one thread; the threads are ours: C is cut into a grid of blocks, a block a thread. So the
 * products run in the same threads as the kernels, whichever way the library makes its own (OpenBLAS built with
 * pthreads keeps a second set, and the two fight for the cores), and every element of C is summed in the same order
 * whatever the number of threads (OpenBLAS by itself sums a long k in other pieces when it has several). */
#include <cblas.h>
#include <limits.h>
#include <stdio.h>

#include "blas/blas.h"
#include "core/comm.h"
#include "core/log.h"
#include "core/status.h"

/* Blocks are cut at whole steps of the micro-kernels. */
#define STEP 16
/* Fewest multiply-adds of one block: twice the size up to which OpenBLAS takes its kernels for small products, whose
 * sums come out differently (a cut must not lead there); also some 20 us of work, worth waking a thread. */
#define BLOCK_LEAST ((size_t)1 << 21)
/* A row or column of a block costs about as much to pack as this many elements of it to compute. */
#define PACKING 8

#ifdef HAVE_OPENBLAS
#define BLAS_NAME "openblas"
#else
#define BLAS_NAME "cblas"
#endif

static int blas_threads = 1;

static const char *blas_detail(void)
{
#ifdef HAVE_OPENBLAS
  static char text[160];

  snprintf(text, sizeof(text), "%s, core %s", openblas_get_config(), openblas_get_corename());
  return text;
#else
  return "CBLAS";
#endif
}

static int blas_open(int threads)
{
  if (threads < 1)
    return trm_error(TRM_USAGE, BLAS_NAME ": %d threads make no sense", threads);
  blas_threads = threads;
#ifdef HAVE_OPENBLAS
  openblas_set_num_threads(1);
#endif
  return TRM_OK;
}

struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k;
  float alpha, beta;
  const float *a, *b;
  float *c;
  size_t lda, ldb, ldc;
};

/* C = beta * C, for products without a term: the library refuses a leading dimension of zero. */
static void scale_matrix(const struct product *p)
{
  for (size_t i = 0; i < p->m; i++)
    for (size_t j = 0; j < p->n; j++)
      p->c[i * p->ldc + j] = p->beta == 0 ? 0 : p->beta * p->c[i * p->ldc + j];
}

/* Rows [top, bottom) and columns [left, right) of C. */
static void multiply_block(const struct product *p, size_t top, size_t bottom, size_t left, size_t right)
{
  cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans,
              (int)(bottom - top), (int)(right - left), (int)p->k, p->alpha,
              p->a + (p->transpose_a ? top : top * p->lda), (int)p->lda,
              p->b + (p->transpose_b ? left * p->ldb : left), (int)p->ldb, p->beta, p->c + top * p->ldc + left,
              (int)p->ldc);
}

/* Part `index` of `parts` of n rows or columns, in whole steps; the last one takes what is left over. */
static void cut(size_t n, size_t parts, size_t index, size_t *low, size_t *high)
{
  trm_interval(n / STEP, parts, index, low, high);
  *low *= STEP;
  *high = index == parts - 1 ? n : *high * STEP;
}

/* Extents of the smallest and of the largest part. */
static size_t part_least(size_t n, size_t parts)
{
  return parts == 1 ? n : n / STEP / parts * STEP;
}

static size_t part_most(size_t n, size_t parts)
{
  return parts == 1 ? n : (n / STEP + parts - 1) / parts * STEP + n % STEP;
}

/* The grid of at most blas_threads blocks whose largest is done first; 1 x 1 if the product is too small to cut. */
static void choose_grid(const struct product *p, size_t *rows, size_t *columns)
{
  const size_t threads = (size_t)blas_threads;
  double best = 0;

  *rows = *columns = 1;
  for (size_t r = 1; r <= threads; r++)
    for (size_t c = 1; c <= threads / r; c++) {
      const double height = (double)part_most(p->m, r), width = (double)part_most(p->n, c);
      const double cost = height * width + PACKING * (height + width);
      const size_t least = part_least(p->m, r) * part_least(p->n, c) * p->k;

      if ((r > 1 || c > 1) && (least < BLOCK_LEAST || cost >= best))
        continue;
      best = cost;
      *rows = r;
      *columns = c;
    }
}

static void multiply(const struct product *p)
{
  size_t rows, columns;

  choose_grid(p, &rows, &columns);
  if (rows * columns == 1) {
    multiply_block(p, 0, p->m, 0, p->n);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads((int)(rows * columns)) schedule(static)
#endif
  for (size_t block = 0; block < rows * columns; block++) {
    size_t top, bottom, left, right;

    cut(p->m, rows, block / columns, &top, &bottom);
    cut(p->n, columns, block % columns, &left, &right);
    multiply_block(p, top, bottom, left, right);
  }
}

static void blas_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                      size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
  const struct product p = {transpose_a, transpose_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc};

  if (m == 0 || n == 0)
    return;
  if (k == 0) {
    scale_matrix(&p);
    return;
  }
  if (m > INT_MAX || n > INT_MAX || k > INT_MAX || lda > INT_MAX || ldb > INT_MAX || ldc > INT_MAX) {
    trm_error(TRM_FAILED, BLAS_NAME ": a product (%zu, %zu) x (%zu, %zu) is too large for the library's integers", m, k,
              k, n);
    trm_log_error();
    trm_abort(TRM_FAILED);
  }
  multiply(&p);
}

const struct trm_blas_ops trm_blas_openblas = {
  .name = BLAS_NAME,
  .detail = blas_detail,
  .open = blas_open,
  .gemm = blas_gemm,
};
