/* Micro-kernels of convolution for AVX2: 12 accumulators of 8 floats. */
#include "kernels/cpu/conv.h"

#ifdef __x86_64__
#include "kernels/cpu/vector_avx2.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define UNITS 4
#define VECTORS 3
#define ROWS 4
#define TAPS 3
#define V_LOAD2(p, q) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1)
#define V_SUM(v) conv_avx2_sum_lanes(v)

CPU_INLINE float conv_avx2_sum_lanes(__m256 v)
{
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

#include "kernels/cpu/conv_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct conv_kernels conv_avx2 = CONV_KERNELS("avx2", vector_supported);
#endif
