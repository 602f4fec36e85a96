/* The types of matrix products for cuBLAS and cuBLASLt (private to kernels/cuda). Their matrices are column-major: a
 * row-major C = A B is C^T = B^T A^T. */
#pragma once

#include <cublas_v2.h>

#include "kernels/cuda/cuda.h"

static inline cudaDataType_t gemm_type(enum trm_value_type type)
{
  return type == TRM_VALUES_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Returns whether products round their factors to bfloat16 (device.matmul). cuBLAS' own mode for it
 * (CUBLAS_COMPUTE_32F_FAST_16BF) keeps more bits where that is faster; rounded copies have one result. */
static inline bool gemm_rounds(const struct trm_device *device, enum trm_value_type type)
{
  return type == TRM_VALUES_F32 && device->matmul == TRM_MATMUL_BF16;
}

/* The type of products by device.matmul; bfloat16 factors are exact in float32 sums. */
static inline cublasComputeType_t gemm_compute(const struct trm_device *device, enum trm_value_type type)
{
  return type == TRM_VALUES_F32 && device->matmul == TRM_MATMUL_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}
