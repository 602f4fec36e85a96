/* Products in float32 by two libraries, each where it is faster: small ones by OpenBLAS, whose calls cost less, and
 * others by oneDNN (README.md has rates). Where both use AVX-512. */
#include <stdio.h>

#include "blas/blas.h"
#include "core/status.h"

/* Multiply-adds of a row of C from which oneDNN is faster. Those of all rows do not count, so that a part of C's rows
 * has the bits of the whole (nn/layers/linear.c). */
enum { LARGE = 1 << 13 };

static const char *by_size_core(void)
{
  return trm_blas_openblas.core ? trm_blas_openblas.core() : "";
}

/* Kernels that OPENBLAS_CORETYPE names for a processor without AVX-512 are to give that processor's bits. */
static bool by_size_supported(void)
{
  return trm_blas_core_vectors(by_size_core()) == TRM_VECTORS_AVX512 && trm_blas_onednn.supported();
}

static const char *by_size_detail(void)
{
  static char text[256];

  snprintf(text, sizeof text, "%s; large products: %s", trm_blas_openblas.detail(), trm_blas_onednn.detail());
  return text;
}

static int by_size_open(int threads)
{
  if (!by_size_supported())
    return trm_error(TRM_FAILED, "device.blas=%s: not both libraries use AVX-512 here", trm_blas_by_size.name);
  TRM_CHECK(trm_blas_openblas.open(threads));
  return trm_blas_onednn.open(threads);
}

static void by_size_gemm(const struct trm_gemm *p)
{
  (p->n * p->k < LARGE ? &trm_blas_openblas : &trm_blas_onednn)->gemm(p);
}

const struct trm_blas_ops trm_blas_by_size = {
  .name = "openblas+onednn",
  .matmul = TRM_MATMUL_F32,
  .supported = by_size_supported,
  .detail = by_size_detail,
  .core = by_size_core,
  .open = by_size_open,
  .gemm = by_size_gemm,
};
