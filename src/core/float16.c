/* Conversion of host arrays. */
#include "core/float16.h"

#include "core/clones.h"

CPU_CLONES static void float16_widen(float *to, const trm_f16 *from, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_f16_value(from[i]);
}

CPU_CLONES static void float16_narrow(trm_f16 *to, const float *from, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_f16_round(from[i]);
}

void trm_f16_widen(float *to, const trm_f16 *from, size_t n)
{
  float16_widen(to, from, n);
}

void trm_f16_narrow(trm_f16 *to, const float *from, size_t n)
{
  float16_narrow(to, from, n);
}
