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
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define V_SUB(a, b) _mm256_sub_ps(a, b)
#define V_MUL(a, b) _mm256_mul_ps(a, b)
#define V_MAX(a, b) _mm256_max_ps(a, b) /* b if one is NaN */
#define V_ROUND(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) /* ties to even */
#define V_SCALE(x, n) /* x 2^n, n an integer from -126 to 127 */                                            \
  _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(                                                   \
                     _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)))

static bool vector_supported(void) /* by this processor */
{
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
