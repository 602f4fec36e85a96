/* Matrix products by any library with the C interface (cblas.h), and OpenBLAS' extensions where present. The library
 * uses one thread; product.h divides products among threads. */
#include <cblas.h>
#include <limits.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdio.h>
#include <string.h>

#include "blas/blas.h"
#include "blas/product.h"
#include "core/log.h"
#include "core/memory.h"
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
static struct product_limits blas_limits = {1, BLOCK_MIN_WORK, 1, 0, 0};

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

#ifdef HAVE_OPENBLAS
static const char *openblas_core(void)
{
  return openblas_get_corename();
}
#else
#define openblas_core NULL
#endif

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

static void openblas_multiply_block(const struct trm_gemm *p, const struct block *block)
{
  cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans,
              (int)(block->bottom - block->top), (int)(block->right - block->left), (int)p->k, p->alpha,
              block_a(p, block), (int)p->lda, block_b(p, block), (int)p->ldb, p->beta, block_c(p, block), (int)p->ldc);
}

/* -- where blocks may begin. The order of a sum may depend on the place of its element in C: OpenBLAS' kernels for AVX2
 * add the first eight columns of the first six rows of twelve, and the last eight of the other six, in another order
 * than the rest. A product is computed whole and in two parts, to see whether the parts have the same bits. */

/* The parts of this product are not small ones, either. */
enum { TRIAL_M = 100, TRIAL_N = 200, TRIAL_K = 256, TRIAL_SIZE = TRIAL_K * TRIAL_N };

static void openblas_trial(const float *ab, const struct block *block, float *c)
{
  openblas_multiply_block(&(struct trm_gemm){.m = TRIAL_M, .n = TRIAL_N, .k = TRIAL_K, .alpha = 1, .a = ab,
                                             .lda = TRIAL_K, .b = ab, .ldb = TRIAL_N, .c = c, .ldc = TRIAL_N},
                          block);
}

/* Returns true if the parts of C before and from (top, left), one of which is 0, have the bits of the whole. */
static bool openblas_may_begin_at(const float *ab, const float *whole, size_t top, size_t left, float *c)
{
  openblas_trial(ab, &(struct block){0, top ? top : TRIAL_M, 0, left ? left : TRIAL_N}, c);
  openblas_trial(ab, &(struct block){top, TRIAL_M, left, TRIAL_N}, c);
  return memcmp(whole, c, TRIAL_M * TRIAL_N * sizeof *c) == 0;
}

static void openblas_find_steps(int threads)
{
  static const size_t step[] = {16, 12};
  float *ab = trm_alloc((TRIAL_SIZE + 2 * TRIAL_M * TRIAL_N) * sizeof *ab, "a trial product");
  float *whole = ab + TRIAL_SIZE, *c = whole + TRIAL_M * TRIAL_N;

  for (size_t i = 0; i < TRIAL_SIZE; i++)
    ab[i] = 1 / (float)(i % 1009 + 1);
  openblas_trial(ab, &(struct block){0, TRIAL_M, 0, TRIAL_N}, whole);
  blas_limits = (struct product_limits){(size_t)threads, BLOCK_MIN_WORK, 1, 0, 0};
  for (size_t i = 0; i < sizeof step / sizeof *step && !blas_limits.row_step; i++) {
    if (openblas_may_begin_at(ab, whole, 4 * step[i], 0, c))
      blas_limits.row_step = step[i];
    if (openblas_may_begin_at(ab, whole, 0, 4 * step[i], c))
      blas_limits.column_step = step[i];
  }
  trm_free(ab);
}

/* An OpenBLAS that is older than the processor does not know it, and takes kernels for any processor, which are several
 * times slower. */
static void openblas_report_old_kernels(void)
{
#if defined(HAVE_OPENBLAS) && defined(__x86_64__)
  const char *const core = openblas_get_corename();

  if (__builtin_cpu_supports("avx2") && trm_blas_core_vectors(core) == TRM_VECTORS_OLD)
    trm_info("OpenBLAS computes with its kernels for %s, without AVX2, which this processor has: "
             "OPENBLAS_CORETYPE=%s in the environment names faster ones", core,
             __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell");
#endif
}

static int openblas_open(int threads)
{
  if (threads < 1)
    return trm_error(TRM_USAGE, "device.blas=" BLAS_NAME ": threads must be at least 1, not %d", threads);
  openblas_report_old_kernels();
  blas_threads = threads;
#ifdef HAVE_OPENBLAS
  openblas_set_num_threads(1);
#endif
  if (threads > 1)
    openblas_find_steps(threads);
  return TRM_OK;
}

static void openblas_gemm(const struct trm_gemm *p)
{
  if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX || p->ldc > INT_MAX)
    trm_abort_on_error(
      trm_error(TRM_FAILED, BLAS_NAME ": a product (%zu, %zu) x (%zu, %zu) is too large for the library's integers",
                p->m, p->k, p->k, p->n));
  openblas_keep_to_one_thread();
  product_run_widened(p, &blas_limits, blas_threads, openblas_multiply_block);
}

const struct trm_blas_ops trm_blas_openblas = {
  .name = BLAS_NAME,
  .matmul = TRM_MATMUL_F32,
  .detail = openblas_detail,
  .core = openblas_core,
  .open = openblas_open,
  .gemm = openblas_gemm,
};
