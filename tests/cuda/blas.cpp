/* Stands in for cuBLAS and cuBLASLt: products on the host, when the stream works (runtime.cpp). cuBLASLt has what its
 * documentation says, and wants what it says: ends the program where an array, a layout or a workspace is not as it was
 * described when the algorithm was chosen. Set by the environment:
 *   TRM_MOCK_EPILOGUES   no: cuBLASLt has no algorithm */
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda/emulator.h"

struct cublasContext {
  cudaStream_t stream;
  void *workspace; /* the caller's; NULL: of cuBLAS, which takes it when it is needed */
  unsigned mode;
};

struct cublasLtContext {
  int unused;
};

struct cublasLtMatrixLayout {
  cudaDataType_t type;
  size_t rows, columns, ld;
};

struct cublasLtMatmulDesc {
  cublasComputeType_t compute;
  cublasOperation_t op_a, op_b;
  cublasLtEpilogue_t epilogue;
  void *bias, *extra;
  int64_t extra_ld;
};

struct cublasLtMatmulPreference {
  size_t workspace;
  uint32_t reductions;
};

namespace
{

enum { GEMM_WORKSPACE = 1 << 12 };

/* One element of a product, in the order of a naive program. */
float element(const void *x, cudaDataType_t type, size_t at)
{
  return type == CUDA_R_16BF ? trm_bf16_value(((const trm_bf16 *)x)[at]) : ((const float *)x)[at];
}

/* Factors of a product, rounded as its type of computation has it; TF32 has 10 bits of mantissa. */
float rounded(float x, cublasComputeType_t compute)
{
  uint32_t bits;

  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
    return trm_bf16_value(trm_bf16_round(x));
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !std::isfinite(x))
    return x;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

/* A product by rows of floats, in the order of the terms. Column-major, as cuBLAS has it. */
struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const void *a, *b;
  void *c;
  cudaDataType_t type, type_c;
  cublasComputeType_t compute;
  bool in_parts; /* sums of parts of the terms meet in C's type, as cuBLAS may have them unless its mode says no */

  std::vector<float> unpacked(const void *x, bool transposed, size_t rows, size_t columns, size_t ld) const
  {
    std::vector<float> to(rows * columns);

    for (size_t j = 0; j < columns; j++)
      for (size_t i = 0; i < rows; i++)
        to[j * rows + i] = rounded(element(x, type, transposed ? i * ld + j : j * ld + i), compute);
    return to;
  }

