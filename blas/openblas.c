/* Matrix products by any library with the C interface (cblas.h); what only OpenBLAS has is used where it is there. */
#include <cblas.h>
#include <limits.h>
#include <stdio.h>

#include "blas/blas.h"
#include "core/log.h"
#include "core/status.h"

/* OpenBLAS cuts k into panels of a length that depends on the core type (256 to 640 for float) and, for the last panels
 * of a longer k, on the number of threads: the sums are then rounded differently with one thread and with two. Products
 * of at most PANEL terms are a single panel everywhere, so longer ones are handed over in pieces; the library reads and
 * writes C once a panel either way. Measured: equal bits for 1, 2 and 3 threads, 1 to 2 % slower for k over 256. */
#define PANEL 256
#define PANEL_STEP 16 /* pieces are whole unrolled steps of the micro-kernels */

#ifdef HAVE_OPENBLAS
#define BLAS_NAME "openblas"
#else
#define BLAS_NAME "cblas"
#endif

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
#ifdef HAVE_OPENBLAS
  openblas_set_num_threads(threads);
#endif
  return TRM_OK;
}

/* C = beta * C, for products without a term: the library refuses a leading dimension of zero. */
static void scale_matrix(size_t m, size_t n, float beta, float *c, size_t ldc)
{
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++)
      c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

static void blas_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                      size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
  const size_t panels = (k + PANEL - 1) / PANEL;

  if (m == 0 || n == 0)
    return;
  if (k == 0) {
    scale_matrix(m, n, beta, c, ldc);
    return;
  }
  if (m > INT_MAX || n > INT_MAX || lda > INT_MAX || ldb > INT_MAX || ldc > INT_MAX) {
    trm_error(TRM_FAILED, BLAS_NAME ": a product (%zu, %zu) x (%zu, %zu) is too large for the library's integers", m, k,
              k, n);
    trm_log_error();
    trm_abort(TRM_FAILED);
  }
  for (size_t p = 0, low = 0; p < panels; p++) {
    const size_t cut = (k * (p + 1) / panels + PANEL_STEP - 1) / PANEL_STEP * PANEL_STEP;
    const size_t high = p == panels - 1 ? k : cut;

    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, (int)m,
                (int)n, (int)(high - low), alpha, a + (transpose_a ? low * lda : low), (int)lda,
                b + (transpose_b ? low : low * ldb), (int)ldb, p == 0 ? beta : 1, c, (int)ldc);
    low = high;
  }
}

#ifdef HAVE_OPENBLAS
/* The build with threads of its own would start them for each caller; the one with OpenMP sees the region by itself. */
static void blas_within(bool region)
{
  static int threads;

  if (openblas_get_parallel() != 1)
    return;
  if (region)
    threads = openblas_get_num_threads();
  openblas_set_num_threads(region ? 1 : threads);
}
#endif

const struct trm_blas_ops trm_blas_openblas = {
  .name = BLAS_NAME,
  .detail = blas_detail,
  .open = blas_open,
  .gemm = blas_gemm,
#ifdef HAVE_OPENBLAS
  .within = blas_within,
#endif
};
