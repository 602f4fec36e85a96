/* The micro-kernel of attention's products for AVX-512: 24 accumulators of 16 floats. */
#include "kernels/cpu/attention.h"

#ifdef __x86_64__
#include "kernels/cpu/vector_avx512.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,fma")
#endif

#define ROWS 6
#define VECTORS 4

#include "kernels/cpu/attention_kernel.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct attention_kernels attention_avx512 = ATTENTION_KERNELS("avx512", vector_supported);
#endif
