/* Linear layers by cuBLASLt, whose products add the bias, apply GELU or its gradient, and sum the bias' gradient,
 * before they store. It has no such product for every type, shape and alignment, and none of rounded factors; then the
 * call is composed of others.
 * Its bias has the type of the values. Relu is always a call of its own: max(x, 0) may make zeros of NaN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "kernels/composed_kernels.h"
#include "kernels/cuda/gemm.h"

enum {
  LINEAR_ALIGNMENT = 16,       /* of arrays, in bytes: that of the widest loads */
  LINEAR_AUX_UNIT = 8,         /* leading dimension of GELU's input, in elements */
  LINEAR_PLANS = 256,
};

/* D (m, n) = op(A) (m, k) op(B) (k, n), column-major, and what follows. One type of integer, so that there is no
 * padding to compare. */
struct linear_product {
  int64_t op_a, op_b, m, n, k, lda, ldb, ldd, type, type_d, compute, epilogue;
};

/* bias: of D's type, (m) added, or (n) the sums over k of op(B) (BGRADB). extra: GELU's input, of D's shape. */
struct linear_arrays {
  const void *a, *b;
  void *d;
  const void *bias, *extra;
};

/* A product's algorithm; there is none if the library has no such product. */
struct linear_plan {
  struct linear_plan *next;
  struct linear_product product;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulAlgo_t algorithm;
  bool exists;
};

struct cuda_linear {
  cublasLtHandle_t library;
  struct linear_plan *plans;
  int count;
};

int cuda_linear_open(struct cuda_state *state)
{
  state->linear = calloc(1, sizeof *state->linear);
  return state->linear ? (int)cublasLtCreate(&state->linear->library) : CUBLAS_STATUS_ALLOC_FAILED;
}

static void linear_free_plans(struct cuda_linear *linear)
{
  while (linear->plans) {
    struct linear_plan *plan = linear->plans;

    linear->plans = plan->next;
    cublasLtMatmulDescDestroy(plan->operation);
    cublasLtMatrixLayoutDestroy(plan->a);
    cublasLtMatrixLayoutDestroy(plan->b);
    cublasLtMatrixLayoutDestroy(plan->d);
    free(plan);
  }
  linear->count = 0;
}

void cuda_linear_close(struct cuda_state *state)
{
  if (!state->linear)
    return;
  linear_free_plans(state->linear);
  if (state->linear->library)
    cublasLtDestroy(state->linear->library);
  free(state->linear);
}

/* -- plans */

static cublasStatus_t linear_set_arrays(cublasLtMatmulDesc_t operation, const struct linear_arrays *arrays)
{
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

  if (arrays->bias)
    status = cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &arrays->bias,
                                            sizeof arrays->bias);
  if (status == CUBLAS_STATUS_SUCCESS && arrays->extra)
    status = cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &arrays->extra,
                                            sizeof arrays->extra);
  return status;
}

static cublasStatus_t linear_describe(struct linear_plan *plan, const struct linear_arrays *arrays)
{
  const struct linear_product *it = &plan->product;
  const cublasOperation_t op_a = (cublasOperation_t)it->op_a, op_b = (cublasOperation_t)it->op_b;
  const cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)it->epilogue;
  const cudaDataType_t type = (cudaDataType_t)it->type;
  const bool turned_a = op_a == CUBLAS_OP_T, turned_b = op_b == CUBLAS_OP_T;
  cublasStatus_t status = cublasLtMatmulDescCreate(&plan->operation, (cublasComputeType_t)it->compute, CUDA_R_32F);

  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                            sizeof epilogue);
  if (status == CUBLAS_STATUS_SUCCESS && arrays->extra)
    status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &it->ldd,
                                            sizeof it->ldd);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = linear_set_arrays(plan->operation, arrays);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatrixLayoutCreate(&plan->a, type, (uint64_t)(turned_a ? it->k : it->m),
                                        (uint64_t)(turned_a ? it->m : it->k), it->lda);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatrixLayoutCreate(&plan->b, type, (uint64_t)(turned_b ? it->n : it->k),
                                        (uint64_t)(turned_b ? it->k : it->n), it->ldb);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatrixLayoutCreate(&plan->d, (cudaDataType_t)it->type_d, (uint64_t)it->m, (uint64_t)it->n,
                                        it->ldd);
  return status;
}