  void run() const
  {
    const std::vector<float> left = unpacked(a, transpose_a, m, k, lda), right = unpacked(b, transpose_b, k, n, ldb);
    std::vector<float> sum(m);

    for (size_t j = 0; j < n; j++) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (size_t l = 0; l < k; l++)
        for (size_t i = 0; i < m; i++) {
          sum[i] += left[l * m + i] * right[j * k + l];
          if (in_parts && type_c == CUDA_R_16BF && l % 128 == 127)
            sum[i] = trm_bf16_value(trm_bf16_round(sum[i]));
        }
      for (size_t i = 0; i < m; i++) {
        const size_t at = j * ldc + i;
        const float v = alpha * sum[i];

        if (type_c == CUDA_R_16BF) /* with beta, cuBLAS on compute capability 9.0 rounds the product before the sum */
          ((trm_bf16 *)c)[at] = trm_bf16_round(
            beta == 0 ? v : trm_bf16_value(trm_bf16_round(v)) + beta * element(c, type_c, at));
        else
          ((float *)c)[at] = v + (beta == 0 ? 0 : beta * element(c, type_c, at));
      }
    }
  }
};

} // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
  *handle = new cublasContext{nullptr, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  handle->workspace = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
  if ((uintptr_t)workspace % 256 != 0 || bytes < GEMM_WORKSPACE)
    return CUBLAS_STATUS_INVALID_VALUE;
  handle->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
  handle->mode = (unsigned)mode;
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
  return status == CUBLAS_STATUS_SUCCESS ? "no error" : "invalid argument";
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType_t type_a, int lda, const void *b,
                            cudaDataType_t type_b, int ldb, const void *beta, void *c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t)
{
  const product it = {op_a == CUBLAS_OP_T, op_b == CUBLAS_OP_T, (size_t)m, (size_t)n, (size_t)k, (size_t)lda,
                      (size_t)ldb, (size_t)ldc, *(const float *)alpha, *(const float *)beta, a, b, c, type_a, type_c,
                      compute, !(handle->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)};
  const int rows_a = op_a == CUBLAS_OP_T ? k : m, rows_b = op_b == CUBLAS_OP_T ? n : k;

  if (type_a != type_b || lda < (rows_a > 1 ? rows_a : 1) || ldb < (rows_b > 1 ? rows_b : 1) || ldc < (m > 1 ? m : 1))
    return CUBLAS_STATUS_INVALID_VALUE;
  void *const workspace = handle->workspace;
  void *own = nullptr;
  if (!workspace && cudaMalloc(&own, GEMM_WORKSPACE) == cudaSuccess)
    cudaFree(own);
  emulator_queue(handle->stream, [=] {
    if (workspace)
      memset(workspace, 0xff, GEMM_WORKSPACE);
    it.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
}

/* -- cuBLASLt */

namespace
{

enum { WORKSPACE = 1 << 12, ALIGNMENT = 16 };

[[noreturn]] void misused(const char *what)
{
  fprintf(stderr, "mock of cuBLASLt: %s\n", what);
  abort();
}

void store(void *to, cudaDataType_t type, size_t at, float v)
{
  if (type == CUDA_R_16BF)
    ((trm_bf16 *)to)[at] = trm_bf16_round(v);
  else
    ((float *)to)[at] = v;
}

/* The approximation by tanh, and its derivative. */
float gelu(float x)
{
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

float gelu_slope(float x)
{
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));

  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

bool has(cublasLtEpilogue_t epilogue, int part)
{
  return (epilogue & part) == part;
}

/* A product, and what follows before it is stored. */
struct epilogue_product {
  product it;
  cublasLtEpilogue_t epilogue;
  void *bias, *extra;
  size_t extra_ld;

  void finish(size_t i, size_t j, float v) const
  {
    if (has(epilogue, CUBLASLT_EPILOGUE_BIAS))
      v += element(bias, it.type_c, i);
    if (has(epilogue, CUBLASLT_EPILOGUE_DGELU))
      v *= gelu_slope(element(extra, it.type_c, j * extra_ld + i));
    else if (has(epilogue, 128))
      store(extra, it.type_c, j * extra_ld + i, v);
    store(it.c, it.type_c, j * it.ldc + i, has(epilogue, 32) ? gelu(v) : v);
  }

  void run() const
  {
    std::vector<float> sums(it.m * it.n);
    product whole = it;

    whole.c = sums.data();
    whole.type_c = CUDA_R_32F;
    whole.ldc = it.m;
    whole.run();
    for (size_t j = 0; j < it.n; j++)
      for (size_t i = 0; i < it.m; i++)
        finish(i, j, sums[j * it.m + i]);
    for (size_t j = 0; epilogue == CUBLASLT_EPILOGUE_BGRADB && j < it.n; j++) {
      float sum = 0;

      for (size_t l = 0; l < it.k; l++)
        sum += element(it.b, it.type, it.transpose_b ? l * it.ldb + j : j * it.ldb + l);
      store(bias, it.type_c, j, sum);
    }
  }
};

/* What an algorithm was chosen for. */
cublasLtMatmulAlgo_t algorithm_of(const cublasLtMatmulDesc *desc, const cublasLtMatrixLayout *a,
                                  const cublasLtMatrixLayout *b, const cublasLtMatrixLayout *d)
{
  return {{(uint64_t)desc->compute << 32 | (uint64_t)desc->epilogue << 8 | (uint64_t)desc->op_a << 1 | desc->op_b,
           a->rows << 32 | a->columns, b->rows << 32 | b->columns, d->rows << 32 | d->columns, a->ld, b->ld, d->ld,
           (uint64_t)a->type << 32 | (uint64_t)b->type << 16 | d->type}};
}

bool is_aligned(const void *memory)
{
  return (uintptr_t)memory % ALIGNMENT == 0;
}

bool needs_extra(const cublasLtMatmulDesc *desc)
{
  return has(desc->epilogue, 128);
}

bool needs_bias(const cublasLtMatmulDesc *desc)
{
  return has(desc->epilogue, CUBLASLT_EPILOGUE_BIAS) || desc->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/* Whether cuBLASLt has such a product. */
bool exists(const cublasLtMatmulDesc *desc, const cublasLtMatrixLayout *a, const cublasLtMatrixLayout *b,
            const cublasLtMatrixLayout *d)
{
  const char *text = getenv("TRM_MOCK_EPILOGUES");
  const bool turned_a = desc->op_a == CUBLAS_OP_T, turned_b = desc->op_b == CUBLAS_OP_T;
  const size_t m = turned_a ? a->columns : a->rows, k = turned_a ? a->rows : a->columns;
  const size_t n = turned_b ? b->rows : b->columns;

  return !(text && !strcmp(text, "no")) && a->type == b->type && d->rows == m && d->columns == n &&
         k == (turned_b ? b->columns : b->rows) && (d->type == a->type || d->type == CUDA_R_32F) &&
         needs_bias(desc) == (desc->bias != nullptr) && is_aligned(desc->bias) &&
         needs_extra(desc) == (desc->extra != nullptr) && is_aligned(desc->extra) &&
         (!needs_extra(desc) || (desc->extra_ld % 8 == 0 && (size_t)desc->extra_ld >= m)) &&
         (desc->epilogue != CUBLASLT_EPILOGUE_BGRADB || (desc->op_a == CUBLAS_OP_N && desc->op_b == CUBLAS_OP_T));
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  *handle = new cublasLtContext{0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
  if (scale != CUDA_R_32F)
    return CUBLAS_STATUS_INVALID_VALUE;
  *desc = new cublasLtMatmulDesc{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
  const auto set = [=](auto *to) {
    if (bytes != sizeof *to)
      return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };

  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return set(&desc->op_a);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return set(&desc->op_b);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return set(&desc->epilogue);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return set(&desc->bias);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return set(&desc->extra);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return set(&desc->extra_ld);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
  if (rows == 0 || columns == 0 || ld < (int64_t)rows)
    return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayout{type, rows, columns, (size_t)ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
  *preference = new cublasLtMatmulPreference{0, 7};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
  const bool is_workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  uint32_t alignment = 0;

  if (bytes != (is_workspace ? sizeof preference->workspace : sizeof alignment))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_workspace)
    memcpy(&preference->workspace, value, bytes);
  else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    memcpy(&preference->reductions, value, bytes);
  else
    memcpy(&alignment, value, bytes);
  return alignment == 0 || alignment == ALIGNMENT ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t *results, int *found)
{
  *found = 0;
  if (requested < 1 || c != d || !exists(desc, a, b, d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (preference->reductions & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    misused("sums of parts of a product may meet in the output's type");
  *results = {algorithm_of(desc, a, b, d), std::min(preference->workspace, (size_t)WORKSPACE), CUBLAS_STATUS_SUCCESS, 1,
              {0}};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t bytes, cudaStream_t stream)
{
  const cublasLtMatmulAlgo_t wanted = algorithm_of(desc, a_layout, b_layout, d_layout);
  const size_t k = desc->op_a == CUBLAS_OP_T ? a_layout->rows : a_layout->columns;
  const epilogue_product work = {{desc->op_a == CUBLAS_OP_T, desc->op_b == CUBLAS_OP_T, d_layout->rows,
                                  d_layout->columns, k, a_layout->ld, b_layout->ld, d_layout->ld,
                                  *(const float *)alpha, *(const float *)beta, a, b, d, a_layout->type, d_layout->type,
                                  desc->compute, false},
                                 desc->epilogue, desc->bias, desc->extra, (size_t)desc->extra_ld};

  if (memcmp(&wanted, algorithm, sizeof wanted) != 0)
    misused("an algorithm for another product");
  if (!exists(desc, a_layout, b_layout, d_layout) || c != d || c_layout != d_layout || *(const float *)beta != 0)
    misused("a product that there is not");
  if (!is_aligned(a) || !is_aligned(b) || !is_aligned(d))
    misused("an array that is not aligned");
  if ((needs_extra(desc) && desc->extra == d) || a == d || b == d)
    misused("an array that is read while it is written");
  emulator_queue(stream, [=] {
    if (workspace)
      memset(workspace, 0xff, std::min(bytes, (size_t)WORKSPACE));
    work.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
}
