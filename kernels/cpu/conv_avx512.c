/* Micro-kernels of convolution for AVX-512: 24 accumulators of 16 floats. */
#include "kernels/cpu/conv.h"

#ifdef __x86_64__
#include "kernels/cpu/vector_avx512.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,fma")
#endif

#define UNITS 8
#define VECTORS 3
#define ROWS 4
#define TAPS 6
#define V_LOAD2(p, q)                                                                                                \
  _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(p))),                  \
                                      _mm256_castps_pd(_mm256_loadu_ps(q)), 1))
#define V_SUM(v) _mm512_reduce_add_ps(v)

#include "kernels/cpu/conv_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct conv_kernels conv_avx512 = CONV_KERNELS("avx512", vector_supported);
#endif
