/* The product of one row and a transposed matrix, c (1, N) = alpha a (1, K) B^T + beta c of B (N, K): a linear layer of
 * one sample, or of the next token of a text. It reads every weight once, so that memory limits it: libraries, which
 * copy B to blocks, take several times as long. Each sum has one order of additions, by lanes, which does not depend on
 * the number of threads. */
#include "kernels/cpu/cpu.h"

/* Rows of B at a time, which share what is loaded of a; and values of a row that are summed in lanes of floats. */
enum { ROWS = 4, VALUES = CPU_LANES * CPU_BLOCK };

struct vector_product {
  enum trm_value_type type;
  const struct trm_gemm *product;
};

/* sum (rows) += products of a and rows of B from element `b` on, over `count` values from k on. */
CPU_INLINE void vector_product_add(enum trm_value_type type, const struct trm_gemm *p, size_t rows, size_t b, size_t k,
                                   size_t count, double *sum)
{
  float lane[ROWS][CPU_LANES] = {{0}}, rest[ROWS] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= count; i += CPU_LANES)
    for (size_t r = 0; r < rows; r++) {
      /* the next rows: the processor itself prefetches within a page */
      __builtin_prefetch(cpu_at(type, p->b, b + (r + ROWS) * p->ldb + k + i));
#pragma omp simd
      for (size_t l = 0; l < CPU_LANES; l++)
        lane[r][l] += cpu_value(type, p->a, k + i + l) * cpu_value(type, p->b, b + r * p->ldb + k + i + l);
    }
  for (; i < count; i++)
    for (size_t r = 0; r < rows; r++)
      rest[r] += cpu_value(type, p->a, k + i) * cpu_value(type, p->b, b + r * p->ldb + k + i);
  for (size_t r = 0; r < rows; r++)
    sum[r] += (double)cpu_lane_sum(lane[r], CPU_LANES) + (double)rest[r];
}

/* Elements [first, first + rows) of c. */
CPU_INLINE void vector_product_rows(enum trm_value_type type, const struct trm_gemm *p, size_t first, size_t rows)
{
  double sum[ROWS] = {0};

  for (size_t k = 0; k < p->k; k += VALUES)
    vector_product_add(type, p, rows, first * p->ldb, k, p->k - k < VALUES ? p->k - k : VALUES, sum);
  for (size_t r = 0; r < rows; r++) {
    const float before = p->beta == 0 ? 0 : p->beta * cpu_value(p->type_c, p->c, first + r);

    cpu_set(p->type_c, p->c, first + r, p->alpha * (float)sum[r] + before);
  }
}

/* Work item: ROWS elements of c. */
CPU_INLINE void vector_product(enum trm_value_type type, const struct vector_product *it, size_t low, size_t high)
{
  const struct trm_gemm *p = it->product;

  for (size_t first = low * ROWS; first < high * ROWS && first < p->n; first += ROWS)
    if (first + ROWS <= p->n)
      vector_product_rows(type, p, first, ROWS);
    else
      vector_product_rows(type, p, first, p->n - first);
}
CPU_BODY_BY_TYPE(vector_product, vector_product)

void cpu_gemm(struct trm_device *device, const struct trm_gemm *call)
{
  const struct vector_product it = {call->type_ab, call};
  const bool rounds = call->type_ab == TRM_VALUES_F32 && device->blas->matmul != TRM_MATMUL_F32;

  if (call->m == 1 && call->transpose_b && !call->transpose_a && !rounds)
    cpu_for(device, (call->n + ROWS - 1) / ROWS, 1, (double)(ROWS * call->k), vector_product_body, &it);
  else
    device->blas->gemm(call);
}
