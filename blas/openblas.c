/* Matrix products by any library with the C interface (cblas.h), and OpenBLAS' extensions where present. The library
 * uses one thread; product.h divides products among threads. */
#include <cblas.h>
#include <limits.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdio.h>

#include "blas/blas.h"
#include "blas/product.h"
#include "core/log.h"
#include "core/status.h"

/* Minimum multiply-adds per block: twice the size below which OpenBLAS uses kernels for small products, which round
 * differently; about 20 us of work, enough to wake a thread for. */
#define BLOCK_MIN_WORK ((size_t)1 << 21)

#ifdef HAVE_OPENBLAS
#define BLAS_NAME "openblas"
#else
#define BLAS_NAME "cblas"
#endif

static int blas_threads = 1;

static const char *openblas_detail(void)
{
#ifdef HAVE_OPENBLAS
  static char text[160];

  snprintf(text, sizeof(text), "%s, core %s", openblas_get_config(), openblas_get_corename());
  return text;
#else
  return "CBLAS";
#endif
}

static int openblas_open(int threads)
{
  if (threads < 1)
    return trm_error(TRM_USAGE, "device.blas=" BLAS_NAME ": threads must be at least 1, not %d", threads);
  blas_threads = threads;
#ifdef HAVE_OPENBLAS
  openblas_set_num_threads(1);
#endif
  return TRM_OK;
}

/* An OpenBLAS made with OpenMP takes as many threads as a parallel region of the calling thread would: in each thread
 * that the program starts a default, whatever openblas_set_num_threads set in another. */
static void openblas_keep_to_one_thread(void)
{
#ifdef _OPENMP
  static _Thread_local bool set;
  if (!set)
    omp_set_num_threads(1);
  set = true;
#endif
}

static void openblas_multiply_block(const struct trm_gemm *p, const struct block *block, int thread)
{
  (void)thread;
  cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans,
              (int)(block->bottom - block->top), (int)(block->right - block->left), (int)p->k, p->alpha,
              block_a(p, block), (int)p->lda, block_b(p, block), (int)p->ldb, p->beta, block_c(p, block), (int)p->ldc);
}

static void openblas_gemm(const struct trm_gemm *p)
{
  if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX || p->ldc > INT_MAX)
    trm_abort_on_error(
      trm_error(TRM_FAILED, BLAS_NAME ": a product (%zu, %zu) x (%zu, %zu) is too large for the library's integers",
                p->m, p->k, p->k, p->n));
  const struct product_limits limits = {(size_t)blas_threads, BLOCK_MIN_WORK, 1};
  openblas_keep_to_one_thread();
  product_run_widened(p, &limits, blas_threads, openblas_multiply_block);
}

const struct trm_blas_ops trm_blas_openblas = {
  .name = BLAS_NAME,
  .matmul = TRM_MATMUL_F32,
  .detail = openblas_detail,
  .open = openblas_open,
  .gemm = openblas_gemm,
};
