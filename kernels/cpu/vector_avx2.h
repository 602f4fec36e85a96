/* Vectors of 8 floats of AVX2, as the micro-kernels take them (conv_kernel.h, attention_kernel.h). */
#pragma once

#include <immintrin.h>
#include <stdbool.h>

#define V __m256
#define LANES 8
#define V_ZERO() _mm256_setzero_ps()
#define V_SET1(f) _mm256_set1_ps(f)
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps(p, v)
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)

static bool vector_supported(void) /* by this processor */
{
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
