/* Vectors of 16 floats of AVX-512, as the micro-kernels take them (conv_kernel.h, attention_kernel.h). */
#pragma once

#include <immintrin.h>
#include <stdbool.h>

#define V __m512
#define LANES 16
#define V_ZERO() _mm512_setzero_ps()
#define V_SET1(f) _mm512_set1_ps(f)
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps(p, v)
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define V_SUB(a, b) _mm512_sub_ps(a, b)
#define V_MUL(a, b) _mm512_mul_ps(a, b)
#define V_MAX(a, b) _mm512_max_ps(a, b) /* b if one is NaN */
#define V_ROUND(x) _mm512_roundscale_ps(x, 0) /* to the nearest integer, ties to even */
#define V_SCALE(x, n) _mm512_scalef_ps(x, n) /* x 2^n, n an integer from -126 to 127 */

static bool vector_supported(void) /* by this processor */
{
  return __builtin_cpu_supports("avx512f");
}
