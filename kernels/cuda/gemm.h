/* The types of matrix products for cuBLAS and cuBLASLt (private to kernels/cuda). Their matrices are column-major: a
 * row-major C = A B is C^T = B^T A^T. */
#pragma once

#include <cublas_v2.h>

#include "kernels/cuda/cuda.h"

static inline cudaDataType_t gemm_type(enum trm_value_type type)
{
  return type == TRM_VALUES_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The type of products of float32 factors, by device.matmul; bfloat16 factors are exact in float32 sums. */
static inline cublasComputeType_t gemm_compute(const struct trm_device *device, enum trm_value_type type)
{
  if (type == TRM_VALUES_BF16 || device->matmul == TRM_MATMUL_F32)
    return CUBLAS_COMPUTE_32F;
  return device->matmul == TRM_MATMUL_BF16 ? CUBLAS_COMPUTE_32F_FAST_16BF : CUBLAS_COMPUTE_32F_FAST_TF32;
}
