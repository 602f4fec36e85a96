/* The micro-kernel of attention's products for AVX2: 12 accumulators of 8 floats. */
#include "kernels/cpu/attention.h"

#ifdef __x86_64__
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define V __m256
#define LANES 8
#define ROWS 6
#define VECTORS 2
#define V_ZERO() _mm256_setzero_ps()
#define V_SET1(f) _mm256_set1_ps(f)
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps(p, v)
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)

#include "kernels/cpu/attention_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static bool attention_avx2_supported(void)
{
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct attention_kernels attention_avx2 = ATTENTION_KERNELS("avx2", attention_avx2_supported);
#endif
