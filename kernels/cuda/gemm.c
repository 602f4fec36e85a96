/* Matrix products by cuBLAS. */
#include "kernels/cuda/gemm.h"

#include <cuda_runtime_api.h>

static void gemm_check(const struct trm_device *device, cublasStatus_t status)
{
  if (status != CUBLAS_STATUS_SUCCESS)
    cuda_fail(device, "GPU %d: product: %s", cuda_state_of(device)->index, cublasGetStatusString(status));
}

/* Returns a leading dimension that cuBLAS accepts for a matrix without elements. */
static int gemm_leading(size_t ld)
{
  return ld > 0 ? (int)ld : 1;
}

void cuda_gemm(struct trm_device *device, const struct trm_gemm *call)
{
  const cudaDataType_t type_ab = gemm_type(call->type_ab), type_c = gemm_type(call->type_c);
  const size_t row = call->n * trm_value_bytes(call->type_c), pitch = call->ldc * trm_value_bytes(call->type_c);
  struct CUstream_st *stream = cuda_stream(device);

  if (call->m == 0 || call->n == 0)
    return;
  if (call->k == 0 && call->beta == 0) {
    cuda_check(device, (int)cudaMemset2DAsync(call->c, pitch, 0, row, call->m, stream), "product");
    return;
  }
  gemm_check(device, cublasGemmEx(cuda_state_of(device)->products, call->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                  call->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)call->n, (int)call->m,
                                  (int)call->k, &call->alpha, call->b, type_ab, gemm_leading(call->ldb), call->a,
                                  type_ab, gemm_leading(call->lda), &call->beta, call->c, type_c,
                                  gemm_leading(call->ldc), gemm_compute(device, call->type_ab), CUBLAS_GEMM_DEFAULT));
}
