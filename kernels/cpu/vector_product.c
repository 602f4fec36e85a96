/* The product of one row and a transposed matrix, c (1, N) = alpha a (1, K) B^T + beta c of B (N, K): a linear layer of
 * one sample, or of the next token of a text. It reads every weight once, so that memory limits it: libraries, which
 * copy B to blocks, take several times as long. Each sum has one order of additions, by lanes, which does not depend on
 * the number of threads. */
#include "kernels/cpu/cpu.h"

/* Values of a row that are summed in lanes of floats. */
enum { VALUES = CPU_LANES * CPU_BLOCK };

struct vector_product {
  enum trm_value_type type;
  const struct trm_gemm *product;
};

/* Returns the product of `count` values of a from k on and those of B from element b on. */
CPU_INLINE double vector_product_sum(enum trm_value_type type, const struct trm_gemm *p, size_t k, size_t b,
                                     size_t count)
{
  float lane[CPU_LANES] = {0}, rest = 0;
  size_t i = 0;

  for (; i + CPU_LANES <= count; i += CPU_LANES) {
    cpu_prefetch(type, p->b, b + i + CPU_STREAM_AHEAD, CPU_LANES);
#pragma omp simd
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] += cpu_value(type, p->a, k + i + l) * cpu_value(type, p->b, b + i + l);
  }
  for (; i < count; i++)
    rest += cpu_value(type, p->a, k + i) * cpu_value(type, p->b, b + i);
  return (double)cpu_lane_sum(lane, CPU_LANES) + (double)rest;
}

/* Work item: element of c. */
CPU_INLINE void vector_product(enum trm_value_type type, const struct vector_product *it, size_t low, size_t high)
{
  const struct trm_gemm *p = it->product;

  for (size_t j = low; j < high; j++) {
    const float before = p->beta == 0 ? 0 : p->beta * cpu_value(p->type_c, p->c, j);
    double sum = 0;

    for (size_t k = 0; k < p->k; k += VALUES)
      sum += vector_product_sum(type, p, k, j * p->ldb + k, p->k - k < VALUES ? p->k - k : VALUES);
    cpu_set(p->type_c, p->c, j, p->alpha * (float)sum + before);
  }
}
CPU_BODY_BY_TYPE(vector_product, vector_product)

void cpu_gemm(struct trm_device *device, const struct trm_gemm *call)
{
  const struct vector_product it = {call->type_ab, call};
  const bool rounds = call->type_ab == TRM_VALUES_F32 && device->blas->matmul != TRM_MATMUL_F32;

  if (call->m == 1 && call->transpose_b && !call->transpose_a && !rounds)
    cpu_for(device, call->n, 1, (double)call->k, vector_product_body, &it);
  else
    device->blas->gemm(call);
}