/* Returns whether the library has an algorithm. */
static bool linear_choose(const struct cuda_state *state, struct linear_plan *plan)
{
  static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const size_t workspace = state->workspace ? CUDA_WORKSPACE : 0;
  const uint32_t bytes = LINEAR_ALIGNMENT, reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;

  if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
    return false;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                       sizeof reductions);
  for (size_t i = 0; i < sizeof alignment / sizeof *alignment; i++)
    cublasLtMatmulPreferenceSetAttribute(preference, alignment[i], &bytes, sizeof bytes);
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(state->linear->library, plan->operation, plan->a,
                                                               plan->b, plan->d, plan->d, preference, 1, &result,
                                                               &found);
  cublasLtMatmulPreferenceDestroy(preference);
  plan->algorithm = result.algo;
  return status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
}

/* Returns the product's plan, which is made when it is first needed; NULL: no memory. */
static struct linear_plan *linear_find(const struct cuda_state *state, const struct linear_product *product,
                                       const struct linear_arrays *arrays)
{
  struct cuda_linear *linear = state->linear;

  for (struct linear_plan *plan = linear->plans; plan; plan = plan->next)
    if (memcmp(&plan->product, product, sizeof *product) == 0)
      return plan;
  struct linear_plan *plan = calloc(1, sizeof *plan);
  if (!plan)
    return NULL;
  if (linear->count == LINEAR_PLANS)
    linear_free_plans(linear);
  plan->product = *product;
  plan->exists = linear_describe(plan, arrays) == CUBLAS_STATUS_SUCCESS && linear_choose(state, plan);
  plan->next = linear->plans;
  linear->plans = plan;
  linear->count++;
  return plan;
}

static bool linear_aligned(const void *array)
{
  return (uintptr_t)array % LINEAR_ALIGNMENT == 0;
}

/* Returns whether the product was begun. */
static bool linear_run(struct trm_device *device, const struct linear_product *product,
                       const struct linear_arrays *arrays)
{
  static const float one = 1, zero = 0;
  struct CUstream_st *stream = cuda_stream(device);
  const struct cuda_state *state = cuda_state_of(device);

  if (product->m == 0 || product->n == 0 || product->k == 0 ||
      (arrays->extra && (product->ldd % LINEAR_AUX_UNIT != 0 || arrays->extra == arrays->d)) ||
      !linear_aligned(arrays->a) || !linear_aligned(arrays->b) || !linear_aligned(arrays->d) ||
      !linear_aligned(arrays->bias) || !linear_aligned(arrays->extra))
    return false;
  const struct linear_plan *plan = linear_find(state, product, arrays);
  if (!plan || !plan->exists)
    return false;
  cublasStatus_t status = linear_set_arrays(plan->operation, arrays);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmul(state->linear->library, plan->operation, &one, arrays->a, plan->a, arrays->b, plan->b,
                            &zero, arrays->d, plan->d, arrays->d, plan->d, &plan->algorithm, state->workspace,
                            state->workspace ? CUDA_WORKSPACE : 0, stream);
  if (status != CUBLAS_STATUS_SUCCESS)
    cuda_fail(device, "GPU %d: linear layer: %s", state->index, cublasGetStatusString(status));
  return true;
}

/* -- y^T (N, B) = w (N, K) x^T (K, B) */

/* Returns the bias as values of the call's type; NULL: there is no memory for it. */
static const void *linear_bias(struct trm_device *device, const struct trm_linear_forward *call)
{
  if (call->type == TRM_VALUES_F32)
    return call->bias;
  void *rounded = cuda_scratch(device, call->n * trm_value_bytes(call->type));
  if (rounded)
    device->ops->convert(device, &(struct trm_convert){
      .from = call->bias, .to = rounded, .n = call->n, .type_from = TRM_VALUES_F32, .type_to = call->type});
  return rounded;
}

