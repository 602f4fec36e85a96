/* Conversion of host arrays. */
#include "core/bfloat16.h"

#include "core/clones.h"

CPU_CLONES static void bfloat16_widen(float *to, const trm_bf16 *from, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_bf16_value(from[i]);
}

CPU_CLONES static void bfloat16_narrow(trm_bf16 *to, const float *from, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_bf16_round(from[i]);
}

void trm_bf16_widen(float *to, const trm_bf16 *from, size_t n)
{
  bfloat16_widen(to, from, n);
}

void trm_bf16_narrow(trm_bf16 *to, const float *from, size_t n)
{
  bfloat16_narrow(to, from, n);
}
