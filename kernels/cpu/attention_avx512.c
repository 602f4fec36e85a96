/* The micro-kernel of attention's products for AVX-512: 24 accumulators of 16 floats. */
#include "kernels/cpu/attention.h"

#ifdef __x86_64__
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,fma")
#endif

#define V __m512
#define LANES 16
#define ROWS 6
#define VECTORS 4
#define V_ZERO() _mm512_setzero_ps()
#define V_SET1(f) _mm512_set1_ps(f)
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps(p, v)
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)

#include "kernels/cpu/attention_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static bool attention_avx512_supported(void)
{
  return __builtin_cpu_supports("avx512f");
}

const struct attention_kernels attention_avx512 = ATTENTION_KERNELS("avx512", attention_avx512_supported);
#endif