static bool linear_forward(struct trm_device *device, const struct trm_linear_forward *call)
{
  const bool gelu = call->z && call->kind == TRM_GELU_TANH, kept = gelu && call->z != call->y;
  const struct linear_product product = {
    .op_a = CUBLAS_OP_T, .op_b = CUBLAS_OP_N, .m = (int64_t)call->n, .n = (int64_t)call->b, .k = (int64_t)call->k,
    .lda = (int64_t)call->k, .ldb = (int64_t)call->k, .ldd = (int64_t)call->ld, .type = gemm_type(call->type),
    .type_d = gemm_type(call->type), .compute = gemm_compute(device, call->type),
    .epilogue = kept ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS};
  const struct linear_arrays arrays = {.a = call->w, .b = call->x, .d = gelu ? call->z : call->y,
                                       .bias = call->bias ? linear_bias(device, call) : NULL,
                                       .extra = kept ? call->y : NULL};

  if (!arrays.bias || gemm_rounds(device, call->type) || !linear_run(device, &product, &arrays))
    return false;
  if (call->z && !gelu)
    device->ops->activation_forward(device, &(struct trm_activation_forward){
      .kind = call->kind, .x = call->y, .y = call->z, .n = call->b * call->n, .type = call->type});
  return true;
}

void cuda_linear_forward(struct trm_device *device, const struct trm_linear_forward *call)
{
  if (!linear_forward(device, call))
    composed_linear_forward(device, call);
}

/* -- dw^T (K, N) = x^T (K, B) dy (B, N) and the sums of dy's columns; dx^T (K, B) = w^T (K, N) dy^T (N, B) */

static bool linear_backward_weights(struct trm_device *device, const struct trm_linear_backward *call)
{
  const struct linear_product product = {
    .op_a = CUBLAS_OP_N, .op_b = CUBLAS_OP_T, .m = (int64_t)call->k, .n = (int64_t)call->n, .k = (int64_t)call->b,
    .lda = (int64_t)call->k, .ldb = (int64_t)call->ld, .ldd = (int64_t)call->k, .type = gemm_type(call->type),
    .type_d = CUDA_R_32F, .compute = gemm_compute(device, call->type), .epilogue = CUBLASLT_EPILOGUE_BGRADB};
  const struct linear_arrays arrays = {.a = call->x, .b = call->dy, .d = call->dw, .bias = call->db};

  return call->db && call->beta == 0 && !gemm_rounds(device, call->type) && linear_run(device, &product, &arrays);
}

static bool linear_backward_input(struct trm_device *device, const struct trm_linear_backward *call)
{
  const struct linear_product product = {
    .op_a = CUBLAS_OP_N, .op_b = CUBLAS_OP_N, .m = (int64_t)call->k, .n = (int64_t)call->b, .k = (int64_t)call->n,
    .lda = (int64_t)call->k, .ldb = (int64_t)call->ld, .ldd = (int64_t)call->k, .type = gemm_type(call->type),
    .type_d = gemm_type(call->type), .compute = gemm_compute(device, call->type), .epilogue = CUBLASLT_EPILOGUE_DGELU};
  const struct linear_arrays arrays = {.a = call->w, .b = call->dy, .d = call->dx, .extra = call->u};

  return call->through && call->kind == TRM_GELU_TANH && !gemm_rounds(device, call->type) &&
         linear_run(device, &product, &arrays);
}

void cuda_linear_backward(struct trm_device *device, const struct trm_linear_backward *call)
{
  if (call->dw && !linear_backward_weights(device, call))
    composed_linear_backward_weights(device, call);
  if (call->dx && !linear_backward_input(device, call))
    composed_linear_backward_input(device, call);
}
