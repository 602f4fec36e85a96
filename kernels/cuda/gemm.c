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

static void gemm_call(struct trm_device *device, const struct trm_gemm *call)
{
  const cudaDataType_t type_ab = gemm_type(call->type_ab), type_c = gemm_type(call->type_c);

  cuda_stream(device);
  gemm_check(device, cublasGemmEx(cuda_state_of(device)->products, call->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                  call->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)call->n, (int)call->m,
                                  (int)call->k, &call->alpha, call->b, type_ab, gemm_leading(call->ldb), call->a,
                                  type_ab, gemm_leading(call->lda), &call->beta, call->c, type_c,
                                  gemm_leading(call->ldc), gemm_compute(device, call->type_ab), CUBLAS_GEMM_DEFAULT));
}

static void gemm_round(struct trm_device *device, const void *from, void *to, size_t n)
{
  device->ops->convert(device, &(struct trm_convert){
    .from = from, .to = to, .n = n, .type_from = TRM_VALUES_F32, .type_to = TRM_VALUES_BF16});
}

/* The product of factors rounded to bfloat16, which are copied with their leading dimensions. */
static void gemm_rounded(struct trm_device *device, const struct trm_gemm *call)
{
  const size_t rows_a = call->transpose_a ? call->k : call->m, columns_a = call->transpose_a ? call->m : call->k;
  const size_t rows_b = call->transpose_b ? call->n : call->k, columns_b = call->transpose_b ? call->k : call->n;
  const size_t n_a = (rows_a - 1) * call->lda + columns_a, n_b = (rows_b - 1) * call->ldb + columns_b;
  const size_t bytes_a = (n_a * trm_value_bytes(TRM_VALUES_BF16) + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
  char *copy = cuda_scratch(device, bytes_a + n_b * trm_value_bytes(TRM_VALUES_BF16));
  struct trm_gemm product = *call;

  if (!copy)
    return;
  gemm_round(device, call->a, copy, n_a);
  gemm_round(device, call->b, copy + bytes_a, n_b);
  product.a = copy;
  product.b = copy + bytes_a;
  product.type_ab = TRM_VALUES_BF16;
  gemm_call(device, &product);
}

void cuda_gemm(struct trm_device *device, const struct trm_gemm *call)
{
  const size_t row = call->n * trm_value_bytes(call->type_c), pitch = call->ldc * trm_value_bytes(call->type_c);

  if (call->m == 0 || call->n == 0)
    return;
  if (call->k == 0 && call->beta == 0)
    cuda_check(device, (int)cudaMemset2DAsync(call->c, pitch, 0, row, call->m, cuda_stream(device)), "product");
  else if (call->k > 0 && gemm_rounds(device, call->type_ab))
    gemm_rounded(device, call);
  else
    gemm_call(device, call);
}
