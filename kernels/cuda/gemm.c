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

/* -- copies of matrices: factors rounded to bfloat16, and sizes that tensor cores are slow with
 *
 * cuBLAS' fast kernels for tensor cores want rows that begin at multiples of 16 bytes, and as many columns of C and
 * terms: 16384 x 50257 x 768 runs at an eighth of the rate of 16384 x 50264 x 768. Copies have such rows, and zeros
 * where the matrices end before. */

enum {
  GEMM_ROW_BYTES = 16,
  GEMM_COPY_MIN = 256, /* rows, columns and terms from which on the copies take less time than they save */
};

static size_t gemm_up(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

/* A matrix of the call, and as the product has it. */
struct gemm_matrix {
  struct cuda_rows rows;
  size_t bytes; /* of the copy; 0: none */
};

/* rows, columns, ld, type: of the caller's matrix; rows_to, columns_to, type_to: in the product; unit: of its leading
 * dimension. */
static struct gemm_matrix gemm_matrix(struct cuda_rows rows, size_t unit)
{
  struct gemm_matrix it = {.rows = rows};

  it.rows.ld_to = rows.ld_from;
  if (rows.type_from != rows.type_to || rows.rows_to != rows.rows || rows.columns_to != rows.columns ||
      rows.ld_from % unit != 0) {
    it.rows.ld_to = gemm_up(rows.columns_to, unit);
    it.bytes = gemm_up(rows.rows_to * it.rows.ld_to * trm_value_bytes(rows.type_to), TRM_ALIGNMENT);
  }
  return it;
}

/* Makes a factor's copy, if it has one, at *memory, which moves on. Returns the product's factor. */
static const void *gemm_factor(struct trm_device *device, struct gemm_matrix *it, char **memory)
{
  if (it->bytes == 0)
    return it->rows.from;
  it->rows.to = *memory;
  *memory += it->bytes;
  cuda_copy_rows(device, &it->rows);
  return it->rows.to;
}

static void gemm_with_copies(struct trm_device *device, const struct trm_gemm *call, enum trm_value_type type,
                             size_t unit)
{
  const size_t n = gemm_up(call->n, unit), k = gemm_up(call->k, unit);
  const bool ta = call->transpose_a, tb = call->transpose_b;
  struct trm_gemm product = *call;
  struct gemm_matrix a = gemm_matrix((struct cuda_rows){
    .from = call->a, .rows = ta ? call->k : call->m, .columns = ta ? call->m : call->k, .ld_from = call->lda,
    .rows_to = ta ? k : call->m, .columns_to = ta ? call->m : k, .type_from = call->type_ab, .type_to = type}, unit);
  struct gemm_matrix b = gemm_matrix((struct cuda_rows){
    .from = call->b, .rows = tb ? call->n : call->k, .columns = tb ? call->k : call->n, .ld_from = call->ldb,
    .rows_to = tb ? n : k, .columns_to = tb ? k : n, .type_from = call->type_ab, .type_to = type}, unit);
  struct gemm_matrix c = gemm_matrix((struct cuda_rows){
    .from = call->c, .rows = call->m, .columns = call->n, .ld_from = call->ldc, .rows_to = call->m, .columns_to = n,
    .type_from = call->type_c, .type_to = call->type_c}, unit);
  char *memory = cuda_scratch(device, a.bytes + b.bytes + c.bytes);

  if (!memory)
    return;
  product.n = n;
  product.k = k;
  product.type_ab = type;
  product.a = gemm_factor(device, &a, &memory);
  product.lda = a.rows.ld_to;
  product.b = gemm_factor(device, &b, &memory);
  product.ldb = b.rows.ld_to;
  product.ldc = c.rows.ld_to;
  if (c.bytes == 0) {
    gemm_call(device, &product);
    return;
  }
  product.c = c.rows.to = memory;
  if (call->beta != 0)
    cuda_copy_rows(device, &c.rows);
  gemm_call(device, &product);
  cuda_copy_rows(device, &(struct cuda_rows){
    .from = memory, .to = call->c, .rows = call->m, .columns = call->n, .rows_to = call->m, .columns_to = call->n,
    .ld_from = product.ldc, .ld_to = call->ldc, .type_from = call->type_c, .type_to = call->type_c});
}

void cuda_gemm(struct trm_device *device, const struct trm_gemm *call)
{
  const size_t row = call->n * trm_value_bytes(call->type_c), pitch = call->ldc * trm_value_bytes(call->type_c);
  const bool rounds = gemm_rounds(device, call->type_ab);
  const enum trm_value_type type = rounds ? TRM_VALUES_BF16 : call->type_ab;
  const bool tensor_cores = type == TRM_VALUES_BF16 || device->matmul == TRM_MATMUL_TF32;
  const size_t unit = GEMM_ROW_BYTES / trm_value_bytes(type);
  const bool large = call->m >= GEMM_COPY_MIN && call->n >= GEMM_COPY_MIN && call->k >= GEMM_COPY_MIN;
  const bool slow = tensor_cores && large &&
                    (call->n | call->k | call->lda | call->ldb | call->ldc) % unit != 0;

  if (call->m == 0 || call->n == 0)
    return;
  if (call->k == 0 && call->beta == 0)
    cuda_check(device, (int)cudaMemset2DAsync(call->c, pitch, 0, row, call->m, cuda_stream(device)), "product");
  else if (call->k > 0 && (rounds || slow))
    gemm_with_copies(device, call, type, slow ? unit : 1);
  else
    gemm_call(device, call);
}
